mod chart;
mod reference;

use std::io::Write as _;

use super::*;

fn overrides(values: &[(&str, &str)]) -> Overrides {
    values.iter().map(|(f, v)| ((*f).to_owned(), ((*v).to_owned(), format!("--{f}")))).collect()
}

fn file(text: &str) -> tempfile::NamedTempFile {
    let mut file = tempfile::NamedTempFile::new().unwrap();
    file.write_all(text.as_bytes()).unwrap();
    file
}

#[test]
fn nothing_set_is_the_default() {
    let none = Overrides::new();
    assert_eq!(load(None, &none, &none).unwrap(), Settings::default());
    assert_eq!(load(Some(file("").path()), &none, &none).unwrap(), Settings::default());
    assert_eq!(load(Some(file("# nothing\n").path()), &none, &none).unwrap(), Settings::default());
}

#[test]
fn flags_win_over_variables_over_the_file() {
    let file = file("drain: {delay: 1s, timeout: 1s, maxDelay: 1s}\nworkers: 3\n");
    let variables = overrides(&[("drain.timeout", "2s"), ("drain.maxDelay", "2s")]);
    let flags = overrides(&[("drain.maxDelay", "3s"), ("listeners", "http=127.0.0.1:80,https=[::1]:443")]);
    let settings = load(Some(file.path()), &variables, &flags).unwrap();
    assert_eq!(settings.workers, 3);
    let seconds = [settings.drain.delay, settings.drain.timeout, settings.drain.max_delay].map(|d| d.get().as_secs());
    assert_eq!(seconds, [1, 2, 3]);
    let listeners: Vec<String> = settings.listeners.iter().map(|l| format!("{}={}", l.name, l.address)).collect();
    assert_eq!(listeners, ["http=127.0.0.1:80", "https=[::1]:443"]);
}

#[test]
fn every_setting_can_be_given_by_flag() {
    let names: Vec<String> = leaves().iter().map(Leaf::flag).collect();
    for expected in ["class-name", "drain-max-delay", "limits-max-header-bytes", "kubernetes-write-status"] {
        assert!(names.iter().any(|n| n == expected), "{expected} not in {names:?}");
    }
    assert!(leaves().iter().all(|l| !l.description.is_empty()));
    assert!(leaves().iter().any(|l| l.variable() == "LOCKGATE_DRAIN_MAX_DELAY"));
    let flags = overrides(&[
        ("limits.maxHeaderBytes", "16Ki"),
        ("limits.maxBodyBytes", "1Mi"),
        ("limits.maxInFlight", "500"),
        ("limits.maxConnectionAge", "1h"),
        ("limits.reject", "Oldest"),
        ("log.format", "json"),
        ("metrics.buckets", "0.1,0.5"),
        ("kubernetes.namespaces", "a,b"),
        ("kubernetes.writeStatus", "false"),
        ("trustedProxies", "10.0.0.0/8"),
        ("manifests", "/tmp/x"),
        ("className", "123"),
    ]);
    let settings = load(None, &Overrides::new(), &flags).unwrap();
    assert_eq!(settings.limits.max_header_bytes.get(), 16 << 10);
    assert_eq!((settings.limits.max_in_flight, settings.limits.reject), (Some(500), Reject::Oldest));
    assert_eq!(settings.limits.max_connection_age.map(|age| age.get().as_secs()), Some(3600));
    assert_eq!(settings.metrics.buckets, [0.1, 0.5]);
    assert_eq!(settings.kubernetes.namespaces, ["a", "b"]);
    assert!(!settings.kubernetes.write_status);
    assert_eq!(settings.class_name, "123");
}

