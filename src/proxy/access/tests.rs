use std::net::{IpAddr, SocketAddr};

use proptest::prelude::*;

use super::redact::Redacted;
use super::*;
use crate::settings::{AccessLog, Settings};
use crate::telemetry::access::Format;

fn redacted(names: &[&str]) -> Redacted {
    Redacted::new(&names.iter().map(|name| (*name).to_owned()).collect::<Vec<_>>())
}

fn query(names: &[&str], query: &str) -> String {
    let mut space = b"left over".to_vec();
    String::from_utf8(redacted(names).query(query.as_bytes(), &mut space).to_vec()).unwrap()
}

#[test]
fn values_of_hidden_parameters_are_not_told() {
    let names = ["token", "X-Amz-Signature"];
    for (given, expected) in [
        ("", ""),
        ("a=1&b=2", "a=1&b=2"),
        ("token=s3cret", "token=redacted"),
        ("a=1&token=s3cret&b", "a=1&token=redacted&b"),
        ("TOKEN=s3cret&x-amz-signature=s3cret&", "TOKEN=redacted&x-amz-signature=redacted&"),
        ("%74oken=s3cret&to%6Ben=s3cret", "%74oken=redacted&to%6Ben=redacted"),
        ("a=1;token=s3cret;b=2", "a=1;token=redacted;b=2"),
        ("token=a=b=c", "token=redacted"),
        ("token=", "token=redacted"),
        ("token", "token"),
        ("tokens=1&xtoken=2&a=token=3", "tokens=1&xtoken=2&a=token=3"),
        ("&&;token=s3cret", "&&;token=redacted"),
        ("%zz=1&%=2&token%00=3", "%zz=1&%=2&token%00=3"),
    ] {
        assert_eq!(query(&names, given), expected, "{given}");
    }
    assert_eq!(query(&["*"], "a=1&b&c="), "a=redacted&b&c=redacted");
    assert_eq!(query(&[], "token=1"), "token=1");
}

#[test]
fn a_referer_is_told_without_them() {
    let mut space = Vec::new();
    for (given, expected) in [
        ("https://a.test/x", "https://a.test/x"),
        ("https://a.test/?q=1", "https://a.test/?q=1"),
        ("https://a.test/x?q=1&token=s3cret#top", "https://a.test/x?q=1&token=redacted"),
        ("?token=s3cret", "?token=redacted"),
    ] {
        assert_eq!(redacted(&["token"]).reference(given.as_bytes(), &mut space), expected.as_bytes(), "{given}");
    }
}

proptest! {
    #[test]
    fn nothing_else_of_a_query_changes(pairs in proptest::collection::vec("(a|b|token|%74oken)?(=[a-z=%]{0,4})?", 0..6)) {
        let (mut given, mut expected) = (pairs.join("&"), Vec::new());
        for pair in &pairs {
            match pair.split_once('=') {
                Some((name @ ("token" | "%74oken"), _)) => expected.push(format!("{name}=redacted")),
                _ => expected.push(pair.clone()),
            }
        }
        prop_assert_eq!(query(&["token"], &given), expected.join("&"));
        given.push(';');
        prop_assert_eq!(query(&["token"], &given), expected.join("&") + ";");
    }
}

fn plan(change: impl FnOnce(&mut AccessLog)) -> Plan {
    let mut settings = Settings::default();
    change(&mut settings.access_log);
    Plan::new(&settings)
}

fn status(status: u16) -> Ended<'static> {
    Ended { status: Some(status), ..Ended::default() }
}

/// How many of a hundred requests with these lots are logged when they end so.
fn logged(plan: &Plan, ended: &Ended<'_>) -> usize {
    let lots = (0..100_u64).map(|lot| (lot << 57) / 100 * 128);
    lots.filter(|&lot| plan.draw(|| lot).is_some_and(|draw| plan.takes(draw, ended))).count()
}

#[test]
fn a_share_of_requests_is_logged_and_another_of_those_that_failed() {
    let refused = |reason| Ended { reason: Some(reason), ..status(error::status(reason).as_u16()) };
    let gone = || Ended { broke_off: true, ..status(200) };
    let call = |grpc| Ended { grpc: Some(grpc), ..status(200) };
    let all = plan(|_| {});
    assert_eq!(logged(&all, &status(200)), 100);

    let some = plan(|log| (log.share, log.error_share) = (0.25, 0.75));
    assert_eq!([200, 404, 499, 500, 503].map(|code| logged(&some, &status(code))), [25, 25, 25, 75, 75]);
    assert_eq!(logged(&some, &refused(Refusal::NoRoute)), 25);
    assert_eq!(logged(&some, &refused(Refusal::NoEndpoints)), 75);
    assert_eq!([logged(&some, &gone()), logged(&some, &call(GrpcStatus::NotFound))], [75, 75]);
    assert_eq!(logged(&some, &call(GrpcStatus::Ok)), 25);

    let errors = plan(|log| log.share = 0.0);
    assert_eq!([200, 404, 500].map(|code| logged(&errors, &status(code))), [0, 0, 100]);

    let none = plan(|log| (log.share, log.error_share) = (0.0, 0.0));
    assert_eq!(none.draw(|| 0), None);
    let more = plan(|log| (log.share, log.error_share) = (0.5, 0.0));
    assert_eq!([200, 500].map(|code| logged(&more, &status(code))), [50, 50], "a share is one of errors, too");
}

#[test]
fn statuses_choose_lines() {
    let some: AccessLog = serde_saphyr::from_str("statuses: [404, 5xx]").unwrap();
    let plan = plan(|log| *log = some);
    assert_eq!([200, 403, 404, 405, 500, 599].map(|code| logged(&plan, &status(code))), [0, 0, 100, 0, 100, 100]);
    let unanswered = |reason| Ended { reason: Some(reason), ..Ended::default() };
    assert_eq!(logged(&plan, &unanswered(Refusal::HeaderTimeout)), 0, "408");
    assert_eq!(logged(&plan, &unanswered(Refusal::NoEndpoints)), 100, "503");
    assert_eq!(logged(&plan, &Ended::default()), 0);
}

#[test]
fn addresses_are_written_as_they_are() {
    for text in ["0.0.0.0", "203.0.113.7", "255.255.255.255", "::", "2001:db8::1", "::ffff:1.2.3.4"] {
        let ip: IpAddr = text.parse().unwrap();
        let mut out = Vec::new();
        write_ip(ip, &mut out);
        assert_eq!(String::from_utf8(std::mem::take(&mut out)).unwrap(), ip.to_string());
        for port in [0, 80, 65535] {
            let address = SocketAddr::new(ip, port);
            write_address(address, &mut out);
            assert_eq!(String::from_utf8(std::mem::take(&mut out)).unwrap(), address.to_string());
        }
    }
}

#[test]
fn clusters_are_named_as_in_the_metrics() {
    let key = Key::new(Format::Text, "c");
    for id in [
        ir::ClusterId::service(ir::ObjectName::new("shop", "cart"), 8080, ir::Protocol::Http1),
        ir::ClusterId::host("10.1.2.3", 80),
        ir::ClusterId::host("2001:db8::1", 80),
    ] {
        let mut out = Vec::new();
        write_cluster(&mut Line::new(Format::Text, &mut out), &key, &id);
        assert_eq!(String::from_utf8(out).unwrap(), format!(" c={id}"));
    }
}
