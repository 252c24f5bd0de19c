//! A member looks at a peer's row while the peer's device writes it: the words of a group in
//! any order, one of them in two halves; the groups one after the other.
//!
//! Only on soft0: a model has no device.
#![cfg(rdma_conn_loom)]
#![forbid(unsafe_code)]

use conn_core::multicast::{
    Config, Member, Members, Policy, ROW_WORDS, Rank, Record, Row, Words, header,
};
use loom::sync::Arc;
use loom::sync::atomic::{AtomicU64, Ordering::*};
use loom::thread;

const PEER: Rank = Rank(1);
const FINISHED: u64 = 1;

fn word(_: Rank, at: u64) -> u64 {
    if at == 0 { header(Record::Message(8), 0) } else { 0 }
}

/// A member that has sent one message to the peer. (Boxed: the model's threads have small
/// stacks.)
fn member() -> Box<Member> {
    let config = Config {
        members: 2,
        rank: Rank(0),
        senders: Members::first(1),
        window: 1,
        max_message: 8,
        capacity: Config::capacity_for(1, 8),
        is_mirrored: false,
        policy: Policy::Opportunistic,
        deadline_ns: 1,
        health_ns: 1 << 40,
        suspect_ns: 1 << 41,
    };
    let mut member = Box::new(Member::new(config, 0).expect("a group"));
    member.on_tail(16, 0);
    while member.next_copy().is_some() {}
    while member.next_push(0, word).is_some() {}
    member
}

/// The peer has received the message, and then finished.
fn checksummed(health: u64) -> [u64; ROW_WORDS] {
    let mut row = Row { health, goodbye: FINISHED, ..Row::default() };
    row.received[0] = 1;
    let mut words = [0; ROW_WORDS];
    row.store(2, Words::whole(2), &mut words);
    words
}

#[test]
fn what_is_said_of_counters_is_taken_with_them_and_halves_never() {
    loom::model(|| {
        let [received, _, control] = Words::groups(2);
        let (health, goodbye) = (received.checksum() - 1, control.first + 2);
        let row: Arc<Vec<AtomicU64>> = Arc::new((0..12).map(|_| AtomicU64::new(0)).collect());
        let device = {
            let row = row.clone();
            thread::spawn(move || {
                let (words, last) = (checksummed(0x201), checksummed(0x402));
                // Release: a device writes the writes of a queue pair in their order.
                let write = |at: u8, word: u64| row[usize::from(at)].store(word, Release);
                write(health, 0x001);
                write(received.checksum(), words[usize::from(received.checksum())]);
                write(0, 1);
                write(health, 0x201);
                write(goodbye, FINISHED);
                write(control.checksum(), words[usize::from(control.checksum())]);
                // It shows once more that it lives.
                write(health, 0x401);
                write(received.checksum(), last[usize::from(received.checksum())]);
                write(health, 0x402);
            })
        };
        let mut member = member();
        let mut look = || {
            member.on_row(PEER, 0, |at| row[usize::from(at)].load(Acquire));
            assert_eq!(member.reason(PEER), None, "half of a row is no lie");
            let is_gone = !member.reachable().contains(PEER);
            // The row of a finished member is not read any more: what it said before is known.
            assert!(!is_gone || member.clone().next_delivery(word).is_some());
            is_gone
        };
        look();
        look();
        device.join().expect("the device");
        assert!(look(), "what is whole is taken");
    });
}
