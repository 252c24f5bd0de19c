//! Completions that a device must not report: only a faulty one makes them.

use verbs_sys::{ibv_qp, ibv_recv_wr, ibv_wc, ibv_wc_flags, ibv_wc_opcode, ibv_wc_status};

use crate::PostRecvReason::NotHome;
use crate::queue::recv::RecvTarget;
use crate::{
    CompletionBatch, CqConfig, QueuePair, QueuePairConfig, RecvQueue, RecvRun, RecvSide, TakeError,
    Transport,
};

/// The receive queue of a datagram queue pair: 64 bytes a slot, two of four posted.
fn datagrams() -> RecvQueue<()> {
    let devices = crate::devices(soft_rnic::table()).unwrap();
    let context = devices[0].open().unwrap();
    let cq = context.create_cq(CqConfig::new(256)).unwrap();
    let transport = Transport::Ud { qkey: 1 };
    let recv = RecvSide::Own { slots: 4, slot_bytes: 64 };
    let config = QueuePairConfig { transport, recv, ..QueuePairConfig::new(&cq, &cq) };
    let qp: QueuePair = context.alloc_pd().unwrap().create_qp(&config, ()).unwrap();
    let mut recv = qp.recv.unwrap();
    recv.post(&[0, 1]).unwrap();
    recv
}

/// A batch with the completion of a receive into `slot`, of `byte_len` bytes.
fn received(recv: &RecvQueue<()>, slot: u32, byte_len: u32) -> CompletionBatch {
    let mut batch = CompletionBatch::new(1);
    let wr_id = recv.queue_id().wr_id(slot);
    batch.entries[0] =
        ibv_wc { wr_id, byte_len, opcode: ibv_wc_opcode::IBV_WC_RECV, ..ibv_wc::default() };
    batch.filled = 1;
    batch
}

#[test]
fn a_datagram_shorter_than_its_header_is_an_error() {
    let mut recv = datagrams();
    for (slot, byte_len) in [(0, 39), (1, 0)] {
        let mut batch = received(&recv, slot, byte_len);
        // Not plain, and nothing has changed: it can be shown again.
        let completion = recv.take_plain(batch.pop().unwrap()).unwrap_err();
        assert!(!recv.pool().is_home(slot));
        let error = recv.take(completion).unwrap_err();
        assert_eq!((error, error.slot()), (TakeError::Runt { slot, byte_len }, Some(slot)));
        assert!(recv.pool().is_home(slot));
    }
    recv.post(&[0, 1]).unwrap();
}

#[test]
fn a_datagram_is_never_longer_than_its_slot() {
    let mut recv = datagrams();
    let mut batch = received(&recv, 0, u32::MAX);
    assert_eq!(recv.take(batch.pop().unwrap()).unwrap().len(), 64);
    let mut batch = received(&recv, 1, 40 + 65);
    let message = recv.take_plain(batch.pop().unwrap()).ok().unwrap();
    assert_eq!((message.len(), message.grh()), (64, None));
}

#[test]
fn a_datagram_of_nothing_but_its_header_is_empty() {
    let mut recv = datagrams();
    let mut batch = received(&recv, 0, 40);
    assert!(recv.take_plain(batch.pop().unwrap()).ok().unwrap().is_empty());
    let mut batch = received(&recv, 1, 40);
    assert!(recv.take(batch.pop().unwrap()).unwrap().is_empty());
}

#[test]
fn a_slot_that_was_not_posted_gives_no_message() {
    let mut recv = datagrams();
    for slot in [2, 3] {
        let mut batch = received(&recv, slot, 50);
        let completion = recv.take_plain(batch.pop().unwrap()).unwrap_err();
        assert_eq!(recv.take(completion).unwrap_err(), TakeError::NotPosted { slot });
    }
    let mut batch = received(&recv, 4, 50);
    assert!(matches!(recv.take(batch.pop().unwrap()), Err(TakeError::Foreign(_))));
}

