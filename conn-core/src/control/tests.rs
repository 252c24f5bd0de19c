use std::println;

use proptest::prelude::*;

use super::*;

#[test]
fn the_edges_decode_as_the_model_says() {
    let mut count = 0;
    for edge in [0u32, 1 << 16, 1 << 30, 1 << 31, u32::MAX] {
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
    fn a_credit_survives_the_wire(position: u64) {
        let sent = Control::Credit(CreditWire::of_position(position));
        prop_assert_eq!(Control::decode(sent.encode()), Ok(sent));
    }
}
