mod metrics;

use super::*;

#[test]
fn limits_that_the_system_does_not_allow_are_told() {
    let limits = Limits::default();
    let told = misfits(&limits, Descriptors::of_limit(Some(1024)));
    let told = told.iter().find(|text| text.starts_with("limits.maxConnections: ")).unwrap();
    for text in ["16384", "1024", "896"] {
        assert!(told.contains(text), "{text} not in {told}");
    }
    for enough in [Some(1 << 20), None] {
        let told = misfits(&limits, Descriptors::of_limit(enough));
        assert!(!told.iter().any(|text| text.starts_with("limits.maxConnections: ")), "{told:?}");
    }
    let told = misfits(&Limits { accept_backlog: u32::MAX, ..limits }, Descriptors::of_limit(None));
    assert!(told.iter().any(|text| text.starts_with("limits.acceptBacklog: 4294967295 ")), "{told:?}");
}
