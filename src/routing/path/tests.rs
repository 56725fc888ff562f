use proptest::prelude::*;

use super::*;

#[test]
fn normal_paths_are_borrowed() {
    for path in [
        "/",
        "/a",
        "/a/",
        "//",
        "/a//b",
        "/...",
        "/.a",
        "/a.",
        "/..a/b",
        "/%20",
        "/%C3%BC",
        "/%25",
        "/a;v=1,(x)!$&'*+:@~-_",
    ] {
        let normal = normalise(path);
        assert!(matches!(normal, Ok(Cow::Borrowed(p)) if p == path), "{path}: {normal:?}");
    }
}

#[test]
fn paths_take_their_form() {
    for (given, expected) in [
        ("/%61%7E", "/a~"),
        ("/%c3%bc", "/%C3%BC"),
        ("/\u{fc}", "/%C3%BC"),
        ("/a%2D%2e%5f", "/a-._"),
        ("/.", "/"),
        ("/..", "/"),
        ("/a/.", "/a/"),
        ("/a/..", "/"),
        ("/a/./b", "/a/b"),
        ("/a/../b", "/b"),
        ("/a/b/../../c", "/c"),
        ("/../../a", "/a"),
        ("/a/b/c/./../../g", "/a/g"),
        ("/a/%2e%2E/b", "/b"),
        ("/a/.%2e", "/"),
        ("/a//../b", "/a/b"),
        ("/a/..//b", "//b"),
        ("/%252e%252e/a", "/%252e%252e/a"),
        ("/a/..;/b/./", "/a/..;/b/"),
    ] {
        assert_eq!(normalise(given).as_deref(), Ok(expected), "{given}");
    }
}

#[test]
fn ambiguous_paths_are_refused() {
    for (given, error) in [
        ("", PathError::NotAbsolute),
        ("*", PathError::NotAbsolute),
        ("a/b", PathError::NotAbsolute),
        ("/%", PathError::BadEscape),
        ("/%4", PathError::BadEscape),
        ("/%4g", PathError::BadEscape),
        ("/%\u{fc}", PathError::BadEscape),
        ("/%+1", PathError::BadEscape),
        ("/a%2fb", PathError::EscapedSlash),
        ("/a%2Fb", PathError::EscapedSlash),
        ("/..%5c", PathError::EscapedBackslash),
        ("/a\\b", PathError::Backslash),
        ("/%00", PathError::Nul),
        ("/\0", PathError::Nul),
        ("/a#b", PathError::Fragment),
        ("/a?b", PathError::Query),
        ("/a b", PathError::Control),
        ("/a\r\nb", PathError::Control),
        ("/\u{7f}", PathError::Control),
    ] {
        assert_eq!(normalise(given), Err(error), "{given:?}");
    }
}

/// RFC 3986, section 5.2.4, word for word, on decoded text.
fn remove_dot_segments(mut input: &str) -> String {
    let mut output = String::new();
    while !input.is_empty() {
        if input.starts_with("/./") {
            input = &input[2..];
        } else if input == "/." {
            input = "/";
        } else if input.starts_with("/../") || input == "/.." {
            input = if input == "/.." { "/" } else { &input[3..] };
            output.truncate(output.rfind('/').unwrap_or(0));
        } else {
            let end = input[1..].find('/').map_or(input.len(), |at| at + 1);
            output.push_str(&input[..end]);
            input = &input[end..];
        }
    }
    output
}

proptest! {
    #[test]
    fn normal_form_is_stable(raw in "/([a./%2eE5cF#?\\\\ \u{fc}-]|%2[eE]|%[cC]3|\\.\\.|//){0,12}") {
        if let Ok(normal) = normalise(&raw) {
            prop_assert!(normal.starts_with('/') && normal.is_ascii());
            prop_assert!(!normal.split('/').any(|segment| matches!(segment, "." | "..")));
            prop_assert!(matches!(normalise(&normal), Ok(Cow::Borrowed(_))));
        }
    }

    #[test]
    fn any_text_is_taken_or_refused(raw in ".{0,40}") {
        let _ = normalise(&raw);
        let _ = normalise(&format!("/{raw}"));
    }

    #[test]
    fn dot_segments_go_as_the_rfc_says(path in "(/(a|b|\\.|\\.\\.|\\.\\.\\.|)){1,8}") {
        let expected = remove_dot_segments(&path);
        prop_assert_eq!(normalise(&path).map(Cow::into_owned), Ok(expected));
    }
}
