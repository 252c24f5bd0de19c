use super::*;

/// In the guest, rxe has the port of devices over UDP: tests of such would fail there, late.
#[test]
fn a_program_with_devices_over_udp_is_not_on_rxe0() {
    let marks = ["soft_rnic::Roce", "wired::", "\"roce:"];
    let mut found = 0;
    for source in programs::all().unwrap() {
        let text = std::fs::read_to_string(&source.path).unwrap();
        if marks.iter().any(|mark| text.contains(mark)) {
            found += 1;
            let (path, reason) = (source.path.display(), RXE0.keeps_out(&source, false));
            assert!(reason.is_some(), "{path} has to say `Not on rxe0: …`");
        }
    }
    assert!(found > 5, "{found} found");
}
