use std::println;

use proptest::prelude::*;

use super::*;

#[test]
fn the_edges_decode_as_the_model_says() {
    let mut count = 0;
    for edge in [0u32, 1 << 16, 1 << 30, 1 << 31, 9 << 28, 10 << 28, 11 << 28, 12 << 28, u32::MAX] {
        for near in 0..=70_000 {
            oracle::check(edge.wrapping_add(near));
            oracle::check(edge.wrapping_sub(near));
            count += 2;
        }
    }
    println!("control: {count} immediates");
}

proptest! {
    #[test]
    fn every_immediate_decodes_as_the_model_says(immediate: u32) {
        oracle::check(immediate);
    }

    #[test]
    fn a_stop_tells_how_many_messages_are_missing(taken: u64, missing in 0u32..1 << 30) {
        let stop = Control::Stop(Taken::of_count(taken));
        prop_assert_eq!(Control::decode(stop.encode()), Ok(stop));
        let sent = taken.wrapping_add(missing.into());
        prop_assert_eq!(Taken::of_count(taken).missing_of(sent), missing);
    }

    #[test]
    fn a_credit_survives_the_wire(position: u64) {
        let sent = Control::Credit(CreditWire::of_position(position));
        prop_assert_eq!(Control::decode(sent.encode()), Ok(sent));
    }
}
