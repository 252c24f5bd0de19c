//! Dropping and forgetting, in every order and at the worst moment. What these tests
//! show directly is that nothing hangs and no byte of a lent message changes; under valgrind
//! (`tests/valgrind.sh`) also that nothing freed is touched.
//!
//! Only on soft0, rxe0: it takes devices of soft-rnic by no other name.

mod common;

use std::any::Any;

use common::*;
use verbs_safe::*;

type EndPart = Option<Box<dyn Any + Send>>;

const PARTS: usize = 7;

/// The handles of one end of a connection, with work posted on both of its queues, and
/// a message lent from it.
fn parts(pd: ProtectionDomain, mut end: TestEnd, peer: &mut TestEnd) -> [EndPart; PARTS] {
    peer.send(b"kept");
    let message = end.receive();
    end.send(b"in flight or done");
    let TestEnd { send_cq, recv_cq, control, send, recv } = end;
    let part = |part: Box<dyn Any + Send>| Some(part);
    [
        part(Box::new(pd)),
        part(Box::new((send_cq, recv_cq))),
        part(Box::new(control)),
        part(Box::new(send)),
        part(Box::new(recv.pool().clone())),
        part(Box::new(recv)),
        part(Box::new(message)),
    ]
}

fn check_message(parts: &[EndPart; PARTS]) {
    if let Some(part) = &parts[PARTS - 1] {
        let message = part.downcast_ref::<RecvBuf>().unwrap();
        assert_eq!(&**message, b"kept");
    }
}

/// The handles of a datagram queue pair that has sent to its peer, to a queue pair that does
/// not exist, and (as its address and region are kept) with handles that were dropped
/// before; and a message lent from it.
fn datagram_parts(pd: ProtectionDomain, mut end: TestEnd, peer: &mut TestEnd) -> [EndPart; PARTS] {
    let to_end = datagram_peer(&pd, peer, &end);
    send_datagram(peer, to_end, b"kept");
    let message = end.receive();
    let (to_peer, handle) = (datagram_peer(&pd, &mut end, peer), address(&pd, peer));
    let absent = end.send.add_peer(&handle, 0xfe_fefe, QKEY).unwrap();
    let removed = end.send.add_peer(&handle, peer.control.qp_num(), QKEY).unwrap();
    for to in [to_peer, absent, removed] {
        end.send.stage_to(to, SendOp::Send { len: 8 }, true).unwrap();
    }
    assert!(end.send.remove_peer(removed));
    end.send.post().unwrap();
    let TestEnd { send_cq, recv_cq, control, send, recv } = end;
    let part = |part: Box<dyn Any + Send>| Some(part);
    [
        part(Box::new(pd)),
        part(Box::new((send_cq, recv_cq))),
        part(Box::new(control)),
        part(Box::new(send)),
        part(Box::new(recv)),
        part(Box::new(handle)),
        part(Box::new(message)),
    ]
}

const QKEY: u32 = 0x1234;

fn datagrams() -> PairConfig {
    PairConfig { transport: Transport::Ud { qkey: QKEY }, ..small() }
}

/// Two datagram queue pairs that are ready.
fn datagram_pair(pd: &ProtectionDomain) -> (TestEnd, TestEnd) {
    let ready = || {
        let mut end = end(pd, datagrams(), ());
        end.control.activate(0).unwrap();
        end.post_all();
        end
    };
    (ready(), ready())
}

fn address(pd: &ProtectionDomain, to: &TestEnd) -> AddressHandle {
    let gid = pd.context().choose_gid(1, None).unwrap();
    let told = to.control.endpoint(1, gid, 0).unwrap();
    pd.create_ah(&told, AhAttr::new(gid.index as u8)).unwrap()
}

fn datagram_peer(pd: &ProtectionDomain, from: &mut TestEnd, to: &TestEnd) -> PeerId {
    from.send.add_peer(&address(pd, to), to.control.qp_num(), QKEY).unwrap()
}

fn send_datagram(from: &mut TestEnd, to: PeerId, bytes: &[u8]) {
    from.send.next_slot().expect("a free slot")[..bytes.len()].copy_from_slice(bytes);
    from.send.stage_to(to, SendOp::Send { len: bytes.len() as u32 }, true).unwrap();
    from.send.post().unwrap();
    from.sent();
}

