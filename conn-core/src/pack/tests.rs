use std::{println, vec, vec::Vec};

use proptest::prelude::*;

use super::oracle::*;
use super::*;
use crate::exhaustive::{CheckedMachine, every_history};

#[test]
fn every_short_history_agrees_with_the_model() {
    let alphabet: Vec<PackerOp> = (0..=9)
        .flat_map(|n| [PackerOp::Push(n), PackerOp::Reserve(n)])
        .chain([PackerOp::Reset])
        .collect();
    let mut histories = 0;
    for capacity in 0..=28 {
        histories += every_history(&CheckedPacker::new(capacity), &alphabet, 3);
    }
    println!("pack: {histories} histories");
    assert!(histories > 250_000);
}

/// Every message of up to 9 bytes out of an alphabet of lengths that are right, wrong
/// and huge.
#[test]
fn every_short_message_unpacks_as_the_model_says() {
    const BYTES: [u8; 4] = [0, 1, 5, 255];
    let mut messages = 0u64;
    for len in 0..=9u32 {
        for n in 0..4u32.pow(len) {
            let message: Vec<u8> = (0..len).map(|i| BYTES[(n >> (2 * i) & 3) as usize]).collect();
            let _ = check_unpack(&message);
            messages += 1;
        }
    }
    println!("pack: {messages} messages");
}

#[test]
fn a_record_that_lies_is_not_followed() {
    let mut message = [0; 12];
    message[0] = 9;
    let lie = UnpackError::TooLong { claimed: 9, left: 8 };
    assert_eq!(check_unpack(&message), Err(lie));
    message[..4].fill(0xff);
    let lie = UnpackError::TooLong { claimed: u32::MAX, left: 8 };
    assert_eq!(check_unpack(&message), Err(lie));
    assert_eq!(check_unpack(&message[..3]), Err(UnpackError::Truncated { offset: 0 }));
}

#[test]
fn a_buffer_that_is_too_short_is_an_error_and_not_a_panic() {
    assert_eq!(Unpacker::new(8).next(&[0; 7]), Err(UnpackError::BufferTooShort));
    let (mut packer, mut buf) = (Packer::new(64), vec![0; 64]);
    packer.push(&mut buf, &[1; 30]).unwrap();
    assert_eq!(packer.push(&mut buf[..39], b""), Err(PackFull { largest: None }));
    assert_eq!(packer.push(&mut buf[..20], b""), Err(PackFull { largest: None }));
    assert_eq!(packer.push(&mut buf[..40], b""), Ok(()));
}

fn op() -> impl Strategy<Value = PackerOp> {
    prop_oneof![
        4 => (0..60u8).prop_map(PackerOp::Push),
        4 => (0..60u8).prop_map(PackerOp::Reserve),
        1 => Just(PackerOp::Reset),
    ]
}

proptest! {
    #[test]
    fn long_histories_agree_with_the_model(
        capacity in 0..500u32, ops in proptest::collection::vec(op(), 0..60),
    ) {
        let mut pair = CheckedPacker::new(capacity);
        ops.into_iter().for_each(|op| pair.apply(op));
    }

    #[test]
    fn arbitrary_bytes_unpack_as_the_model_says(
        words in proptest::collection::vec(prop_oneof![0..40u32, any::<u32>()], 0..30),
        cut in 0..4usize,
    ) {
        let bytes: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
        let _ = check_unpack(&bytes[..bytes.len().saturating_sub(cut)]);
    }
}
