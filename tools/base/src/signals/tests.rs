use super::*;

#[test]
fn what_is_ignored_is_known() {
    assert_eq!(ignored("Name:\tx\nSigIgn:\t0000000000001001\nSigCgt:\t01\n"), 0x1001);
    assert_eq!(ignored("Name:\tx\n"), 0);
    let own = std::fs::read_to_string("/proc/self/status").unwrap();
    // Rust's own, of writes to a reader that has gone.
    assert!(has(ignored(&own), signal_hook::consts::SIGPIPE));
}
