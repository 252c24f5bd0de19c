//! Completion queues: accounting, channels, flushes, and completions that are not ours.
//!
//! Only on soft0, rxe0: it takes devices of soft-rnic by no other name.

mod common;

use std::os::fd::AsFd;
use std::time::Duration;

use common::budget::LIVING;
use common::*;
use verbs_safe::*;

#[test]
fn a_completion_of_another_queue_is_refused() {
    let pd = context().alloc_pd().unwrap();
    let (mut a, mut b) = pair_on(&pd, PairConfig::default());
    a.send(b"message");
    let (other_send, other_recv) = (b.send.queue_id(), b.recv.queue_id());
    a.sends(1, |send, completion| {
        let found = completion.queue_id();
        assert_eq!(found, send.queue_id());
        let refused = b.send.retire(&completion).unwrap_err();
        assert_eq!((refused.expected, refused.found), (other_send, found));
        let refused = b.recv.take(completion).unwrap_err();
        assert_eq!(refused, TakeError::Foreign(ForeignCompletion { expected: other_recv, found }));
        assert_eq!(refused.slot(), None);
    });
    assert_eq!((a.send.retired_total(), b.send.retired_total()), (0, 0));
    assert_eq!(&*b.receive(), b"message", "b's own slot is untouched");
}

#[test]
fn a_new_queue_refuses_a_completion_of_a_destroyed_one() {
    let pd = context().alloc_pd().unwrap();
    let shape = PairConfig::default();
    let cq = pd.context().create_cq(CqConfig::new(256)).unwrap();
    let mut old = end_on(&pd, (&cq, &cq), shape, ());
    let mut peer = end(&pd, shape, ());
    connect_controls(&old.control, &peer.control, 7);
    peer.post_all();
    old.send(b"x");
    peer.receive();
    let mut batch = CompletionBatch::new(4);
    while cq.poll(&mut batch).unwrap() == 0 {}
    let old_id = old.send.queue_id();
    drop(old);
    let mut new = end_on(&pd, (&cq, &cq), shape, ());
    let stale = batch.drain().next().unwrap();
    assert_eq!(stale.queue_id(), old_id);
    assert!(new.send.retire(&stale).is_err());
    assert!(matches!(new.recv.take(stale), Err(TakeError::Foreign(_))));
}

#[test]
fn retiring_again_or_late_changes_nothing() {
    let (mut a, mut b) = pair(PairConfig::default());
    for _ in 0..3 {
        a.send(b"x");
    }
    let mut batch = CompletionBatch::new(8);
    b.recvs(3, |_, _| {});
    let mut first = CompletionBatch::new(1);
    while a.send_cq.poll(&mut first).unwrap() == 0 {}
    let mut second = CompletionBatch::new(1);
    while a.send_cq.poll(&mut second).unwrap() == 0 {}
    while a.send_cq.poll(&mut batch).unwrap() == 0 {}
    let all: Vec<Completion<'_>> =
        first.drain().chain(second.drain()).chain(batch.drain()).collect();
    assert_eq!(a.send.retire(&all[1]), Ok(2));
    assert_eq!(a.send.retire(&all[0]), Ok(2), "it is retired already");
    assert_eq!(a.send.retire(&all[1]), Ok(2));
    assert_eq!(a.send.retire(&all[2]), Ok(3));
}

#[test]
fn an_error_flushes_everything_in_order_and_slots_go_home() {
    let (mut a, mut b) =
        pair(PairConfig { recv_slots: 5, budget: budget::mortal(), ..PairConfig::default() });
    b.control.to_error().unwrap();
    let mut slots = Vec::new();
    b.recvs(5, |recv, completion| {
        assert_eq!(completion.status(), WcStatus::WR_FLUSH);
        let error = recv.take(completion).unwrap_err();
        slots.push(error.slot().expect("a failed receive names its slot"));
    });
    assert_eq!(slots, [0, 1, 2, 3, 4]);
    assert!(slots.iter().all(|slot| b.recv.pool().is_home(*slot)));
    b.send.stage(SendOp::Send { len: 0 }, false).unwrap();
    b.send.post().unwrap();
    b.sends(1, |send, completion| {
        assert_eq!(
            completion.status(),
            WcStatus::WR_FLUSH,
            "unsignalled, and flushed all the same"
        );
        assert_eq!(send.retire(&completion), Ok(1));
    });
    a.send(b"into the void");
    a.sends(1, |_, completion| assert_eq!(completion.status(), WcStatus::RETRY_EXC));
}

