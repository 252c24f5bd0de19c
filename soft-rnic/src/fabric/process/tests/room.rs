//! Rings that are full: a process that waits for room is woken.

use super::*;
use crate::objects::deferred_work::DeferredWork;
use crate::peers::process::ring::{EntryOp, REQUESTS, WANTS_REPLY, reply_at};

/// Slot of the made-up peer.
const ROOM: u32 = 20;

impl Wild {
    /// Asks for something that has a reply of its own.
    fn ask(&mut self) {
        let kinds = u32::from_le_bytes([0, WANTS_REPLY, 0, 0]);
        let parties = 0xff_ffff | u64::from(far(slot(ROOM))) << 32;
        let words = [u64::from(kinds) << 32, parties, 0, 0, 0, 0, 0, 0];
        self.rings.scribble_request(self.index, words);
        self.index += 1;
    }

    fn progress(&mut self) -> bool {
        let mut deferred = DeferredWork::default();
        let any = self.progress.run(&crate::objects::device::default_device(), &mut deferred);
        deferred.run();
        any
    }

    fn replies(&self) -> u32 {
        let is_there = |at: &u32| matches!(reply_at(&self.pair.outgoing, *at), Ok(Some(_)));
        (0..self.index).take_while(is_there).count() as u32
    }
}

fn new() -> Wild {
    Wild::at_slot(slot(ROOM), rustix::process::getpid())
}

#[test]
fn a_full_reply_ring_holds_requests_until_replies_are_read() {
    let mut wild = new();
    let wants = |wild: &Wild| wild.pair.outgoing.wants_reply_room.load(Ordering::Relaxed);
    // No reply is taken, and more requests arrive than a ring of replies is long.
    for _ in 0..24 {
        for _ in 0..100 {
            wild.ask();
        }
        while wild.progress() {}
    }
    let answered = wild.replies();
    assert!(answered < wild.index, "there is room for all of them");
    assert_eq!(wants(&wild), 1);
    wild.rings.replies_read.store(answered, Ordering::Relaxed);
    while wild.progress() {}
    assert_eq!(wants(&wild), 0);
    assert_eq!(wild.pair.outgoing.requests_read.load(Ordering::Relaxed), wild.index);
}

#[test]
fn taking_replies_wakes_the_process_that_waits_for_room() {
    for (wants, rings) in [(0, false), (1, true)] {
        let mut wild = new();
        wild.directory.armed.store(1, Ordering::Relaxed);
        wild.rings.wants_reply_room.store(wants, Ordering::Relaxed);
        wild.rings.scribble_reply(0, [0, 0xff_ffff, 0, 0]);
        assert!(wild.progress());
        let mut count = [0; 8];
        let rung = rustix::io::read(&wild.pair.doorbell, &mut count).is_ok();
        assert_eq!(rung, rings);
    }
}

/// It says that it has gone, and its ring is never empty: each request, when it is executed,
/// is there again.
#[test]
fn a_process_that_goes_and_writes_on_is_not_heard_for_ever() {
    let (done, heard) = std::sync::mpsc::channel();
    std::thread::spawn(move || {
        let (mut wild, qp) = (Wild::new(), connected(ibv_qp_type::IBV_QPT_UC));
        let (first, len) = (wild.rings.number_of(0), 64 * REQUESTS as usize);
        // SAFETY: the domain is alive, and so is the memory, which is accessed atomically.
        let key =
            unsafe { (*(crate::table().reg_mr)((*qp.as_abi()).pd, first.cast(), len, 0xf)).rkey };
        let kinds = u32::from_le_bytes([EntryOp::FetchAdd as u8, 0, 0, 0]);
        let parties = u64::from(qp.num) | u64::from(far(slot(0))) << 32;
        for at in 0..REQUESTS {
            let (own, next_lap) = (wild.rings.number_of(at) as u64, REQUESTS.into());
            let words = [u64::from(kinds) << 32, parties, 0, 8 << 32, own, next_lap, 0, key.into()];
            wild.rings.scribble_request(at, words);
        }
        let (pair, mut deferred) = (Arc::clone(&wild.pair), DeferredWork::default());
        wild.progress.run_out(&crate::objects::device::default_device(), &pair, &mut deferred);
        deferred.run();
        let _ = done.send(pair.outgoing.requests_read.load(Ordering::Relaxed));
    });
    let taken = heard.recv_timeout(Duration::from_secs(60)).expect("it is heard for ever");
    assert!(taken > 2 * REQUESTS, "{taken}: it writes on");
}
