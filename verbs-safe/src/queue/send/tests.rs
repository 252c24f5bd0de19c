//! Tests that need a look inside: counts that run over 32 bits.

use std::sync::atomic::Ordering;

use super::*;
use crate::queue::send::epochs::EPOCH;
use crate::{CompletionBatch, CompletionQueue, ConnectAttr, CqConfig, QueuePair, QueuePairConfig};

/// A queue pair connected to itself, which has posted and retired `count` requests.
fn after(count: u64) -> (QueuePair, CompletionQueue) {
    let devices = crate::devices(soft_rnic::table()).unwrap();
    let context = devices[0].open().unwrap();
    let gid = context.choose_gid(1, None).unwrap();
    let cq = context.create_cq(CqConfig::new(64)).unwrap();
    let recv = crate::RecvSide::Own { slots: 16, slot_bytes: 8 };
    let config =
        QueuePairConfig { recv, max_send_wr: 16, send_slots: 11, ..QueuePairConfig::new(&cq, &cq) };
    let mut qp = context.alloc_pd().unwrap().create_qp(&config, ()).unwrap();
    let end = qp.control.endpoint(1, gid, 1).unwrap();
    qp.control.connect(&end, &ConnectAttr::new(gid.index as u8, 1)).unwrap();
    let slots: Vec<u32> = (0..16).collect();
    qp.recv.as_mut().unwrap().post(&slots).unwrap();
    qp.send.jump_to(count);
    (qp, cq)
}

impl SendQueue {
    /// As if `count` requests had been posted and retired.
    fn jump_to(&mut self, count: u64) {
        (self.staged, self.posted, self.retired) = (count, count, count);
        self.next = self.places.at(self.place(count + 1));
        while self.epochs.next <= count {
            self.epochs.turn(&self.qp.uses.send_cq.cq().epoch);
        }
    }
}

impl SendQueue {
    /// As if all staged requests had been posted, and `count` more of them retired.
    fn retire_by_hand(&mut self, count: usize) {
        self.posted = self.staged;
        self.retired += count as u64;
        if count > 0 {
            // SAFETY: the place is inside.
            self.slots_retired = unsafe { (*self.places.at(self.place(self.retired))).slots_after };
        }
    }
}

/// One signalled request; its completion is in the returned batch.
fn complete_one(qp: &mut QueuePair, cq: &CompletionQueue) -> CompletionBatch {
    qp.send.stage(SendOp::SendImm { len: 0, imm: 0 }, true).unwrap();
    qp.send.post().unwrap();
    let mut batch = CompletionBatch::new(1);
    loop {
        cq.poll(&mut batch).unwrap();
        let sends = batch.entries[0].wr_id >> 32 == u64::from(qp.send.queue_id().get());
        if sends && !batch.is_empty() {
            return batch;
        }
    }
}

#[test]
fn counts_run_over_32_bits_without_a_seam() {
    for start in [u64::from(u32::MAX) - 2, EPOCH - 2, 5 * EPOCH - 1] {
        let (mut qp, cq) = after(start);
        for n in 1..=5 {
            let mut batch = complete_one(&mut qp, &cq);
            let completion = batch.drain().next().unwrap();
            assert_eq!(qp.send.retire(&completion), Ok(start + n));
        }
    }
}

#[test]
fn a_completion_2_to_the_32_requests_old_retires_nothing() {
    let (mut qp, cq) = after(0);
    let mut kept = complete_one(&mut qp, &cq);
    let kept = kept.drain().next().unwrap();
    assert_eq!(qp.send.retire(&kept), Ok(1));
    qp.send.jump_to(1 << 32);
    // Its low bits mean request 2^32 + 1 now, which is in flight.
    qp.send.stage(SendOp::Send { len: 8 }, true).unwrap();
    qp.send.post().unwrap();
    assert!(qp.send.retire(&kept).is_err());
    assert_eq!(qp.send.retired_total(), 1 << 32);
}

#[test]
fn a_completion_of_the_last_epoch_is_good() {
    let (mut qp, cq) = after(EPOCH - 1);
    let mut batch = complete_one(&mut qp, &cq);
    let completion = batch.drain().next().unwrap();
    // The next one begins an epoch, before this one is retired.
    qp.send.stage(SendOp::SendImm { len: 0, imm: 0 }, false).unwrap();
    qp.send.post().unwrap();
    assert_eq!(qp.send.retire(&completion), Ok(EPOCH));
}

#[test]
fn another_queues_epochs_do_not_make_completions_old() {
    let (mut qp, cq) = after(0);
    let mut batch = complete_one(&mut qp, &cq);
    for _ in 0..10 {
        cq.inner.epoch.fetch_add(1, Ordering::AcqRel);
    }
    assert_eq!(qp.send.retire(&batch.drain().next().unwrap()), Ok(1));
}

