//! Bounds: what one look takes, and what is kept of queue pairs that have ended.

use core::cell::Cell;

use super::super::departed::{KEPT, LONGEST_NS};
use super::super::progress::{DRAIN, DRAIN_NS, LookScope, ROUNDS, look_on, progress};
use super::*;
use crate::clock;
use crate::peers::wire::state::KeptReads;
use crate::udp::BATCH;

/// However many have arrived.
#[test]
fn a_look_takes_so_many_packets_and_leaves_the_rest() {
    const MOST: u64 = ROUNDS as u64 * BATCH as u64;
    let rig = Rig::on(without_thread("127.0.0.176"), "127.0.0.177");
    let wire = rig.device.wire().unwrap();
    let (to, packet) = (wire.port.local(), rig.packet(&rig.ack(0)));
    let mut left = 3 * MOST;
    (0..left).for_each(|_| assert_eq!(rig.peer.send_to(&packet, to).unwrap(), packet.len()));
    let received = || wire.packet_counters().received;
    while left > 0 {
        let before = received();
        let has_more = progress(&rig.device, wire, wire.rx.lock(), LookScope::Own);
        let took = received() - before;
        assert!((1..=MOST).contains(&took), "{took}");
        assert!(has_more || took == left, "{took} of {left}");
        left -= took;
    }
}

/// Packets may arrive as fast as they are taken.
#[test]
fn a_reset_takes_so_many_looks_and_so_much_time() {
    let looks = |each_ns: u64| {
        let (time, mut count) = (Cell::new(0), 0);
        look_on(
            || time.get(),
            || {
                time.set(time.get() + each_ns);
                count += 1;
                true
            },
        );
        count
    };
    assert_eq!(looks(0), DRAIN);
    assert_eq!(looks(DRAIN_NS / 4), 5, "the time has passed in the last one");
    assert_eq!(looks(2 * DRAIN_NS), 1);
}

#[test]
fn few_reads_are_kept_to_be_answered_again_and_short_ones_only() {
    const MOST: u64 = KeptReads::MOST as u64;
    const BYTES: usize = KeptReads::BYTES;
    let (mut kept, at) = (KeptReads::default(), |nth: u64| nth * BYTES as u64);
    (0..=MOST).for_each(|nth| kept.keep(1, at(nth), &[nth as u8; BYTES]));
    let found = |nth: u64| kept.find(1, at(nth), BYTES as u32);
    assert!((1..=MOST).all(|nth| found(nth) == Some(&[nth as u8; BYTES][..])));
    assert_eq!(found(0), None, "the oldest one");
    kept.keep(2, 0, &[0; BYTES + 1]);
    assert_eq!(kept.find(2, 0, 1), None);
}

fn destroy(rig: &Rig) {
    // SAFETY: the queue pair is alive, and not used any more.
    assert_eq!(unsafe { (crate::table().destroy_qp)(rig.object.as_abi()) }, 0);
}

/// True if a packet is answered that arrives for the queue pair when it has ended.
fn is_answered(rig: &Rig, headers: &Headers) -> bool {
    let strangers = || rig.device.wire().unwrap().packet_counters().strangers;
    let before = strangers();
    rig.take(headers);
    strangers() == before
}

#[test]
fn reads_of_a_queue_pair_that_has_ended_are_kept_up_to_a_length() {
    for (device, peer, len) in
        [("127.0.0.178", "127.0.0.179", KEPT), ("127.0.0.180", "127.0.0.181", KEPT + 1)]
    {
        let rig = Rig::new(device, peer);
        let read = rig.read(len);
        rig.take(&read);
        rig.answer();
        destroy(&rig);
        assert_eq!(is_answered(&rig, &read), len == KEPT, "{len}");
    }
}

#[test]
fn queue_pairs_that_have_ended_are_forgotten_after_a_while() {
    let rig = Rig::new("127.0.0.182", "127.0.0.183");
    rig.post_recv(1);
    rig.take(&rig.send(0));
    destroy(&rig);
    assert!(is_answered(&rig, &rig.send(0)));
    {
        let mut departed = rig.device.wire().unwrap().departed.lock();
        let last = departed.back_mut().unwrap();
        assert!(last.until_ns <= clock::now() + LONGEST_NS);
        last.until_ns = clock::now();
    }
    assert!(!is_answered(&rig, &rig.send(0)));
}
