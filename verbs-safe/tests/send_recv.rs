//! SEND and receive: what arrives is what was sent, slots are taken and returned as they should.
//!
//! Only on soft0, rxe0: it takes devices of soft-rnic by no other name.

mod common;

use std::sync::{Arc, Mutex};

use common::*;
use verbs_safe::*;

#[test]
fn ping_pong_in_both_directions_and_all_sizes() {
    let shape = PairConfig { max_inline: 64, ..PairConfig::default() };
    let (mut a, mut b) = pair(shape);
    for round in 0..200usize {
        let message: Vec<u8> = (0..round % 257).map(|i| (i ^ round) as u8).collect();
        a.send(&message);
        let ping = b.receive();
        assert_eq!(&*ping, &message[..]);
        b.send(&ping);
        let slot = b.recv.reclaim(ping).expect("the only piece");
        b.recv.post(&[slot]).unwrap();
        a.sent();
        b.sent();
        let pong = a.receive();
        assert_eq!(&*pong, &message[..]);
        let slot = a.recv.reclaim(pong).unwrap();
        a.recv.post(&[slot]).unwrap();
    }
    assert_eq!((a.send.posted_total(), a.send.retired_total()), (200, 200));
}

#[test]
fn an_immediate_arrives_in_host_order_with_and_without_bytes() {
    let (mut a, mut b) = pair(PairConfig::default());
    a.send.next_slot().unwrap()[..2].copy_from_slice(b"hi");
    a.send.stage(SendOp::SendImm { len: 2, imm: 0x0102_0304 }, false).unwrap();
    a.send.stage(SendOp::SendImm { len: 0, imm: 0x8000_0001 }, true).unwrap();
    assert_eq!(a.send.staged(), 2);
    assert_eq!(a.send.post(), Ok(2));
    let mut seen = Vec::new();
    b.recvs(2, |recv, completion| {
        let imm = completion.imm();
        seen.push((imm, recv.take(completion).unwrap().to_vec()));
    });
    assert_eq!(seen[0], (Some(0x0102_0304), b"hi".to_vec()));
    assert_eq!(seen[1], (Some(0x8000_0001), Vec::new()));
    a.sent();
    assert_eq!(a.send.retired_total(), 2, "the signalled one retires both");
}

#[test]
fn what_does_not_fit_is_refused_and_changes_nothing() {
    let (mut a, _b) = pair(PairConfig { sends: 4, send_slots: 2, ..PairConfig::default() });
    let too_long = StageError::TooLong { len: 257, slot_bytes: 256 };
    assert_eq!(a.send.stage(SendOp::Send { len: 257 }, true), Err(too_long));
    assert_eq!(a.send.staged(), 0);
    a.send.stage(SendOp::Send { len: 1 }, true).unwrap();
    a.send.stage(SendOp::Send { len: 1 }, true).unwrap();
    assert!(a.send.next_slot().is_none());
    assert_eq!(a.send.stage(SendOp::Send { len: 1 }, true), Err(StageError::NoSlot));
    a.send.stage(SendOp::Send { len: 0 }, true).unwrap(); // uses no slot
    a.send.stage(SendOp::Send { len: 0 }, true).unwrap();
    assert_eq!(a.send.stage(SendOp::Send { len: 0 }, true), Err(StageError::QueueFull));
    assert_eq!(a.send.post(), Ok(4));
    assert_eq!(a.send.stage(SendOp::Send { len: 0 }, true), Err(StageError::QueueFull));
    a.sends(4, |send, completion| assert!(send.retire(&completion).is_ok()));
    assert!(a.send.next_slot().is_some());
    let remote = RemoteSpan { addr: 0, rkey: 0, len: 4 };
    let short = StageError::RemoteTooShort { len: 5, remote_len: 4 };
    assert_eq!(a.send.stage(SendOp::Write { len: 5, remote }, true), Err(short));
}

#[test]
fn slots_are_filled_staged_and_freed_in_order_over_many_laps() {
    let (mut a, mut b) = pair(PairConfig { sends: 8, send_slots: 3, ..PairConfig::default() });
    let mut expected = 0u64;
    for lap in 0..100u64 {
        let count = 1 + lap % 3;
        for i in 0..count {
            let value = (lap * 10 + i).to_le_bytes();
            a.send.next_slot().unwrap()[..8].copy_from_slice(&value);
            a.send.stage(SendOp::Send { len: 8 }, i + 1 == count).unwrap();
        }
        assert_eq!(u64::from(a.send.post().unwrap()), count);
        let mut got = Vec::new();
        b.recvs(count as usize, |recv, completion| {
            let message = recv.take(completion).unwrap();
            got.push(u64::from_le_bytes((*message).try_into().unwrap()));
            let slot = recv.reclaim(message).unwrap();
            recv.post(&[slot]).unwrap();
        });
        assert_eq!(got, (0..count).map(|i| lap * 10 + i).collect::<Vec<_>>());
        a.sent();
        expected += count;
        assert_eq!(a.send.retired_total(), expected);
    }
}

#[test]
fn a_slot_is_posted_only_when_it_is_home_and_all_or_none() {
    let (mut a, mut b) = pair(PairConfig { recv_slots: 4, ..PairConfig::default() });
    let not_home = |slot| PostRecvReason::NotHome { slot };
    assert_eq!(b.recv.post(&[0]).unwrap_err().reason, not_home(0), "it is posted");
    a.send(b"x");
    let message = b.receive();
    let slot = message.slot();
    assert_eq!(b.recv.post(&[slot]).unwrap_err().reason, not_home(slot), "it is lent");
    drop(message);
    assert!(b.recv.pool().is_home(slot));
    let twice = b.recv.post(&[slot, slot]).unwrap_err();
    assert_eq!((twice.posted, twice.reason), (0, not_home(slot)));
    let missing = b.recv.post(&[slot, 4]).unwrap_err();
    assert_eq!((missing.posted, missing.reason), (0, PostRecvReason::NoSuchSlot { slot: 4 }));
    assert!(b.recv.pool().is_home(slot), "a refused list changes nothing");
    b.recv.post(&[slot]).unwrap();
    assert_eq!(b.recv.post(&[]), Ok(()));
}

