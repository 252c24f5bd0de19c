use super::*;

#[test]
fn attributes_that_the_device_would_cut_off_are_refused() {
    let good = ConnectAttr::new(0, 5);
    assert_eq!(good.complaint(), None);
    assert!(ConnectAttr { retry_cnt: 100, ..good }.complaint().is_some());
    assert!(ConnectAttr { rnr_retry: 8, ..good }.complaint().is_some());
    assert!(ConnectAttr { min_rnr_timer: 32, ..good }.complaint().is_some());
    assert!(ConnectAttr { timeout: 32, ..good }.complaint().is_some());
    assert!(ConnectAttr { local_psn: 1 << 24, ..good }.complaint().is_some());
}
