use std::vec::Vec;

use proptest::prelude::*;

use super::oracle::*;
use super::*;

/// As a client of rdma-core wrote it.
const TEXT: &[u8; MESSAGE_LEN] = b"0001:0000a7:fedcba:fe800000000000005054fffffe123456\0";

#[test]
fn a_message_of_the_program_is_understood() {
    let destination = Destination::decode(TEXT).unwrap();
    assert_eq!((destination.lid, destination.qp_num, destination.psn), (1, 0xa7, 0xfe_dcba));
    assert_eq!(u128::from_be_bytes(destination.gid), 0xfe80_0000_0000_0000_5054_ffff_fe12_3456);
    assert_eq!(destination.encode().unwrap(), *TEXT);
}

#[test]
fn every_byte_is_looked_at_as_soon_as_it_is_there() {
    for at in 0..MESSAGE_LEN {
        for byte in 0..=255 {
            let mut bytes = *TEXT;
            bytes[at] = byte;
            check_bytes(&bytes);
            let right = match TEXT[at] {
                b':' | 0 => byte == TEXT[at],
                _ => byte.is_ascii_hexdigit(),
            };
            let verdict = Destination::decode(&bytes[..=at]);
            assert_eq!(verdict == Err(DecodeError::NotAPeer { at }), !right, "{at}: {byte}");
        }
    }
}

#[test]
fn other_programs_are_told_apart_at_once() {
    assert_eq!(Destination::decode(b"RDMACONN"), Err(DecodeError::NotAPeer { at: 0 }));
    assert_eq!(Destination::decode(b"EHLO"), Err(DecodeError::NotAPeer { at: 1 }));
    assert_eq!(Destination::decode(b""), Err(DecodeError::Incomplete));
}

#[test]
fn numbers_that_the_message_has_no_room_for_are_refused() {
    let destination = Destination { lid: 0, qp_num: 1 << 24, psn: 0, gid: [0; 16] };
    assert_eq!(destination.encode(), Err(DecodeError::MoreThan24Bits { value: 1 << 24 }));
    check_numbers(u16::MAX, 0xff_ffff, 0xff_ffff, [0xff; 16]);
    check_numbers(0, 0, 1 << 24, [0; 16]);
}

proptest! {
    #[test]
    fn every_destination_goes_there_and_back(
        lid: u16, qp_num in 0..1u32 << 25, psn in 0..1u32 << 25, gid: [u8; 16],
    ) {
        check_numbers(lid, qp_num, psn, gid);
    }

    #[test]
    fn arbitrary_bytes_do_no_harm(bytes in proptest::collection::vec(any::<u8>(), 0..80), at in 0..MESSAGE_LEN) {
        check_bytes(&bytes);
        let mut cut: Vec<u8> = TEXT[..at].to_vec();
        cut.extend(&bytes);
        check_bytes(&cut);
    }
}
