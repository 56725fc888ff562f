//! Manifests: any text is read, validated, translated, compiled and searched for shadows without a panic, and every
//! finding tells what is wrong and where.
#![no_main]

use libfuzzer_sys::fuzz_target;
use lockgate::check::{Settings, check};
use lockgate::source::file::{Input, read};
use lockgate::source::translate::HostBackends;

fuzz_target!(|text: String| {
    let settings = Settings { listeners: None, complete: false, host_backends: HostBackends::Anywhere, now: None };
    let report = check(&read(&[Input::Text(text)]), &settings);
    for finding in &report.findings {
        assert!(!finding.reason.is_empty(), "{finding:?}");
        assert!(finding.object.is_none() || finding.line.is_some(), "{finding:?}");
    }
});