#[test]
fn a_device_that_names_no_bad_request_may_have_taken_all() {
    let (mut qp, _cq) = after(0);
    for _ in 0..4 {
        qp.send.stage(SendOp::Send { len: 0 }, false).unwrap();
    }
    // SAFETY: the place is inside.
    let third = unsafe { &raw mut (*qp.send.places.at(qp.send.place(3))).work };
    let error = qp.send.refused(third, Errno::ENOMEM);
    assert_eq!((error.posted, error.retry, qp.send.staged()), (2, true, 2));
    let error = qp.send.refused(null_mut(), Errno::EINVAL);
    assert_eq!((error.posted, error.retry, qp.send.staged()), (2, false, 0));
}

/// A run gives the same answers for many requests as asking for each.
#[test]
fn a_send_needs_a_free_place_and_a_free_slot() {
    let (mut qp, _cq) = after(0);
    let (depth, slots) = (u64::from(qp.send.depth()), u64::from(qp.send.slots()));
    assert!(slots < depth, "both limits are to be met");
    let (mut slots_in_flight, mut random) = (std::collections::VecDeque::new(), 1u32);
    let mut refused = [0; 2];
    for _ in 0..4000 {
        random = random.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        let len = (random >> 16) % 3; // 0 takes no slot
        let outstanding = slots_in_flight.len() as u64;
        let lent: u64 = slots_in_flight.iter().sum();
        let expected = match () {
            () if outstanding == depth => Err(StageError::QueueFull),
            () if len > 0 && lent == slots => Err(StageError::NoSlot),
            () => Ok(()),
        };
        let staged = match random >> 28 {
            0..4 => qp.send.stage(SendOp::Send { len }, true),
            4..7 => {
                let most = (random >> 18) % 5;
                let granted = qp.send.open_run(most, 2);
                let room = (depth - outstanding).min(slots - lent);
                assert_eq!(u64::from(granted), room.min(most.into()));
                continue;
            }
            // Where there is room, the run may have ended all the same.
            _ => match qp.send.stage_next(len as usize, |_| ()) {
                Ok(staged) => {
                    assert_eq!(staged.count, qp.send.staged_total());
                    Ok(())
                }
                Err(_) => qp.send.stage(SendOp::Send { len }, true),
            },
        };
        assert_eq!(staged, expected);
        match staged {
            Ok(()) => slots_in_flight.push_back(u64::from(len > 0)),
            Err(e) => {
                refused[usize::from(e == StageError::NoSlot)] += 1;
                let count = (random >> 20) as usize % 9;
                qp.send
                    .retire_by_hand(slots_in_flight.drain(..count.min(outstanding as usize)).len());
            }
        }
    }
    assert!(refused.iter().all(|times| *times > 20), "{refused:?}");
}

#[test]
fn a_run_ends_at_its_limits_and_takes_no_empty_messages() {
    let (mut qp, _cq) = after(0);
    assert!(qp.send.stage_next(1, |_| panic!("there is no run")).is_err());
    assert_eq!(qp.send.open_run(3, usize::MAX), 3);
    assert!(qp.send.stage_next(1 << 20, |_| panic!("longer than a slot")).is_err());
    assert_eq!(qp.send.open_run(3, 4), 3);
    assert!(qp.send.stage_next(5, |_| panic!("longer than was said")).is_err());
    assert!(qp.send.stage_next(0, |_| panic!("empty")).is_err());
    let staged = qp.send.stage_next(4, |slot| assert_eq!(slot.len(), 4)).ok();
    assert_eq!(staged, Some(InRun { count: 1, is_last: false }));
    // Requests staged outside of the run count, too.
    qp.send.stage(SendOp::Send { len: 0 }, false).unwrap();
    let staged = qp.send.stage_next(4, |_| ()).ok();
    assert_eq!(staged, Some(InRun { count: 3, is_last: true }));
    assert!(qp.send.stage_next(4, |_| panic!("the run is over")).is_err());
    qp.send.open_run(3, 4);
    qp.send.close_run();
    assert!(qp.send.stage_next(4, |_| panic!("the run was closed")).is_err());
    assert_eq!(qp.send.staged(), 3);
}

#[test]
fn the_last_of_a_run_is_signalled_if_it_is_not_posted_yet() {
    let (mut qp, cq) = after(0);
    assert!(!qp.send.signal_last(), "there is none");
    qp.send.open_run(2, 8);
    while qp.send.stage_next(8, |slot| slot.fill(7)).is_ok() {}
    assert!(qp.send.signal_last());
    qp.send.post().unwrap();
    assert!(!qp.send.signal_last(), "it is posted");
    let mut batch = CompletionBatch::new(8);
    cq.poll(&mut batch).unwrap();
    let sends: Vec<u64> = batch
        .drain()
        .filter(|completion| completion.queue_id() == qp.send.queue_id())
        .map(|completion| u64::from(completion.low()))
        .collect();
    assert_eq!(sends, [2], "one completion, that of the last");
}

#[test]
fn a_message_whose_filling_panics_is_not_staged() {
    let (mut qp, _cq) = after(0);
    qp.send.open_run(2, 8);
    let panicked = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
        qp.send.stage_next(8, |_| panic!("nothing to say")).is_ok()
    }));
    assert!(panicked.is_err());
    let staged = qp.send.stage_next(8, |_| ()).ok();
    assert_eq!(staged, Some(InRun { count: 1, is_last: false }));
}
