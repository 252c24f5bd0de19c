//! Shared receive queues.
//!
//! Only on soft0, rxe0: it takes devices of soft-rnic by no other name.

mod common;

use std::time::Duration;

use common::*;
use verbs_safe::*;

struct Many {
    context: Context,
    cq: CompletionQueue,
    poster: RecvPoster<()>,
    pool: RecvPool<()>,
    senders: Vec<TestEnd>,
    receivers: Vec<QueuePair>,
}

fn many(n: usize, slots: u32) -> Many {
    let context = context();
    let pd = context.alloc_pd().unwrap();
    let (poster, pool) = pd.create_shared_pool(slots, 64, ()).unwrap();
    let cq = context.create_cq(CqConfig::new(slots + 4 * n as u32)).unwrap();
    let srq = poster.shared().unwrap().clone();
    let mut many = Many { context, cq, poster, pool, senders: vec![], receivers: vec![] };
    for _ in 0..n {
        let config = QueuePairConfig {
            max_send_wr: 4,
            recv: RecvSide::Shared(&srq),
            ..QueuePairConfig::new(&many.cq, &many.cq)
        };
        let receiver = pd.create_qp(&config, ()).unwrap();
        assert!(receiver.recv.is_none());
        let sender = end(&pd, PairConfig::default(), ());
        connect_controls(&sender.control, &receiver.control, 7);
        many.senders.push(sender);
        many.receivers.push(receiver);
    }
    many
}

impl Many {
    fn receive(&mut self) -> (u32, RecvBuf) {
        let mut batch = CompletionBatch::new(1);
        let deadline = std::time::Instant::now() + PATIENCE;
        while self.cq.poll(&mut batch).unwrap() == 0 {
            assert!(std::time::Instant::now() < deadline, "no message arrived");
        }
        let completion = batch.drain().next().unwrap();
        (completion.qp_num(), self.pool.take_prepaid(completion).unwrap())
    }
}

const NOW: Option<Duration> = Some(Duration::ZERO);

#[test]
fn shared_pool_messages_name_their_queue_pair() {
    let mut many = many(3, 4);
    many.poster.post(&[0, 1, 2, 3]).unwrap();
    for round in 0..50u8 {
        for i in 0..3 {
            many.senders[i].send(&[round, i as u8]);
            many.senders[i].sent();
            let (qp_num, message) = many.receive();
            assert_eq!(qp_num, many.receivers[i].control.qp_num());
            assert_eq!(&*message, &[round, i as u8]);
            let slot = many.pool.reclaim(message).unwrap();
            many.poster.post(&[slot]).unwrap();
        }
    }
}

#[test]
fn a_shared_pool_is_reserved_once_in_its_completion_queue() {
    let many = many(3, 8);
    assert_eq!(many.cq.reserved(), 8 + 3 * 4);
    let Many { cq, receivers, .. } = many;
    drop(receivers);
    assert_eq!(cq.reserved(), 0);
}

#[test]
fn the_limit_event_comes_once_when_fewer_are_posted() {
    let mut many = many(1, 8);
    many.poster.post(&[0, 1, 2, 3]).unwrap();
    let srq = many.poster.shared().unwrap().clone();
    srq.arm_limit(3).unwrap();
    assert_eq!(srq.armed_limit(), Ok(3));
    for _ in 0..3 {
        many.senders[0].send(b"x");
        many.senders[0].sent();
    }
    let event = many.context.poll_async_event(Some(PATIENCE)).unwrap().expect("the limit event");
    assert_eq!(event.kind, AsyncEventKind::SRQ_LIMIT_REACHED);
    assert_eq!(event.source, AsyncSource::Srq(srq.id()));
    assert_eq!(many.context.poll_async_event(Some(Duration::ZERO)), Ok(None), "one-shot");
    assert_eq!(srq.armed_limit(), Ok(0));
    assert!(srq.arm_limit(1_000_000).is_err(), "over its size");
}

#[test]
fn a_failed_queue_pair_reports_its_last_pool_request() {
    let mut many = many(2, 8);
    many.poster.post(&[0, 1, 2, 3]).unwrap();
    let failed = &many.receivers[1].control;
    failed.to_error().unwrap();
    // rxe (Linux 6.1) reports no event, although the specification requires it.
    let is_rxe = many.context.device_name().starts_with("rxe");
    let patience = if is_rxe { Duration::ZERO } else { PATIENCE };
    let event = many.context.poll_async_event(Some(patience)).unwrap();
    assert!(event.is_some() || is_rxe, "the last request");
    if let Some(event) = event {
        assert_eq!(event.kind, AsyncEventKind::QP_LAST_WQE_REACHED);
        assert_eq!(event.kind.name(), "QP_LAST_WQE_REACHED");
        assert_eq!(event.source, AsyncSource::Qp(failed.qp_num()));
    }
    many.senders[0].send(b"the others go on");
    assert_eq!(&*many.receive().1, b"the others go on");
}

#[test]
fn a_last_request_event_taken_by_any_caller_is_remembered() {
    for first in [0, 1] {
        let mut many = many(2, 8);
        many.poster.post(&[0, 1, 2, 3]).unwrap();
        if many.context.device_name().starts_with("rxe") {
            return; // it reports no event
        }
        let told = |index: usize| many.receivers[index].control.has_reached_last_wqe().unwrap();
        many.receivers[0].control.to_error().unwrap();
        assert!(told(0) && !told(1));
        many.receivers[1].control.to_error().unwrap();
        // A look at one queue pair takes the other's events; so does a caller of the context.
        assert!(told(first));
        let numbers = [0, 1].map(|_| match many.context.poll_async_event(NOW).unwrap() {
            Some(AsyncEvent { source: AsyncSource::Qp(number), .. }) => number,
            other => panic!("{other:?}"),
        });
        assert_eq!(numbers, [0, 1].map(|index: usize| many.receivers[index].control.qp_num()));
        assert_eq!(many.context.poll_async_event(NOW), Ok(None));
        assert!(told(0) && told(1), "it is known for good");
    }
}