/// A batch with the completions of plain messages into `slots`.
fn messages(recv: &RecvQueue<()>, slots: &[u32]) -> CompletionBatch {
    let mut batch = CompletionBatch::new(slots.len());
    for (entry, slot) in batch.entries.iter_mut().zip(slots) {
        let wr_id = recv.queue_id().wr_id(*slot);
        *entry = ibv_wc {
            wr_id,
            byte_len: 40 + slot,
            opcode: ibv_wc_opcode::IBV_WC_RECV,
            ..ibv_wc::default()
        };
    }
    batch.filled = slots.len();
    batch
}

#[test]
fn a_run_has_the_messages_in_order_and_leaves_the_rest() {
    let mut recv = datagrams();
    recv.post(&[2, 3]).unwrap();
    let (mut batch, mut run) = (messages(&recv, &[3, 1, 0, 2]), RecvRun::new(8));
    assert_eq!(recv.take_run(&mut batch, 3, &mut run), 3);
    assert_eq!((batch.len(), run.len(), run.bytes()), (1, 3, 4));
    assert!(run.slots().eq([3, 1, 0]));
    let message = run.next().unwrap();
    assert_eq!((message.slot(), message.len()), (3, 3));
    assert_eq!((run.bytes(), run.taken_bytes()), (1, 4));
    assert!(recv.put_back(message));
    // The next run drops the messages that were not handed out, which returns their slots.
    assert_eq!(recv.take_run(&mut batch, 0, &mut run), 0);
    assert!(run.next().is_none() && recv.pool().is_home(1) && recv.pool().is_home(0));
    assert_eq!(recv.take_run(&mut batch, 3, &mut run), 1);
    drop(run);
    assert!(recv.pool().is_home(2));
    assert_eq!(recv.take_run(&mut batch, 3, &mut RecvRun::new(1)), 0, "nothing is left");
}

#[test]
fn a_run_is_no_longer_than_its_room() {
    let mut recv = datagrams();
    let (mut batch, mut run) = (messages(&recv, &[0, 1]), RecvRun::new(1));
    assert_eq!(recv.take_run(&mut batch, u32::MAX, &mut run), 1);
    assert_eq!((batch.len(), run.len()), (1, 1));
}

#[test]
fn a_run_ends_before_a_completion_that_is_no_plain_message() {
    type Change = fn(&mut ibv_wc);
    let changes: [Change; 6] = [
        |wc| wc.status = ibv_wc_status::IBV_WC_WR_FLUSH_ERR,
        |wc| wc.wc_flags = ibv_wc_flags::IBV_WC_WITH_IMM.0,
        |wc| wc.opcode = ibv_wc_opcode::IBV_WC_RECV_RDMA_WITH_IMM,
        |wc| wc.byte_len = 39,
        |wc| wc.qp_num += 1,
        |wc| wc.wr_id += 1 << 32,
    ];
    for change in changes {
        let mut recv = datagrams();
        let (mut batch, mut run) = (messages(&recv, &[0, 1]), RecvRun::new(8));
        change(&mut batch.entries[1]);
        assert_eq!(recv.take_run(&mut batch, 8, &mut run), 1);
        assert_eq!((batch.len(), run.len()), (1, 1));
        assert!(matches!(recv.post(&[1]), Err(e) if e.reason == NotHome { slot: 1 }));
    }
}

#[test]
fn of_a_receive_that_completes_twice_there_is_one_message() {
    let mut recv = datagrams();
    let (mut batch, mut run) = (messages(&recv, &[0, 0, 7]), RecvRun::new(8));
    assert_eq!(recv.take_run(&mut batch, 8, &mut run), 1);
    // Nor while it is gathered, to be posted again.
    assert!(recv.put_back(run.next().unwrap()));
    assert_eq!(recv.take_run(&mut batch, 8, &mut run), 0);
    let completion = recv.take_plain(batch.pop().unwrap()).unwrap_err();
    assert_eq!(recv.take(completion).unwrap_err(), TakeError::NotPosted { slot: 0 });
    assert_eq!(recv.take_run(&mut batch, 8, &mut run), 0, "there is no such slot");
}