#[test]
fn a_too_small_completion_queue_is_refused_with_the_size_needed() {
    let pd = context().alloc_pd().unwrap();
    let cq = pd.context().create_cq(CqConfig::new(20)).unwrap();
    let room = cq.capacity();
    let shape = PairConfig { sends: room, recv_slots: 1, ..PairConfig::default() };
    let error = pd.create_qp(&config((&cq, &cq), shape), ()).unwrap_err();
    let CreateQpError::CqTooSmall { role, source } = error else { panic!("{error}") };
    assert_eq!(role, CqRole::Recv);
    assert_eq!((source.capacity, source.reserved, source.wanted), (room, room, 1));
    assert_eq!(source.needed, u64::from(room) + 1);
    assert_eq!(cq.reserved(), 0, "a refused queue pair reserves nothing");
    let fits = PairConfig { sends: room - 1, ..shape };
    let qp = pd.create_qp(&config((&cq, &cq), fits), ()).unwrap();
    assert_eq!(cq.reserved(), room);
    assert!(
        pd.create_qp(&config((&cq, &cq), PairConfig { sends: 1, recv_slots: 0, ..shape }), ())
            .is_err()
    );
    drop(qp);
    assert_eq!(cq.reserved(), 0);
}

#[test]
fn parts_of_another_context_are_refused() {
    let (mine, other) = (context(), context());
    assert!(!mine.is_same(&other));
    let pd = mine.alloc_pd().unwrap();
    let foreign = other.create_cq(CqConfig::new(64)).unwrap();
    let error = pd.create_qp(&config((&foreign, &foreign), PairConfig::default()), ()).unwrap_err();
    assert!(matches!(error, CreateQpError::OtherContext { .. }), "{error}");
    let own = mine.create_cq(CqConfig::new(64)).unwrap();
    let (poster, _pool) = other.alloc_pd().unwrap().create_shared_pool(4, 64, ()).unwrap();
    let recv = RecvSide::Shared(poster.shared().unwrap());
    let config = QueuePairConfig { recv, max_send_wr: 4, ..QueuePairConfig::new(&own, &own) };
    let error = pd.create_qp(&config, ()).unwrap_err();
    assert_eq!(error, CreateQpError::OtherContext { what: "shared receive queue" });
    let channel = other.create_channel().unwrap();
    let cq = CqConfig { channel: Some(&channel), ..CqConfig::new(4) };
    assert_eq!(mine.create_cq(cq).unwrap_err(), CreateCqError::OtherContext);
}

#[test]
fn sizes_beyond_all_bounds_are_refused_before_anything_is_made() {
    let pd = context().alloc_pd().unwrap();
    let cq = pd.context().create_cq(CqConfig::new(64)).unwrap();
    let base = QueuePairConfig::new(&cq, &cq);
    let over = [
        QueuePairConfig { max_send_wr: u32::MAX, ..base },
        QueuePairConfig { send_slots: u32::MAX, ..base },
        QueuePairConfig { send_slot_bytes: usize::MAX, ..base },
        QueuePairConfig { recv: RecvSide::Own { slots: u32::MAX, slot_bytes: 1 }, ..base },
        QueuePairConfig { recv: RecvSide::Own { slots: 1, slot_bytes: usize::MAX }, ..base },
    ];
    for config in over {
        let error = pd.create_qp(&config, ()).unwrap_err();
        assert!(matches!(error, CreateQpError::TooLarge { .. }), "{error}");
    }
    assert!(matches!(
        pd.create_shared_pool(u32::MAX, usize::MAX, ()),
        Err(CreateSrqError::TooLarge { .. })
    ));
    assert!(pd.context().create_cq(CqConfig::new(u32::MAX)).is_err());
}

#[test]
fn inline_is_what_the_device_grants_of_what_was_asked_for() {
    let (a, _b) = pair(PairConfig { max_inline: 1 << 20, ..PairConfig::default() });
    assert!(a.send.max_inline() < 1 << 20, "no device takes 1 MiB inline");
    let (a, _b) = pair(PairConfig { max_inline: 16, ..PairConfig::default() });
    assert!(a.send.max_inline() <= 16);
    let (a, _b) = pair(PairConfig { max_inline: 0, ..PairConfig::default() });
    assert_eq!(a.send.max_inline(), 0);
}

fn with_channel(pd: &ProtectionDomain, channel: &CompletionChannel) -> (TestEnd, TestEnd) {
    let entries = CqConfig { channel: Some(channel), ..CqConfig::new(64) };
    let cq = pd.context().create_cq(entries).unwrap();
    let (mut a, mut b) =
        (end(pd, PairConfig::default(), ()), end_on(pd, (&cq, &cq), PairConfig::default(), ()));
    // RNR retries for ever: a thread that does not run for a while is no fault.
    connect_controls(&a.control, &b.control, 7);
    a.post_all();
    b.post_all();
    (a, b)
}