/// Calls `f` with every order of `0..PARTS`.
fn permutations(order: &mut [usize; PARTS], fixed: usize, f: &mut impl FnMut(&[usize; PARTS])) {
    if fixed == PARTS {
        return f(order);
    }
    for i in fixed..PARTS {
        order.swap(fixed, i);
        permutations(order, fixed + 1, f);
        order.swap(fixed, i);
    }
}

fn orders(mut f: impl FnMut(&[usize; PARTS])) {
    permutations(&mut std::array::from_fn(|i| i), 0, &mut f);
}

/// Few slots, and a peer that lives until the test ends it.
fn small() -> PairConfig {
    PairConfig {
        sends: 4,
        send_slots: 4,
        recv_slots: 4,
        slot_bytes: 64,
        budget: budget::mortal(),
        ..PairConfig::default()
    }
}

/// Reports whether a repetition takes long.
fn is_slow() -> bool {
    std::env::var_os("UNDER_VALGRIND").is_some() || context().device_name() != "soft0"
}

/// Makes the handles with `make`, and drops them, in every order (a sample of them where
/// that would take long: under valgrind, and where the device is the kernel's).
fn drop_in_every_order(make: impl Fn() -> ([EndPart; PARTS], TestEnd)) {
    let every = if is_slow() { 499 } else { 1 };
    let (mut count, mut number) = (0, 0);
    orders(|order| {
        number += 1;
        if number % every != 0 {
            return;
        }
        count += 1;
        let (mut parts, _peer) = make();
        for &i in order {
            parts[i] = None;
            check_message(&parts);
        }
    });
    assert_eq!(count, 5040 / every);
}

#[test]
fn handles_can_be_dropped_in_every_order() {
    drop_in_every_order(|| {
        let pd = context().alloc_pd().unwrap();
        let (end, mut peer) = pair_on(&pd, small());
        (parts(pd, end, &mut peer), peer)
    });
}

#[test]
fn handles_of_datagrams_can_be_dropped_in_every_order() {
    drop_in_every_order(|| {
        let pd = context().alloc_pd().unwrap();
        let (end, mut peer) = datagram_pair(&pd);
        (datagram_parts(pd, end, &mut peer), peer)
    });
}

#[test]
fn any_one_handle_can_be_forgotten_while_a_peer_sends() {
    let forget = |forgotten: usize| {
        let pd = context().alloc_pd().unwrap();
        let (end, mut peer) = pair_on(&pd, small());
        let mut parts = parts(pd, end, &mut peer);
        let traffic = TrafficThread::start(peer);
        std::mem::forget(parts[forgotten].take());
        for part in &mut parts {
            *part = None;
        }
        traffic.ends();
    };
    // At once: a kernel's device takes seconds to find that a peer has gone.
    std::thread::scope(|scope| {
        for forgotten in 0..PARTS {
            scope.spawn(move || forget(forgotten));
        }
    });
}

#[test]
fn any_one_handle_of_datagrams_can_be_forgotten() {
    for forgotten in 0..PARTS {
        let pd = context().alloc_pd().unwrap();
        let (end, mut peer) = datagram_pair(&pd);
        let to_end = datagram_peer(&pd, &mut peer, &end);
        let mut parts = datagram_parts(pd, end, &mut peer);
        std::mem::forget(parts[forgotten].take());
        for part in &mut parts {
            send_datagram(&mut peer, to_end, b"into whatever is left");
            *part = None;
        }
        send_datagram(&mut peer, to_end, b"into whatever is left");
    }
}

