use super::*;

fn filled(bytes: usize, count: u64) -> Vec<Vec<u8>> {
    let mut payload = Payload::new(bytes, 7);
    let message = |_| {
        let mut message = vec![0; bytes];
        payload.fill(&mut message);
        message
    };
    (0..count).map(message).collect()
}

#[test]
fn what_was_filled_passes() {
    for bytes in [0, 1, 8, 11, 12, 13, 16, 100, 4096, 70_000] {
        let mut receiver = Payload::new(bytes, 7);
        for message in filled(bytes, 200) {
            receiver.check(&message).unwrap();
        }
    }
}

#[test]
fn a_receiver_allocates_nothing_of_the_length() {
    let mut receiver = Payload::new(1 << 40, 7);
    for message in filled(70_000, 3) {
        receiver.check(&message).unwrap();
    }
    assert_eq!(receiver.noise.capacity(), 0);
}

#[test]
fn every_flipped_bit_is_found() {
    for bytes in [1, 8, 12, 16, 33] {
        let message = filled(bytes, 1).remove(0);
        for bit in 0..bytes * 8 {
            let mut bad = message.clone();
            bad[bit / 8] ^= 1 << (bit % 8);
            assert!(Payload::new(bytes, 7).check(&bad).is_err(), "{bytes} bytes, bit {bit}");
        }
    }
}

#[test]
fn a_message_is_found_among_others() {
    for bytes in [8, 16, 4096] {
        let mut messages = filled(bytes, 9);
        let mut receiver = Payload::new(bytes, 7);
        assert_eq!(receiver.identify(&messages[3], [5, 4, 3, 2]), Some(3), "{bytes} bytes");
        receiver.check(&messages[4]).unwrap();
        assert_eq!(receiver.identify(&messages[8], 0..8), None, "{bytes} bytes");
        messages[3][bytes - 1] ^= 1;
        assert_eq!(receiver.identify(&messages[3], 0..9), None, "{bytes} bytes");
    }
}

#[test]
fn lost_doubled_and_swapped_messages_are_found() {
    for bytes in [4, 16, 4096] {
        let messages = filled(bytes, 3);
        let fails = |order: &[usize]| {
            let mut receiver = Payload::new(bytes, 7);
            order.iter().any(|i| receiver.check(&messages[*i]).is_err())
        };
        assert!(!fails(&[0, 1, 2]));
        assert!(fails(&[0, 2]) && fails(&[0, 0]) && fails(&[1, 0]), "{bytes} bytes");
    }
}