/// The receiving ends of two queue pairs, each with the pool of a size class, which
/// complete into one queue; and the senders that they are connected to.
struct Classes {
    cq: CompletionQueue,
    pools: [(RecvPoster<()>, RecvPool<()>); 2],
    senders: [TestEnd; 2],
    _receivers: [QueuePair; 2],
}

const SMALL: usize = 64;
const LARGE: usize = 4096;

fn classes() -> Classes {
    let pd = context().alloc_pd().unwrap();
    let cq = pd.context().create_cq(CqConfig::new(64)).unwrap();
    let pool = |slots, bytes| pd.create_shared_pool(slots, bytes, ()).unwrap();
    let mut pools = [pool(16, SMALL), pool(4, LARGE)];
    let receivers = pools.each_ref().map(|(poster, _)| {
        let recv = RecvSide::Shared(poster.shared().unwrap());
        let config = QueuePairConfig { recv, max_send_wr: 4, ..QueuePairConfig::new(&cq, &cq) };
        pd.create_qp(&config, ()).unwrap()
    });
    let senders = receivers.each_ref().map(|receiver| {
        let shape = PairConfig { slot_bytes: LARGE, ..PairConfig::default() };
        let sender = end(&pd, shape, ());
        connect_with(&sender.control, &receiver.control, shape);
        sender
    });
    for (poster, pool) in &mut pools {
        poster.post(&(0..pool.slots()).collect::<Vec<_>>()).unwrap();
    }
    Classes { cq, pools, senders, _receivers: receivers }
}

#[test]
fn two_size_classes_use_two_queues_and_keep_the_immediate() {
    let Classes { cq, mut pools, mut senders, _receivers } = classes();
    assert_eq!(cq.reserved(), 16 + 4 + 2 * 4);
    for round in 0..30u32 {
        let len = [SMALL, LARGE][round as usize % 2] - round as usize;
        let class = usize::from(len > SMALL);
        let sender = &mut senders[class];
        sender.send.next_slot().unwrap()[..len].fill(round as u8);
        sender.send.stage(SendOp::SendImm { len: len as u32, imm: round }, true).unwrap();
        sender.send.post().unwrap();
        sender.sent();
        completions(&cq, 1, |completion| {
            assert_eq!(completion.imm(), Some(round));
            let at = pools.iter().position(|(p, _)| p.queue_id() == completion.queue_id());
            assert_eq!(at, Some(class), "the completion tells whose buffer it is");
            let (poster, pool) = &mut pools[class];
            let message = pool.take_prepaid(completion).unwrap();
            assert_eq!(*message, vec![round as u8; len]);
            let slot = pool.reclaim(message).unwrap();
            poster.post(&[slot]).unwrap();
        });
    }
}

#[test]
fn a_message_of_the_other_class_is_not_cut_off() {
    let Classes { cq, pools, mut senders, _receivers } = classes();
    let sender = &mut senders[0];
    sender.send.stage(SendOp::Send { len: SMALL as u32 + 1 }, true).unwrap();
    sender.send.post().unwrap();
    sender.sends(1, |_, completion| assert!(!completion.is_success()));
    completions(&cq, 1, |completion| {
        let error = pools[0].1.take(completion).unwrap_err();
        assert!(matches!(error, TakeError::Failed { .. }), "{error}");
    });
}

#[test]
fn a_message_outlives_its_queue_and_everything_else() {
    let mut many = many(2, 4);
    many.poster.post(&[0, 1]).unwrap();
    many.senders[1].send(b"still here");
    many.senders[1].sent();
    let (_, message) = many.receive();
    drop(many);
    assert_eq!(&*message, b"still here");
}

#[test]
fn frees_from_other_threads_reach_the_poster_behind_a_lock() {
    const MESSAGES: usize = 1500;
    let mut many = many(1, 8);
    many.poster.post(&(0..8).collect::<Vec<_>>()).unwrap();
    let Many { poster, pool, senders, cq, .. } = &mut many;
    let poster = std::sync::Mutex::new(poster);
    let (to_workers, work) = std::sync::mpsc::sync_channel::<RecvBuf>(4);
    let work = std::sync::Mutex::new(work);
    std::thread::scope(|scope| {
        for _ in 0..3 {
            let (poster, work) = (&poster, &work);
            scope.spawn(move || {
                loop {
                    let received = work.lock().unwrap().recv();
                    let Ok(message) = received else { return };
                    let slot = message.slot();
                    drop(message);
                    poster.lock().unwrap().post(&[slot]).unwrap();
                }
            });
        }
        let (sender, mut batch) = (&mut senders[0], CompletionBatch::new(4));
        for i in 0..MESSAGES {
            sender.send(&i.to_le_bytes());
            sender.sent();
            while cq.poll(&mut batch).unwrap() == 0 {}
            let message = pool.take_prepaid(batch.drain().next().unwrap()).unwrap();
            assert_eq!(*message, i.to_le_bytes());
            to_workers.send(message).unwrap();
        }
        drop(to_workers);
    });
    assert_eq!((0..8).filter(|slot| many.pool.is_home(*slot)).count(), 0);
}