#[test]
fn errors_name_the_setting_and_its_place() {
    let none = Overrides::new();
    let message = |flags: &[(&str, &str)]| load(None, &none, &overrides(flags)).unwrap_err().to_string();
    let error = message(&[("drain.delay", "soon")]);
    assert!(error.contains("drain.delay") && error.contains("--drain.delay") && error.contains("soon"), "{error}");
    let error = message(&[("listeners", "8080")]);
    assert!(error.contains("listeners") && error.contains("8080"), "{error}");
    let bad = file("drain: {dely: 5s}");
    let error = load(Some(bad.path()), &none, &none).unwrap_err().to_string();
    assert!(error.contains("dely") && error.contains(&bad.path().display().to_string()), "{error}");
    let broken = file("drain: [");
    assert!(load(Some(broken.path()), &none, &none).unwrap_err().to_string().contains("line"));
}

#[test]
fn the_drain_has_one_set_of_defaults() {
    let (ours, theirs) = (Drain::default(), crate::lifecycle::DrainSettings::default());
    assert_eq!(ours.delay.get(), theirs.delay);
    assert_eq!(ours.max_delay.get(), theirs.max_delay);
    assert_eq!(ours.timeout.get(), theirs.timeout);
    assert_eq!(ours.readiness_delay.get(), theirs.readiness_delay);
}

#[test]
fn a_listener_has_a_short_and_a_long_form() {
    let none = Overrides::new();
    let read =
        |text: &str| load(Some(file(text).path()), &none, &none).map(|mut settings| settings.listeners.remove(0));
    let plain = Listener::plain("a", any(80));
    let proxied = Listener { proxy_protocol: true, ..plain.clone() };
    assert_eq!(read("listeners: ['a=[::]:80']").unwrap(), plain);
    assert_eq!(read("listeners: [{name: a, address: '[::]:80'}]").unwrap(), plain);
    assert_eq!(read("listeners: ['a=[::]:80+proxy']").unwrap(), proxied);
    let long = "listeners: [{name: a, address: '[::]:80', proxyProtocol: true}]";
    assert_eq!(read(long).unwrap(), proxied);
    let ending = Listener { tls: true, ..proxied.clone() };
    assert_eq!(read("listeners: ['a=[::]:80+tls']").unwrap(), Listener::ending_tls("a", any(80)));
    assert_eq!(read("listeners: ['a=[::]:80+proxy+tls']").unwrap(), ending);
    assert_eq!(read("listeners: ['a=[::]:80+tls+proxy']").unwrap(), ending);
    let long = "listeners: [{name: a, address: '[::]:80', tls: true, proxyProtocol: true}]";
    assert_eq!(read(long).unwrap(), ending);
    let redirecting = |port| Listener { https_redirect: Some(port), ..plain.clone() };
    assert_eq!(read("listeners: ['a=[::]:80+redirect']").unwrap(), redirecting(443));
    assert_eq!(read("listeners: ['a=[::]:80+redirect:8443']").unwrap(), redirecting(8443));
    assert_eq!(read("listeners: [{name: a, address: '[::]:80', httpsRedirect: 8443}]").unwrap(), redirecting(8443));
    let quic = |port| Listener { http3: Some(port), ..Listener::ending_tls("a", any(80)) };
    assert_eq!(read("listeners: ['a=[::]:80+tls+h3']").unwrap(), quic(443));
    assert_eq!(read("listeners: ['a=[::]:80+h3:8443+tls']").unwrap(), quic(8443));
    assert_eq!(read("listeners: [{name: a, address: '[::]:80', tls: true, http3: 8443}]").unwrap(), quic(8443));
    let flags = overrides(&[("listeners", "a=[::]:80+proxy,b=[::]:81")]);
    assert_eq!(load(None, &none, &flags).unwrap().listeners[0], proxied);
    for wrong in [
        "'a=[::]:80+prox'",
        "'a=[::]:80+redirect:x'",
        "'a=[::]:80+tls:1'",
        "'a=[::]:80+tls+h3:'",
        "'a=[::]:80+tls+h3:http'",
        "{name: a, address: '[::]:80', proxyProtcol: true}",
        "{name: a}",
    ] {
        let error = read(&format!("listeners: [{wrong}]")).unwrap_err().to_string();
        assert!(error.contains("listeners[0]"), "{error}");
    }
}

