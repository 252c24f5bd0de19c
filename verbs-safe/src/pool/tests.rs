//! What a device must not report: completions that only a faulty one makes.

use verbs_sys::{ibv_wc, ibv_wc_opcode};

use crate::{
    CompletionBatch, CqConfig, QueuePair, QueuePairConfig, RecvQueue, RecvSide, TakeError,
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
fn a_datagram_that_is_shorter_than_its_header_is_an_error_and_its_slot_goes_home() {
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