#[test]
fn staged_requests_keep_their_region_and_address_alive() {
    let pd = context().alloc_pd().unwrap();
    let (mut a, mut b) = datagram_pair(&pd);
    let to_b = datagram_peer(&pd, &mut a, &b); // the handle is dropped there
    let (mut c, mut d) = pair_on(&pd, small());
    let region =
        pd.register_shared(Mapping::new(4096).unwrap(), SharedRegionConfig::default()).unwrap();
    region.copy_in(0, b"of a region").unwrap();
    let local = c.send.attach(&region).unwrap();
    let config = SharedRegionConfig { access: RemoteAccess::ALL, on_demand: false };
    let far = pd.register_shared(Mapping::new(4096).unwrap(), config).unwrap();
    let remote = far.remote(0, 11).unwrap();
    drop((region, pd));
    let flags = SendFlags { signalled: true, ..SendFlags::default() };
    c.send.stage_at(local, 0, SendOp::WriteImm { len: 11, imm: 0, remote }, flags).unwrap();
    a.send.stage_to(to_b, SendOp::Send { len: 0 }, true).unwrap();
    assert!(c.send.detach(local) && a.send.remove_peer(to_b));
    c.send.post().unwrap();
    a.send.post().unwrap();
    d.receive();
    let mut bytes = [0; 11];
    far.copy_out(0, &mut bytes).unwrap();
    assert_eq!(&bytes, b"of a region");
    assert!(b.receive().is_empty());
    c.sent(); // now the region goes
    a.sent();
}

#[test]
fn an_end_can_go_while_its_peer_sends() {
    for order in [[0, 1, 2, 3, 4, 5, 6], [6, 5, 4, 3, 2, 1, 0], [5, 3, 2, 0, 1, 4, 6]] {
        for _ in 0..if is_slow() { 2 } else { 20 } {
            let pd = context().alloc_pd().unwrap();
            let (end, mut peer) = pair_on(&pd, small());
            let mut parts = parts(pd, end, &mut peer);
            let traffic = TrafficThread::start(peer);
            for i in order {
                parts[i] = None;
                check_message(&parts);
            }
            traffic.ends();
        }
    }
}

/// A thread that sends until its queue pair fails.
struct TrafficThread {
    thread: std::thread::JoinHandle<()>,
}

impl TrafficThread {
    fn start(peer: TestEnd) -> TrafficThread {
        let thread = std::thread::spawn(move || send_until_failure(peer));
        TrafficThread { thread }
    }

    fn ends(self) {
        self.thread.join().unwrap();
    }
}

fn send_until_failure(mut peer: TestEnd) {
    let mut failed = false;
    // The first completion is that of `parts`.
    while !failed {
        while peer.send.next_slot().is_some() {
            peer.send.stage(SendOp::Send { len: 64 }, true).unwrap();
        }
        if peer.send.post().is_err() {
            return;
        }
        peer.sends(1, |send, completion| {
            failed = !completion.is_success();
            send.retire(&completion).unwrap();
        });
    }
}

#[test]
fn a_sender_can_go_while_its_request_waits_for_a_receive() {
    for forgotten in [None, Some(0), Some(1), Some(2)] {
        let shape = PairConfig { rnr_retry: 7, ..small() }; // for ever
        let pd = context().alloc_pd().unwrap();
        let (mut a, mut b) = (end(&pd, shape, ()), end(&pd, shape, ()));
        connect_with(&a.control, &b.control, shape);
        a.send(b"waits");
        let TestEnd { send_cq, control, send, recv, .. } = a;
        let mut parts: [EndPart; 3] =
            [Some(Box::new(send)), Some(Box::new((control, send_cq))), Some(Box::new(recv))];
        if let Some(i) = forgotten {
            std::mem::forget(parts[i].take());
        }
        drop(parts);
        b.post_all(); // the request proceeds, if its queue pair is still there
        if forgotten.is_some() {
            assert_eq!(&*b.receive(), b"waits");
        }
    }
}

#[test]
fn a_posted_request_keeps_its_region_after_its_queue() {
    let shape = PairConfig { rnr_retry: 7, ..small() }; // for ever
    let pd = context().alloc_pd().unwrap();
    let (mut a, mut b) = (end(&pd, shape, ()), end(&pd, shape, ()));
    connect_with(&a.control, &b.control, shape);
    let region =
        pd.register_shared(Mapping::new(4096).unwrap(), SharedRegionConfig::default()).unwrap();
    region.copy_in(9, b"waits").unwrap();
    let local = a.send.attach(&region).unwrap();
    let config = SharedRegionConfig { access: RemoteAccess::ALL, on_demand: false };
    let far = pd.register_shared(Mapping::new(4096).unwrap(), config).unwrap();
    // Waits for a receive, because of its immediate.
    let write = SendOp::WriteImm { len: 5, imm: 0, remote: far.remote(0, 5).unwrap() };
    a.send.stage_at(local, 9, write, SendFlags::default()).unwrap();
    a.send.post().unwrap();
    let TestEnd { send, control, .. } = a;
    drop((region, send)); // the queue pair is still there
    b.post_all();
    b.receive();
    let mut bytes = [0; 5];
    far.copy_out(0, &mut bytes).unwrap();
    assert_eq!(&bytes, b"waits");
    drop(control);
}

