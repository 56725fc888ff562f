use super::*;

fn parts(version: Version, fields: &[(&str, &str)]) -> Parts {
    let mut request = Request::builder().version(version);
    for (name, value) in fields {
        request = request.header(*name, *value);
    }
    request.body(()).unwrap().into_parts().0
}

fn read(fields: &[(&str, &str)], allowed: &[&str]) -> (String, String) {
    let allowed: Vec<Arc<str>> = allowed.iter().map(|&name| name.into()).collect();
    let asked = Asked::read(&parts(Version::HTTP_11, fields), &allowed);
    (asked.allowed.join(" "), asked.refused.join(" "))
}

#[test]
fn only_what_is_allowed_and_meant_for_the_gateway_is_asked_for() {
    let websocket = ("websocket".to_owned(), String::new());
    let none = (String::new(), String::new());
    let c = ("connection", "Upgrade");
    assert_eq!(read(&[c, ("upgrade", "websocket")], &["websocket"]), websocket);
    assert_eq!(read(&[("connection", "keep-alive, upgrade"), ("upgrade", "websocket")], &["websocket"]), websocket);
    assert_eq!(read(&[("connection", "keep-alive"), c, ("upgrade", "websocket")], &["websocket"]), websocket);
    assert_eq!(read(&[c, ("upgrade", "WebSocket")], &["websocket"]), ("WebSocket".to_owned(), String::new()));
    assert_eq!(read(&[("upgrade", "websocket")], &["websocket"]), none, "Connection does not name it");
    assert_eq!(read(&[("connection", "x-upgrade"), ("upgrade", "websocket")], &["websocket"]), none);
    assert_eq!(read(&[c], &["websocket"]), none);
    assert_eq!(read(&[c, ("upgrade", "h2c")], &["websocket"]), (String::new(), "h2c".to_owned()));
    let both = read(&[c, ("upgrade", "foo/1, websocket/13"), ("upgrade", ", h2c")], &["websocket"]);
    assert_eq!(both, ("websocket/13".to_owned(), "foo/1 h2c".to_owned()));
    let old = parts(Version::HTTP_10, &[c, ("upgrade", "websocket")]);
    assert_eq!(Asked::read(&old, &["websocket".into()]), Asked::default());
}

#[test]
fn an_entry_allows_its_version_or_every_one() {
    let c = ("connection", "upgrade");
    assert_eq!(read(&[c, ("upgrade", "websocket")], &[]), (String::new(), "websocket".to_owned()));
    let tcp = read(&[c, ("upgrade", "websocket, TCP")], &["tcp"]);
    assert_eq!(tcp, ("TCP".to_owned(), "websocket".to_owned()));
    let spdy = read(&[c, ("upgrade", "SPDY/3.1, spdy/2")], &["SPDY/3.1"]);
    assert_eq!(spdy, ("SPDY/3.1".to_owned(), "spdy/2".to_owned()));
    assert_eq!(read(&[c, ("upgrade", "foo/ 1")], &["foo"]), (String::new(), "foo/ 1".to_owned()));
}

fn agreed(asked: &[&str], lines: &[&str]) -> Option<String> {
    let wanted = Wanted { protocols: asked.iter().map(|&p| p.into()).collect(), key: None };
    let mut answer = Response::builder().status(101);
    for line in lines {
        answer = answer.header("upgrade", *line);
    }
    wanted.agreed(&answer.body(()).unwrap()).map(|protocol| protocol.to_string())
}

#[test]
fn a_101_names_what_was_asked_for() {
    assert_eq!(agreed(&["websocket"], &["WebSocket"]), Some("websocket".to_owned()));
    assert_eq!(agreed(&["foo/1", "foo/2"], &["foo/2"]), Some("foo/2".to_owned()));
    assert_eq!(agreed(&["a", "b"], &["b, a"]), Some("b".to_owned()));
    for lines in [&[][..], &[""], &["h2c"], &["foo"], &["websocket, h2c"], &["websocket", "h2c"], &["h2c, websocket"]] {
        assert_eq!(agreed(&["websocket", "foo/1"], lines), None, "{lines:?}");
    }
}