const NOW: Option<Duration> = Some(Duration::ZERO);

#[test]
fn an_armed_queue_wakes_the_thread_that_waits_and_only_once() {
    let pd = context().alloc_pd().unwrap();
    let channel = pd.context().create_channel().unwrap();
    let (mut a, mut b) = with_channel(&pd, &channel);
    a.send(b"not armed");
    b.receive();
    let armed = b.recv_cq.arm(false).unwrap();
    assert!(b.is_quiet());
    assert_eq!(channel.wait(&armed, NOW), Ok(false), "earlier completions cause no event");
    let waiting = {
        let (channel, armed) = (channel.clone(), armed.clone());
        std::thread::spawn(move || channel.wait(&armed, Some(PATIENCE)))
    };
    a.send(b"armed");
    assert_eq!(waiting.join().unwrap(), Ok(true));
    assert_eq!(&*b.receive(), b"armed");
    assert_eq!(channel.wait(&armed, NOW), Ok(true), "it has fired since then");
    let again = b.recv_cq.arm(false).unwrap();
    assert_eq!(channel.wait(&again, NOW), Ok(false));
}

#[test]
fn a_solicited_arming_sleeps_through_other_completions() {
    let pd = context().alloc_pd().unwrap();
    let channel = pd.context().create_channel().unwrap();
    let (mut a, mut b) = with_channel(&pd, &channel);
    let armed = b.recv_cq.arm(true).unwrap();
    a.send(b"by the way");
    b.receive();
    assert_eq!(channel.wait(&armed, NOW), Ok(false));
    let solicited = SendFlags { signalled: true, solicited: true, fence: false };
    a.send.stage_with(SendOp::Send { len: 0 }, solicited).unwrap();
    a.send.post().unwrap();
    assert_eq!(channel.wait(&armed, Some(PATIENCE)), Ok(true));
    b.receive();
}

#[test]
fn a_wait_for_several_queues_returns_the_one_with_the_event() {
    let pd = context().alloc_pd().unwrap();
    let channel = pd.context().create_channel().unwrap();
    let (_a, b) = with_channel(&pd, &channel);
    let (mut c, d) = with_channel(&pd, &channel);
    let armed = [b.recv_cq.arm(false).unwrap(), d.recv_cq.arm(false).unwrap()];
    let both = [&armed[0], &armed[1]];
    assert_eq!(channel.wait_with(&both, &[], NOW), Ok(Wakeup::Timeout));
    c.send(b"to the second");
    assert_eq!(channel.wait_with(&both, &[], Some(PATIENCE)), Ok(Wakeup::Completion(1)));
    assert_eq!(channel.wait(both[0], NOW), Ok(false), "it was not for the first");
}

#[test]
fn a_queue_is_waited_for_on_its_own_channel_only() {
    let pd = context().alloc_pd().unwrap();
    let [own, other] = [(); 2].map(|()| pd.context().create_channel().unwrap());
    let (_a, b) = with_channel(&pd, &own);
    let armed = b.recv_cq.arm(false).unwrap();
    assert_eq!(other.wait(&armed, NOW), Err(WaitError::OtherChannel));
}

/// Takes the received messages, and posts their buffers again; returns their number.
fn take_all(end: &mut TestEnd) -> u32 {
    let (mut batch, mut taken) = (CompletionBatch::new(8), 0);
    while end.recv_cq.poll(&mut batch).unwrap() > 0 {
        for completion in batch.drain() {
            let message = end.recv.take(completion).unwrap();
            let slot = end.recv.reclaim(message).unwrap();
            end.recv.post(&[slot]).unwrap();
            taken += 1;
        }
    }
    taken
}

/// Receives `messages` as the documentation of the channel says.
fn receive_all(channel: &CompletionChannel, end: &mut TestEnd, messages: u32) {
    let mut received = 0;
    while received < messages {
        received += take_all(end);
        let armed = end.recv_cq.arm(false).unwrap();
        let more = take_all(end);
        received += more;
        if more == 0 && received < messages {
            assert_eq!(channel.wait(&armed, Some(PATIENCE)), Ok(true), "a wake-up was lost");
        }
    }
}

#[test]
fn threads_on_one_channel_wake_for_their_own_queues() {
    const THREADS: usize = 3;
    const MESSAGES: u32 = 400;
    let pd = context().alloc_pd().unwrap();
    let channel = pd.context().create_channel().unwrap();
    let pairs: [_; THREADS] = std::array::from_fn(|_| with_channel(&pd, &channel));
    std::thread::scope(|scope| {
        let (mut senders, channel) = (Vec::new(), &channel);
        for (sender, mut receiver) in pairs {
            senders.push(sender);
            scope.spawn(move || receive_all(channel, &mut receiver, MESSAGES));
        }
        for _ in 0..MESSAGES {
            for sender in &mut senders {
                sender.send(b"for one of them");
                sender.sent();
            }
        }
    });
}