#[test]
fn forgotten_completions_and_messages_cost_only_their_slots() {
    let (mut a, mut b) = pair(small());
    for _ in 0..2 {
        a.send(b"gone");
        a.sent();
    }
    std::mem::forget(b.receive());
    #[expect(clippy::forget_non_drop, reason = "what safe code may do")]
    b.recvs(1, |_, completion| std::mem::forget(completion));
    let lost: Vec<u32> = (0..4).filter(|slot| !b.recv.pool().is_home(*slot)).collect();
    assert_eq!(lost, [0, 1, 2, 3], "two are posted, one is lent, one is lost");
    assert!(b.recv.post(&[0]).is_err());
    assert!(b.recv.post(&[1]).is_err());
    a.send(b"goes on");
    assert_eq!(&*b.receive(), b"goes on");
}

#[test]
fn a_forgotten_slot_is_lent_again() {
    let (mut a, mut b) = pair(small());
    let slot = a.send.next_slot().unwrap();
    slot[0] = 1;
    #[expect(forgetting_references, reason = "what safe code may do")]
    std::mem::forget(slot);
    a.send(b"ok");
    assert_eq!(&*b.receive(), b"ok");
}

#[test]
fn regions_channels_and_queues_can_go_before_what_uses_them() {
    let context = context();
    let pd = context.alloc_pd().unwrap();
    let channel = context.create_channel().unwrap();
    let cq = context.create_cq(CqConfig { channel: Some(&channel), ..CqConfig::new(64) }).unwrap();
    let mut a = end_on(&pd, (&cq, &cq), small(), ());
    let mut b = end_on(&pd, (&cq, &cq), small(), ());
    connect_with(&a.control, &b.control, small());
    let config = SharedRegionConfig { access: RemoteAccess::ALL, on_demand: false };
    let region = pd.register_shared(Mapping::new(4096).unwrap(), config).unwrap();
    let remote = region.remote(0, 8).unwrap();
    let armed = cq.arm(false).unwrap();
    drop((context, pd, channel, cq));
    a.send.stage(SendOp::Write { len: 8, remote }, true).unwrap();
    a.send.post().unwrap();
    a.sent();
    drop(region); // its keys reach nothing now
    a.send.stage(SendOp::Write { len: 8, remote }, true).unwrap();
    a.send.post().unwrap();
    a.sends(1, |_, completion| assert_eq!(completion.status(), WcStatus::REM_ACCESS));
    b.post_all();
    drop((a, b));
    drop(armed); // the channel goes with it
}

#[test]
fn posted_receives_outlive_their_queue_and_pool() {
    let (mut a, b) = pair(small());
    let TestEnd { recv_cq, control, send, recv, .. } = b;
    drop((recv, send));
    for _ in 0..4 {
        a.send(b"not taken");
        a.sent();
    }
    completions(&recv_cq, 4, |completion| assert_eq!(completion.status(), WcStatus::SUCCESS));
    drop(control);
}

#[test]
fn shared_receives_outlive_their_poster_and_pool() {
    let context = context();
    let pd = context.alloc_pd().unwrap();
    let (mut poster, pool) = pd.create_shared_pool(4, 64, ()).unwrap();
    poster.post(&[0, 1, 2, 3]).unwrap();
    let cq = context.create_cq(CqConfig::new(64)).unwrap();
    let recv = RecvSide::Shared(poster.shared().unwrap());
    let config = QueuePairConfig { recv, max_send_wr: 1, ..QueuePairConfig::new(&cq, &cq) };
    let receiver = pd.create_qp(&config, ()).unwrap();
    drop((poster, pool));
    let mut sender = end(&pd, small(), ());
    connect_with(&sender.control, &receiver.control, small());
    for _ in 0..4 {
        sender.send(b"not taken");
        sender.sent();
    }
    completions(&cq, 4, |completion| assert_eq!(completion.status(), WcStatus::SUCCESS));
}
