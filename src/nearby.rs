//! Texts that may be meant where another one was written.

/// How many letters have to change to make `b` of `a`, where that is few enough to be a slip: at most three, and a
/// third of the text. Two letters that changed places count as one.
pub fn distance(a: &str, b: &str) -> Option<usize> {
    let (a, b): (Vec<char>, Vec<char>) = (a.chars().collect(), b.chars().collect());
    let most = 3.min(a.len().max(b.len()) / 3);
    if a.len().abs_diff(b.len()) > most {
        return None;
    }
    let mut before: Vec<usize> = Vec::new();
    let mut row: Vec<usize> = (0..=b.len()).collect();
    for (at, own) in a.iter().enumerate() {
        let mut next = vec![at + 1];
        for (to, its) in b.iter().enumerate() {
            let mut cost = (row[to] + usize::from(own != its)).min(row[to + 1] + 1).min(next[to] + 1);
            if at > 0 && to > 0 && *own == b[to - 1] && a[at - 1] == *its {
                cost = cost.min(before[to - 1] + 1);
            }
            next.push(cost);
        }
        before = std::mem::replace(&mut row, next);
    }
    row.last().copied().filter(|distance| *distance <= most)
}

/// The one of `known` that comes nearest to `text`, case aside; the first of equals. `None` where none is near.
pub fn nearest<'a>(text: &str, known: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    let lower = text.to_lowercase();
    let near = known.into_iter().filter_map(|known| Some((distance(&lower, &known.to_lowercase())?, known)));
    near.min_by_key(|(distance, _)| *distance).map(|(_, known)| known)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slips_are_near_and_other_words_are_not() {
        assert_eq!(distance("shop.example.com", "shop.exmaple.com"), Some(1));
        assert_eq!(distance("shop.example.com", "shops.example.com"), Some(1));
        assert_eq!(distance("shop.example.com", "pay.example.com"), None);
        assert_eq!(distance("ab", "ac"), None);
        assert_eq!(distance("", ""), Some(0));
        assert_eq!(nearest("backend", ["filters", "backends", "matches"]), Some("backends"));
        assert_eq!(nearest("PREFIX", ["Exact", "Prefix"]), Some("Prefix"));
        assert_eq!(nearest("hostname", ["listeners"]), None);
        assert_eq!(nearest("x", []), None);
    }
}
