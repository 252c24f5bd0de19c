use super::*;

#[test]
fn the_gate_has_each_subject_on_soft0_and_hostile_peers_apart() {
    for subject in lane::SUBJECTS {
        let known = |name: &&str| LANES.iter().any(|lane| lane.name == *name && !lane.is_opt_in);
        assert!(subject.gate.contains(&"soft0") && subject.gate.iter().all(known), "{subject:?}");
    }
    let all = programs::all().unwrap();
    let lane = |name: &str| LANES.iter().find(|lane| lane.name == name).unwrap();
    let hostile = all.iter().find(|source| source.target == "hostile").unwrap();
    assert_eq!(lane("apart").keeps_out(hostile, true), None);
    let left = lane("distant").keeps_out(hostile, true).unwrap();
    assert!(left.contains("it shows hostile peers: the same code"), "{left}");
    assert_eq!(lane("distant").keeps_out(hostile, false), None);
}

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
