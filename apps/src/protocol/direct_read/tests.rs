use super::*;

const SIZE: usize = 4096;

fn ends(window: u32) -> (OfferingSender, ReadingReceiver) {
    let device = rdma_conn::device::soft().unwrap();
    let policies = direct_read::Config { window, ..direct_read::Config::default() };
    let (sender, receiver) = direct_read::pair(&device, &device, &policies).unwrap();
    let config = DirectReadSettings { policies, size: SIZE as u32 };
    (
        OfferingSender::new(sender, &device, &config),
        ReadingReceiver::new(receiver, &device, &config, 1),
    )
}

/// Sends a message of this byte; where its buffer is.
fn send(near: &mut OfferingSender, byte: u8) -> *const u8 {
    let mut at = std::ptr::null();
    near.send_with(SIZE, |room| {
        room.fill(byte);
        at = room.as_ptr();
    })
    .unwrap();
    at
}

/// Receives messages of these bytes.
fn receive(far: &mut ReadingReceiver, bytes: &[u8]) {
    let mut left = bytes.iter();
    while !left.as_slice().is_empty() {
        far.take(None, |_, message| {
            assert_eq!(message, [*left.next().unwrap(); SIZE]);
            Ok(())
        })
        .unwrap();
    }
}

#[test]
fn a_buffer_that_is_back_is_used_before_another_one_is_made() {
    let (mut near, mut far) = ends(8);
    let first = send(&mut near, 0);
    receive(&mut far, &[0]);
    near.wait_all().unwrap();
    for byte in 1..50 {
        assert_eq!(send(&mut near, byte), first);
        receive(&mut far, &[byte]);
        near.sender.wait_all().unwrap();
    }
    assert_eq!(near.buffers, 1);
}

#[test]
fn the_buffer_that_came_back_last_is_used_first() {
    let (mut near, mut far) = ends(3);
    let mut sent = [1, 2, 3].map(|byte| send(&mut near, byte));
    for round in 1..10 {
        let bytes = [1, 2, 3].map(|n| n + 3 * (round - 1));
        receive(&mut far, &bytes);
        near.sender.wait_all().unwrap();
        // None has been taken back; those that are on offer are returned in their order.
        let again = bytes.map(|byte| send(&mut near, byte + 3));
        sent.reverse();
        assert_eq!(again, sent);
    }
}