#[test]
fn messages_of_a_forgotten_run_are_never_home() {
    let mut recv = datagrams();
    let (mut batch, mut run) = (messages(&recv, &[0, 1]), RecvRun::new(8));
    recv.take_run(&mut batch, 8, &mut run);
    std::mem::forget(run);
    assert!(!recv.pool().is_home(0) && !recv.pool().is_home(1));
    let (mut batch, mut run) = (messages(&recv, &[0, 1]), RecvRun::new(8));
    assert_eq!(recv.take_run(&mut batch, 8, &mut run), 0);
}

#[test]
fn a_run_may_outlive_its_queue_and_go_to_another_thread() {
    let mut recv = datagrams();
    let (mut batch, mut run) = (messages(&recv, &[1, 0]), RecvRun::new(8));
    recv.take_run(&mut batch, 8, &mut run);
    let pool = recv.pool().clone();
    drop(recv);
    std::thread::spawn(move || {
        assert_eq!(run.next().unwrap().len(), 1);
        assert!(!pool.is_home(0));
        drop(run);
        assert!(pool.is_home(0));
    })
    .join()
    .unwrap();
}

#[test]
fn what_is_gathered_is_posted_in_order_and_by_nothing_else() {
    let mut recv = datagrams();
    assert!(recv.gather(3) && recv.gather(2));
    assert!(!recv.gather(3) && !recv.gather(0) && !recv.gather(4), "gathered, posted, missing");
    assert_eq!(recv.gathered(), 2);
    assert_eq!(recv.post(&[3]).unwrap_err().reason, NotHome { slot: 3 });
    assert_eq!(recv.post_gathered(), Ok(2));
    assert_eq!((recv.gathered(), recv.post_gathered()), (0, Ok(0)));
    let (mut batch, mut run) = (messages(&recv, &[2, 3]), RecvRun::new(8));
    assert_eq!(recv.take_run(&mut batch, 8, &mut run), 2);
}

#[test]
fn a_shared_or_foreign_message_is_not_gathered() {
    let mut recv = datagrams();
    let (mut batch, mut run) = (messages(&recv, &[0, 1]), RecvRun::new(8));
    recv.take_run(&mut batch, 8, &mut run);
    let message = run.next().unwrap();
    let piece = message.clone();
    assert!(!recv.put_back(message));
    assert_eq!(recv.gathered(), 0);
    assert!(recv.put_back(piece));
    assert!(!datagrams().put_back(run.next().unwrap()));
    assert!(recv.pool().is_home(1) && !recv.pool().is_home(0));
}

/// Takes two requests of a list, says the device, and no third one.
extern "C" fn takes_two(
    _qp: *mut ibv_qp,
    list: *mut ibv_recv_wr,
    bad: *mut *mut ibv_recv_wr,
) -> std::ffi::c_int {
    // SAFETY: the list has three requests or more.
    unsafe { *bad = (*(*list).next).next };
    libc::ENOMEM
}

#[test]
fn what_the_device_refuses_stays_gathered() {
    let mut recv = datagrams();
    let (mut batch, mut run) = (messages(&recv, &[0, 1]), RecvRun::new(8));
    recv.take_run(&mut batch, 8, &mut run);
    while let Some(message) = run.next() {
        recv.put_back(message);
    }
    assert!(recv.gather(2) && recv.gather(3));
    let RecvTarget::Qp(qp) = &recv.target else { panic!("of a queue pair") };
    // SAFETY: no other code uses the context.
    let post_recv =
        unsafe { (*(*qp.raw()).context).ops.post_recv.replace(takes_two) }.expect("there is one");
    let error = recv.post_gathered().unwrap_err();
    assert_eq!((error.posted, recv.gathered()), (2, 2));
    // The first two are the device's now, the others are not.
    let (mut batch, mut run) = (messages(&recv, &[0, 1, 2]), RecvRun::new(8));
    assert_eq!(recv.take_run(&mut batch, 8, &mut run), 2);
    let RecvTarget::Qp(qp) = &recv.target else { panic!("of a queue pair") };
    // SAFETY: no other code uses the context.
    unsafe { (*(*qp.raw()).context).ops.post_recv = Some(post_recv) };
    assert_eq!(recv.post_gathered(), Ok(2));
}