#[test]
fn settings_that_cannot_work_are_named() {
    assert_eq!(Settings::default().problems(), [""; 0]);
    let mut settings = Settings { workers: 100_000, ..Settings::default() };
    settings.limits.max_connections = 0;
    settings.limits.accept_backlog = 0;
    settings.limits.max_requests_per_connection = Some(0);
    settings.limits.max_connection_age = Some("500ms".parse().unwrap());
    settings.limits.max_in_flight = Some(0);
    settings.admin.operator_address = "0.0.0.0:8082".parse().unwrap();
    settings.listeners.truncate(1);
    settings.listeners.push(settings.listeners[0].clone());
    settings.listeners[0].proxy_protocol = true;
    settings.listeners[1].tls = true;
    settings.listeners[1].https_redirect = Some(443);
    settings.tls.default_certificate.secret = Some("no-namespace".to_owned());
    settings.tls.default_certificate.key_file = Some("/key".into());
    settings.tls.cipher_suites = vec!["TLS_RSA_WITH_RC4_128_MD5".to_owned()];
    settings.limits.http2 = Http2 {
        max_concurrent_streams: 0,
        stream_window: ByteSize::new(1 << 31),
        connection_window: ByteSize::new(65_534),
        max_resets: 0,
        max_control_frames: 99,
    };
    let problems = settings.problems();
    for field in [
        "workers",
        "limits.maxConnections",
        "limits.acceptBacklog",
        "limits.maxRequestsPerConnection",
        "limits.maxConnectionAge",
        "limits.maxInFlight",
        "admin.operatorAddress",
        "listeners[1]",
        "listeners[1].httpsRedirect",
        "listeners[0].proxyProtocol",
        "tls.cipherSuites",
        "tls.defaultCertificate:",
        "tls.defaultCertificate.secret",
        "limits.http2.maxConcurrentStreams",
        "limits.http2.streamWindow",
        "limits.http2.connectionWindow",
        "limits.http2.maxResets",
        "limits.http2.maxControlFrames",
    ] {
        assert!(problems.iter().any(|problem| problem.starts_with(field)), "{field} not in {problems:?}");
    }
    settings.trusted_proxies.push("10.0.0.0/8".parse().unwrap());
    assert!(!settings.problems().iter().any(|problem| problem.contains("proxyProtocol")));
}

#[test]
fn what_http3_needs_is_named() {
    let mut settings = Settings::default();
    settings.listeners[1].http3 = Some(443);
    assert_eq!(settings.problems(), [""; 0]);
    settings.trusted_proxies.push("10.0.0.0/8".parse().unwrap());
    settings.tls.cipher_suites = vec!["TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256".to_owned()];
    settings.listeners[1].proxy_protocol = true;
    settings.listeners[0].http3 = Some(0);
    let problems = settings.problems();
    for (listener, reason) in [(0, "does not end"), (0, "0 is no port"), (1, "proxyProtocol"), (1, "TLS 1.3")] {
        let named = |problem: &String| {
            problem.starts_with(&format!("listeners[{listener}].http3: ")) && problem.contains(reason)
        };
        assert!(problems.iter().any(named), "{reason} not in {problems:?}");
    }
}

#[test]
fn cipher_suites_go_by_their_names_at_iana() {
    let flags = overrides(&[
        ("tls.minVersion", "TLSv1.3"),
        ("tls.cipherSuites", "TLS_AES_128_GCM_SHA256,TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256"),
        ("tls.sessionTickets", "false"),
        ("tls.defaultCertificate.secret", "infra/default"),
    ]);
    let settings = load(None, &Overrides::new(), &flags).unwrap();
    assert_eq!(settings.problems(), [""; 0]);
    assert_eq!(settings.tls.suites().unwrap().len(), 2);
    assert_eq!(settings.tls.default_certificate.secret(), Some(("infra", "default")));
    let only_old = Tls { cipher_suites: settings.tls.cipher_suites[1..].to_vec(), ..settings.tls };
    assert!(only_old.problems()[0].contains("TLS 1.3"));
    assert_eq!(Tls::default().suites().unwrap().len(), 9);
}