#[test]
fn an_event_wakes_all_threads_that_wait_for_its_queue() {
    let pd = context().alloc_pd().unwrap();
    let channel = pd.context().create_channel().unwrap();
    let (mut a, b) = with_channel(&pd, &channel);
    std::thread::scope(|scope| {
        for _ in 0..4 {
            let (channel, armed) = (&channel, b.recv_cq.arm(false).unwrap());
            scope.spawn(move || assert_eq!(channel.wait(&armed, Some(PATIENCE)), Ok(true)));
        }
        a.send(b"one event");
    });
}

#[test]
fn all_events_are_acknowledged_before_a_queue_is_destroyed() {
    for events in [1, 63, 64, 65, 130] {
        let pd = context().alloc_pd().unwrap();
        let channel = pd.context().create_channel().unwrap();
        let (mut a, mut b) = with_channel(&pd, &channel);
        for _ in 0..events {
            let armed = b.recv_cq.arm(false).unwrap();
            a.send(b"x");
            a.sent();
            assert_eq!(channel.wait(&armed, Some(PATIENCE)), Ok(true));
            let message = b.receive();
            let slot = b.recv.reclaim(message).unwrap();
            b.recv.post(&[slot]).unwrap();
        }
        drop(b); // would hang if one were missing
    }
}

#[test]
fn waiting_ends_when_another_descriptor_is_readable() {
    let channel = context().create_channel().unwrap();
    let (reader, writer) = std::io::pipe().unwrap();
    let extra = [reader.as_fd()];
    assert_eq!(channel.wait_with(&[], &extra, NOW), Ok(Wakeup::Timeout));
    drop(writer);
    assert_eq!(channel.wait_with(&[], &extra, None), Ok(Wakeup::Descriptor(0)));
}

#[test]
fn a_queue_without_a_channel_is_not_armed() {
    let cq = context().create_cq(CqConfig::new(4)).unwrap();
    assert_eq!(cq.arm(false).unwrap_err(), ArmCqError::NoChannel);
}

#[test]
fn a_batch_is_seen_once_whatever_becomes_of_its_iterator() {
    let (mut a, _b) = pair(PairConfig::default());
    a.send(b"1");
    a.send(b"2");
    let mut batch = CompletionBatch::new(0);
    assert_eq!(batch.capacity(), 1);
    while a.send_cq.poll(&mut batch).unwrap() == 0 {}
    #[expect(clippy::forget_non_drop, reason = "what safe code may do")]
    std::mem::forget(batch.drain());
    assert_eq!((batch.len(), batch.drain().count()), (0, 0));
    while a.send_cq.poll(&mut batch).unwrap() == 0 {}
    let second = batch.drain().next().unwrap();
    assert_eq!(a.send.retire(&second), Ok(2));
    assert!(batch.is_empty());
}

#[test]
fn a_failed_connect_names_the_state_of_the_queue_pair() {
    let pd = context().alloc_pd().unwrap();
    let (a, b) = pair_on(&pd, PairConfig::default());
    let gid = pd.context().choose_gid(1, None).unwrap();
    let remote = b.control.endpoint(1, gid, 1).unwrap();
    let attr = ConnectAttr::new(gid.index as u8, 1);
    let again = a.control.connect(&remote, &attr).unwrap_err();
    assert_eq!((again.from, again.to), (QpState::RTS, QpState::RTR));
    // About retries: too many.
    let wide = ConnectAttr { retry_cnt: 100, ..attr };
    let error = end(&pd, PairConfig::default(), ()).control.connect(&remote, &wide).unwrap_err();
    assert_eq!((error.from, error.errno), (QpState::INIT, Errno::EINVAL));
    assert!(error.to_string().contains("retry_cnt has 3 bits"), "{error}");
}

#[test]
fn a_connected_queue_pair_has_the_requested_attributes() {
    // About retries: what was set is read.
    let (a, b) = pair(PairConfig { rnr_retry: 5, ..PairConfig::default() });
    let attr = a.control.query().unwrap();
    assert_eq!((attr.state, attr.dest_qp_num), (QpState::RTS, b.control.qp_num()));
    assert_eq!((attr.mtu, attr.rnr_retry, attr.min_rnr_timer), (Mtu::B1024, 5, 1));
    assert_eq!((attr.retry_cnt, attr.timeout), (LIVING.retry_count, LIVING.timeout));
}