#[test]
fn without_a_posted_receive_the_sender_fails_with_an_rnr_error() {
    let shape = PairConfig { rnr_retry: 0, ..PairConfig::default() };
    let pd = context().alloc_pd().unwrap();
    let (mut a, b) = (end(&pd, shape, ()), end(&pd, shape, ()));
    connect_controls(&a.control, &b.control, 0);
    a.send(b"no receive");
    a.sends(1, |send, completion| {
        assert_eq!(completion.status(), WcStatus::RNR_RETRY_EXC);
        assert_eq!((completion.byte_len(), completion.imm()), (0, None));
        let error = completion.error().unwrap();
        assert!(error.to_string().contains("RNR_RETRY_EXC"), "{error}");
        assert_eq!(send.retire(&completion), Ok(1), "a failed request is done, too");
    });
    assert_eq!(a.control.state(), Ok(QpState::ERR));
}

#[derive(Default)]
struct Log(Mutex<Vec<u32>>);

impl Recycle for Log {
    fn recycle(&self, slot: u32) {
        self.0.lock().unwrap().push(slot);
    }
}

#[test]
fn the_recycler_is_notified_once_when_the_last_piece_is_dropped() {
    let pd = context().alloc_pd().unwrap();
    let log = Arc::new(Log::default());
    let (mut a, mut b) =
        (end(&pd, PairConfig::default(), ()), end(&pd, PairConfig::default(), log.clone()));
    connect_controls(&a.control, &b.control, 7);
    b.post_all();
    a.send(b"headbodytail");
    let mut message = b.receive();
    let slot = message.slot();
    let head = message.split_to(4);
    let tail = message.slice(4..);
    assert_eq!((&*head, &*message, &*tail), (&b"head"[..], &b"bodytail"[..], &b"tail"[..]));
    let copy = tail.clone();
    assert_eq!(b.recv.reclaim(head), None, "others are held");
    drop(message);
    drop(tail);
    assert!(log.0.lock().unwrap().is_empty());
    assert!(!b.recv.pool().is_home(slot));
    let other = std::thread::spawn(move || assert_eq!(&*copy, b"tail"));
    other.join().unwrap();
    assert_eq!(*log.0.lock().unwrap(), [slot]);
    assert!(b.recv.pool().is_home(slot));
    b.recv.post(&[slot]).unwrap();
}

#[test]
fn reclaim_skips_the_recycler_and_refuses_foreign_messages() {
    let pd = context().alloc_pd().unwrap();
    let log = Arc::new(Log::default());
    let (mut a, mut b) =
        (end(&pd, PairConfig::default(), ()), end(&pd, PairConfig::default(), log.clone()));
    connect_controls(&a.control, &b.control, 7);
    b.post_all();
    a.send(b"1");
    let message = b.receive();
    let slot = message.slot();
    assert_eq!(b.recv.reclaim(message), Some(slot));
    assert!(log.0.lock().unwrap().is_empty());
    a.send(b"2");
    let message = b.receive();
    let slot = message.slot();
    let mut stranger = end(&pd, PairConfig::default(), log.clone());
    assert_eq!(stranger.recv.reclaim(message), None);
    assert_eq!(*log.0.lock().unwrap(), [slot], "dropped as any other");
}

#[test]
fn many_reclaims_keep_the_pools_references_balanced() {
    let (mut a, mut b) = pair(PairConfig { sends: 64, send_slots: 64, ..PairConfig::default() });
    for _ in 0..400 {
        a.send(b"message");
        a.sent();
        let mut got = None;
        // `take` adds a reference, `reclaim` keeps it: the surplus has to be given back.
        b.recvs(1, |recv, c| got = Some(recv.pool().take(c).unwrap()));
        let slot = b.recv.reclaim(got.unwrap()).unwrap();
        b.recv.post(&[slot]).unwrap();
    }
    let pool = b.recv.pool().clone();
    drop((a, b));
    assert_eq!(pool.slots(), 16, "the last handle keeps the pool");
}

#[test]
fn messages_dropped_by_another_thread_are_not_overwritten_early() {
    const MESSAGES: u64 = 4000;
    let shape = PairConfig { recv_slots: 32, sends: 32, send_slots: 32, ..PairConfig::default() };
    let pd = context().alloc_pd().unwrap();
    let log = Arc::new(Log::default());
    let (mut a, mut b) = (end(&pd, shape, ()), end(&pd, shape, log.clone()));
    connect_controls(&a.control, &b.control, 7);
    b.post_all();
    let (sender, receiver) = std::sync::mpsc::channel::<(u64, RecvBuf<Arc<Log>>)>();
    let checker = std::thread::spawn(move || {
        for (value, message) in receiver {
            assert!(message.chunks(8).all(|c| c == value.to_le_bytes()));
        }
    });
    let mut free = 32;
    for value in 0..MESSAGES {
        while free == 0 {
            let homes = std::mem::take(&mut *log.0.lock().unwrap());
            free += homes.len();
            b.recv.post(&homes).unwrap();
            std::thread::yield_now();
        }
        let bytes: Vec<u8> = value.to_le_bytes().repeat(8);
        a.send(&bytes);
        a.sent();
        free -= 1;
        sender.send((value, b.receive())).unwrap();
    }
    drop(sender);
    checker.join().unwrap();
}
