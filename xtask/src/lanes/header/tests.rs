use super::*;

#[test]
fn a_header_says_which_lanes_the_program_fits() {
    let plain = TestHeader::parse("//! Sends.\nuse x;\n//! Not on moon: no header.").unwrap();
    assert!(LANES.iter().all(|l| plain.keeps_out(l.name, l.is_opt_in).is_some() == l.is_opt_in));
    let header =
        "//! Sends.\n//! Not on apart, rxe0: slow.\n//! Also on roce: a.\n//! Shows: death.";
    let header = TestHeader::parse(header).unwrap();
    assert_eq!(header.keeps_out("rxe0", false).as_deref(), Some("slow"));
    assert_eq!(header.keeps_out("wired", false), None);
    assert_eq!(header.keeps_out("roce", true), None);
    assert_eq!(header.shows.map(|subject| subject.name), Some("death"));
    let own = TestHeader::parse("//! Only on soft0: simulated.").unwrap();
    assert_eq!(own.keeps_out("soft0", false), None);
    assert_eq!(own.keeps_out("wired", false).as_deref(), Some("simulated"));
}

#[test]
fn a_header_that_no_lane_understands_is_refused() {
    for line in ["Not on moon: far.", "Only on soft0", "Shows: nothing.", "Alone on rxe: a"] {
        assert!(TestHeader::parse(&format!("//! {line}")).is_err(), "{line}");
    }
}
