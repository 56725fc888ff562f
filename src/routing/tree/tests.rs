use super::*;
use crate::ir::PathMatch;
use crate::routing::matrix::Matrix;
use crate::routing::order::PathKey;
use crate::routing::testing::path as path_match;

/// Sorted, different paths; the rank of each is its position.
fn with_paths<T>(texts: impl IntoIterator<Item = String>, then: impl FnOnce(&[Path<'_>]) -> T) -> T {
    let matches: Vec<PathMatch> = texts.into_iter().map(|text| path_match(&text)).collect();
    let mut steps: Vec<Vec<Step<'_>>> = Vec::new();
    for path in &matches {
        let Some(PathKey::Steps(path)) = PathKey::new(path) else { panic!("{path:?} is neither Pattern nor Prefix") };
        steps.push(path);
    }
    steps.sort();
    steps.dedup();
    let paths: Vec<Path<'_>> = (0..).zip(&steps).map(|(rank, steps)| Path { steps, ranks: rank..rank + 1 }).collect();
    then(&paths)
}

/// Every path of `n` segments over two texts, as `/a/x/a`.
fn all_over(texts: [&str; 2], n: usize) -> Vec<String> {
    let choose = |bits: usize| (0..n).flat_map(|place| ["/", texts[bits >> place & 1]]).collect();
    (0..1 << n).map(choose).collect()
}

/// What [`Tree::best`] and [`Matrix::best`] are to give, by looking at every path.
fn best(paths: &[Path<'_>], path: &str) -> Option<u32> {
    let segments: Vec<&str> = path[1..].split('/').collect();
    let fits = |steps: &[Step<'_>]| {
        let (end, fixed) = steps.split_last().unwrap();
        let count_fits = segments.len() == fixed.len() || *end != Step::PatternEnd && segments.len() > fixed.len();
        count_fits
            && fixed.iter().zip(&segments).all(|(step, segment)| match step {
                Step::Literal(text) => text == segment,
                _ => !segment.is_empty(),
            })
    };
    paths.iter().find(|path| fits(path.steps)).map(|path| path.ranks.start)
}

#[test]
fn visits_depend_on_the_path_alone() {
    for n in 1..=7 {
        with_paths(all_over(["a", "*"], n), |paths| {
            let tree = Tree::new(paths).expect("within the bound");
            for path in all_over(["a", "x"], n) {
                assert_eq!(tree.visits(&path), n + 1, "{path}");
                assert_eq!(tree.best(&path, |_| true), best(paths, &path), "{path}");
                // Nothing holds: the whole walk, and every match that fits is asked.
                let mut asked = 0;
                assert_eq!(
                    tree.best(&path, |_| {
                        asked += 1;
                        false
                    }),
                    None
                );
                let literals = path.matches('a').count();
                assert_eq!(asked, 1 << literals, "{path}");
            }
            assert_eq!(tree.visits(&"/a".repeat(5000)), n + 1);
        });
    }
}

#[test]
fn a_large_table_costs_no_more_visits() {
    for n in [1, 10, 10_000] {
        let texts = (0..n).map(|i| format!("/svc/v{i}/items"));
        with_paths(texts, |paths| {
            let tree = Tree::new(paths).unwrap();
            assert_eq!(tree.visits("/svc/v0/items/1/2/3"), 4);
            assert_eq!(tree.visits("/svc/none"), 2);
            assert_eq!(tree.best("/svc/v0/items/1", |_| true), Some(0));
        });
    }
}

#[test]
fn long_paths_end_at_the_bound() {
    with_paths(["/**".to_owned(), "/a".repeat(64), format!("!{}", "/a".repeat(64))], |paths| {
        let tree = Tree::new(paths).unwrap();
        for (segments, expected) in [(63, 2), (64, 0), (65, 1), (5000, 1)] {
            let path = "/a".repeat(segments);
            assert!(tree.visits(&path) <= MAX_SEGMENTS + 1);
            assert_eq!(tree.best(&path, |_| true), Some(expected), "{segments}");
        }
    });
}

/// One literal each, at different places: `2^n` states, or a matrix.
fn diagonal(n: usize) -> impl Iterator<Item = String> {
    (0..n).map(move |at| (0..n).map(|place| if place == at { "/a" } else { "/*" }).collect())
}

#[test]
fn states_stay_linear_and_a_matrix_takes_over() {
    with_paths(diagonal(5), |paths| assert!(Tree::new(paths).is_some()));
    with_paths(diagonal(64), |paths| {
        assert!(Tree::new(paths).is_none());
        let matrix = Matrix::new(paths);
        for place in 0..64 {
            let path: String = (0..64).map(|at| if at >= place { "/a" } else { "/x" }).collect();
            assert_eq!(matrix.best(&path, |_| true), best(paths, &path), "{path}");
        }
        assert_eq!(matrix.best(&"/x".repeat(64), |_| true), None);
    });
    // Two levels of a thousand literals beside `*` are a million states.
    let square = (0..1000).flat_map(|i| [format!("/t{i}/special"), format!("/*/s{i}")]);
    with_paths(square, |paths| {
        assert!(Tree::new(paths).is_none());
        let matrix = Matrix::new(paths);
        for path in ["/t7/special", "/t7/s999", "/x/s0", "/t999/special", "/t0/", "/t1/x", "/x/special"] {
            assert_eq!(matrix.best(path, |_| true), best(paths, path), "{path}");
        }
    });
}

#[test]
fn the_states_of_a_table_without_wildcards_are_its_trie() {
    with_paths((0..100).flat_map(|i| [format!("/a/{i}"), format!("/b/{i}/c")]), |paths| {
        let tree = Tree::new(paths).unwrap();
        // The root, a, b, 100 below a, 200 below b.
        assert_eq!(tree.size(), (1 + 2 + 100 + 200, 302));
    });
}

proptest::proptest! {
    #[test]
    fn tree_and_matrix_agree_with_a_scan(
        texts in proptest::collection::vec("(/[ab]|/\\*|/){1,5}(/\\*\\*)?", 0..80),
        requests in proptest::collection::vec("(/[abc]|/){1,6}", 1..20),
        refused in proptest::collection::vec(0..80_u32, 0..50),
    ) {
        with_paths(texts.iter().map(|text| format!("!{text}")).chain(["/a".to_owned()]), |paths| {
            let (tree, matrix) = (Tree::new(paths), Matrix::new(paths));
            for request in &requests {
                let holds = |rank: u32| !refused.contains(&rank);
                let open: Vec<Path<'_>> = paths.iter().filter(|path| holds(path.ranks.start)).cloned().collect();
                let expected = best(&open, request);
                assert_eq!(matrix.best(request, holds), expected, "{request}");
                if let Some(tree) = &tree {
                    assert_eq!(tree.best(request, holds), expected, "{request}");
                }
            }
        });
    }
}
