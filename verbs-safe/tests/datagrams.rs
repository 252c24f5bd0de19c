//! Datagrams: route headers, addresses, peers, and what is dropped without a word.
//!
//! Only on soft0, rxe0: it takes devices of soft-rnic by no other name.

mod common;

use std::collections::HashMap;

use common::*;
use verbs_safe::*;

const QKEY: u32 = 0x1111_1111;

fn ud() -> PairConfig {
    PairConfig { transport: Transport::Ud { qkey: QKEY }, max_inline: 32, ..PairConfig::default() }
}

/// An end that is ready, with all receives posted.
fn node(pd: &ProtectionDomain, shape: PairConfig) -> TestEnd {
    let mut node = end(pd, shape, ());
    node.control.activate(random_psn()).unwrap();
    node.post_all();
    node
}

fn gid(pd: &ProtectionDomain) -> Gid {
    pd.context().choose_gid(1, None).unwrap()
}

/// The address handle of `end`, as its peers make it of its endpoint.
fn address(pd: &ProtectionDomain, end: &QpControl) -> AddressHandle {
    let gid = gid(pd);
    let told = end.endpoint(1, gid, 0).unwrap();
    pd.create_ah(&told, AhAttr::new(gid.index as u8)).unwrap()
}

fn peer(pd: &ProtectionDomain, from: &mut TestEnd, to: &QpControl) -> PeerId {
    from.send.add_peer(&address(pd, to), to.qp_num(), QKEY).unwrap()
}

/// Two nodes, of which the first knows the second.
fn pair() -> (ProtectionDomain, TestEnd, TestEnd, PeerId) {
    let pd = context().alloc_pd().unwrap();
    let (mut a, b) = (node(&pd, ud()), node(&pd, ud()));
    let to_b = peer(&pd, &mut a, &b.control);
    (pd, a, b, to_b)
}

trait Datagrams {
    fn send_to(&mut self, peer: PeerId, bytes: &[u8]);
    fn receive_from(&mut self) -> (DatagramSource, RecvBuf);
}

impl Datagrams for TestEnd {
    fn send_to(&mut self, peer: PeerId, bytes: &[u8]) {
        self.send.next_slot().expect("a free slot")[..bytes.len()].copy_from_slice(bytes);
        self.send.stage_to(peer, SendOp::Send { len: bytes.len() as u32 }, true).unwrap();
        self.send.post().unwrap();
        self.sent();
    }

    fn receive_from(&mut self) -> (DatagramSource, RecvBuf) {
        let mut got = None;
        self.recvs(1, |recv, completion| {
            let source = completion.source().expect("a message");
            got = Some((source, recv.take(completion).unwrap()));
        });
        got.unwrap()
    }
}

#[test]
fn a_datagram_arrives_without_its_header_which_gives_its_source() {
    let (pd, mut a, mut b, to_b) = pair();
    for len in [0usize, 1, 32, 33, 255, 256] {
        let message: Vec<u8> = (0..len).map(|i| i as u8 ^ 0xa5).collect();
        a.send_to(to_b, &message);
        b.recvs(1, |recv, completion| {
            assert_eq!(completion.byte_len() as usize, len + 40);
            assert_eq!(completion.src_qp(), Some(a.control.qp_num()));
            let source = completion.source().unwrap();
            let got = recv.take_plain(completion).expect("plain, and good");
            assert_eq!(&*got, &message[..]);
            assert_eq!(source.has_grh, got.grh().is_some());
            if let Some(grh) = got.grh() {
                assert_eq!((grh.source, grh.destination), (gid(&pd).gid, gid(&pd).gid));
            }
            assert_eq!(got.as_ptr().align_offset(64), 0, "messages begin at cache lines");
            let slot = recv.reclaim(got).unwrap();
            recv.post(&[slot]).unwrap();
        });
    }
    assert_eq!(a.control.transport(), Transport::Ud { qkey: QKEY });
    assert_eq!(b.control.query().unwrap().state, QpState::RTS);
}

#[test]
fn an_immediate_comes_with_a_datagram() {
    let (_pd, mut a, mut b, to_b) = pair();
    a.send.next_slot().unwrap()[..3].copy_from_slice(b"imm");
    a.send.stage_to(to_b, SendOp::SendImm { len: 3, imm: 0x8000_0007 }, false).unwrap();
    a.send.stage_to(to_b, SendOp::SendImm { len: 0, imm: 8 }, true).unwrap();
    assert_eq!(a.send.post(), Ok(2));
    a.sent();
    let mut seen = Vec::new();
    b.recvs(2, |recv, completion| {
        seen.push((completion.imm(), recv.take(completion).unwrap().to_vec()));
    });
    assert_eq!(seen, [(Some(0x8000_0007), b"imm".to_vec()), (Some(8), Vec::new())]);
}

#[test]
fn pieces_of_a_datagram_have_its_header() {
    let (_pd, mut a, mut b, to_b) = pair();
    a.send_to(to_b, b"front and back");
    let (_, mut message) = b.receive_from();
    let whole = *message.grh_bytes().unwrap();
    let front = message.split_to(5);
    assert_eq!((&*front, &*message), (&b"front"[..], &b" and back"[..]));
    drop(message.clone());
    assert_eq!((*front.grh_bytes().unwrap(), *message.grh_bytes().unwrap()), (whole, whole));
    assert_eq!(front.slice(1..3).grh(), Grh::parse(&whole));
}

#[test]
fn a_datagram_is_as_long_as_the_mtu_and_no_longer() {
    let pd = context().alloc_pd().unwrap();
    let mtu = pd.context().port(1).unwrap().active_mtu.bytes();
    let shape = PairConfig { slot_bytes: mtu as usize + 1, ..ud() };
    let (mut a, mut b) = (node(&pd, shape), node(&pd, shape));
    let to_b = peer(&pd, &mut a, &b.control);
    assert_eq!(a.send.max_datagram(), Some(mtu as usize));
    let over = StageError::OverMtu { len: mtu as usize + 1, mtu: mtu as usize };
    assert_eq!(a.send.stage_to(to_b, SendOp::Send { len: mtu + 1 }, true), Err(over));
    assert_eq!(a.send.staged_total(), 0);
    a.send_to(to_b, &vec![0x42; mtu as usize]);
    assert_eq!(&*b.receive_from().1, &vec![0x42; mtu as usize][..]);
    let connected = end(&pd, PairConfig::default(), ());
    assert_eq!(connected.send.max_datagram(), None);
}

#[test]
fn what_is_not_a_send_to_a_peer_is_refused() {
    let (pd, mut a, mut b, to_b) = pair();
    assert_eq!(a.send.stage(SendOp::Send { len: 1 }, true), Err(StageError::NoPeer));
    assert_eq!(a.send.stage(SendOp::SendImm { len: 0, imm: 0 }, true), Err(StageError::NoPeer));
    assert_eq!(a.send.open_run(1, 1), 0);
    assert!(a.send.stage_next(1, |_| panic!("a datagram needs a peer")).is_err());
    let config = SharedRegionConfig { access: RemoteAccess::ALL, on_demand: false };
    let region = pd.register_shared(Mapping::new(4096).unwrap(), config).unwrap();
    let local = a.send.attach(&region).unwrap();
    let remote = region.remote(0, 8).unwrap();
    let others = [
        SendOp::Write { len: 8, remote },
        SendOp::WriteImm { len: 8, imm: 1, remote },
        SendOp::Read { len: 8, remote },
        SendOp::FetchAdd { remote, add: 1 },
    ];
    for op in others {
        assert_eq!(a.send.stage_to(to_b, op, true), Err(StageError::NotOffered));
        assert_eq!(a.send.stage(op, true), Err(StageError::NotOffered));
        let at = a.send.stage_at(local, 0, op, SendFlags::default());
        assert_eq!(at, Err(StageError::NotOffered));
    }
    assert_eq!(a.send.staged_total(), 0);
    a.send_to(to_b, b"still good");
    assert_eq!(&*b.receive_from().1, b"still good");
}

#[test]
fn a_full_queue_is_an_error_and_a_refusal_changes_nothing() {
    let pd = context().alloc_pd().unwrap();
    let shape = PairConfig { sends: 3, send_slots: 1, ..ud() };
    let (mut a, b) = (node(&pd, shape), node(&pd, ud()));
    let to_b = peer(&pd, &mut a, &b.control);
    let mut stage = |len| a.send.stage_to(to_b, SendOp::Send { len }, true);
    assert_eq!(stage(257), Err(StageError::TooLong { len: 257, slot_bytes: 256 }));
    assert_eq!(stage(1), Ok(()));
    assert_eq!(stage(1), Err(StageError::NoSlot));
    assert_eq!((stage(0), stage(0)), (Ok(()), Ok(())));
    assert_eq!(stage(0), Err(StageError::QueueFull));
    assert_eq!(a.send.staged(), 3);
}

#[test]
fn a_reply_goes_to_where_a_datagram_came_from() {
    let (pd, mut a, mut b, to_b) = pair();
    a.send_to(to_b, b"who are you?");
    let (source, message) = b.receive_from();
    let back = pd.create_reply_ah(1, &source, message.grh().as_ref()).unwrap();
    let to_a = b.send.add_peer(&back, source.qp_num, QKEY).unwrap();
    drop((back, message));
    b.send_to(to_a, b"b");
    assert_eq!(&*a.receive_from().1, b"b");
}

#[test]
fn a_reply_without_a_header_over_ethernet_is_refused() {
    let (pd, mut a, mut b, to_b) = pair();
    a.send_to(to_b, b"x");
    let (source, message) = b.receive_from();
    if pd.context().port(1).unwrap().link_layer != LinkLayer::Ethernet {
        return; // the LID says where
    }
    let error = pd.create_reply_ah(1, &source, None).unwrap_err();
    assert_eq!(error, CreateAhError::NoHeader);
    let mut bytes = *message.grh_bytes().unwrap();
    bytes[36] ^= 0x40; // another destination
    let elsewhere = Grh::parse(&bytes).unwrap();
    let error = pd.create_reply_ah(1, &source, Some(&elsewhere)).unwrap_err();
    assert_eq!(error, CreateAhError::NotOurs { port: 1, gid: elsewhere.destination });
}

#[test]
fn one_queue_pair_serves_many_peers() {
    const PEERS: usize = 5;
    const ROUNDS: u32 = 40;
    let pd = context().alloc_pd().unwrap();
    let mut server = node(&pd, ud());
    let mut clients: Vec<(TestEnd, PeerId)> = (0..PEERS)
        .map(|_| {
            let mut client = node(&pd, ud());
            let to_server = peer(&pd, &mut client, &server.control);
            (client, to_server)
        })
        .collect();
    let mut known: HashMap<u32, PeerId> = HashMap::new();
    for round in 0..ROUNDS {
        for (client, to_server) in &mut clients {
            client.send_to(*to_server, &round.to_le_bytes());
            let (source, message) = server.receive_from();
            assert_eq!(source.qp_num, client.control.qp_num());
            let back = *known.entry(source.qp_num).or_insert_with(|| {
                let at = pd.create_reply_ah(1, &source, message.grh().as_ref()).unwrap();
                server.send.add_peer(&at, source.qp_num, QKEY).unwrap()
            });
            server.send_to(back, &message);
            let slot = server.recv.reclaim(message).unwrap();
            server.recv.post(&[slot]).unwrap();
            let (source, message) = client.receive_from();
            assert_eq!(
                (source.qp_num, &*message),
                (server.control.qp_num(), &round.to_le_bytes()[..])
            );
            let slot = client.recv.reclaim(message).unwrap();
            client.recv.post(&[slot]).unwrap();
        }
    }
    assert_eq!(known.len(), PEERS);
}

#[test]
fn a_wrong_key_and_a_missing_receive_drop_a_datagram() {
    let pd = context().alloc_pd().unwrap();
    let (mut a, mut b) = (node(&pd, ud()), end(&pd, ud(), ()));
    b.control.activate(1).unwrap();
    b.recv.post(&[0]).unwrap();
    let at = address(&pd, &b.control);
    let wrong = a.send.add_peer(&at, b.control.qp_num(), QKEY + 1).unwrap();
    let right = a.send.add_peer(&at, b.control.qp_num(), QKEY).unwrap();
    let absent = a.send.add_peer(&at, 0xfe_fefe, QKEY).unwrap();
    a.send_to(wrong, b"wrong key");
    a.send_to(absent, b"no such peer");
    a.send_to(right, b"first");
    assert_eq!(&*b.receive_from().1, b"first");
    a.send_to(right, b"no receive is posted");
    // Datagrams of one pair of queue pairs go one way on these devices: once another
    // queue pair of the same port has got a later one, this one is lost.
    let mut other = node(&pd, ud());
    let to_other = peer(&pd, &mut a, &other.control);
    a.send_to(to_other, b"later");
    other.receive_from();
    b.recv.post(&[1]).unwrap();
    a.send_to(right, b"second");
    assert_eq!(&*b.receive_from().1, b"second");
    assert_eq!(a.control.state(), Ok(QpState::RTS));
}

#[test]
fn an_oversized_datagram_is_never_shown_in_part() {
    let pd = context().alloc_pd().unwrap();
    let (mut a, mut b) = (node(&pd, ud()), end(&pd, PairConfig { slot_bytes: 16, ..ud() }, ()));
    b.control.activate(1).unwrap();
    b.recv.post(&[0, 1]).unwrap();
    let to_b = peer(&pd, &mut a, &b.control);
    a.send_to(to_b, &[1; 17]);
    a.send_to(to_b, &[2; 16]);
    // Dropped, or told as an error, of which the queue pair may have died.
    b.recvs(1, |recv, completion| match recv.take(completion) {
        Ok(message) => assert_eq!(*message, [2; 16]),
        Err(error) => assert!(matches!(error, TakeError::Failed { slot: 0, .. }), "{error}"),
    });
}

#[test]
fn foreign_address_handles_and_peers_are_refused() {
    let (pd, mut a, mut b, to_b) = pair();
    let mut connected = end(&pd, PairConfig::default(), ());
    let at = address(&pd, &b.control);
    let error = connected.send.add_peer(&at, 1, QKEY).unwrap_err();
    assert_eq!(error, AttachError::Connected { transport: Transport::Rc });
    let staged = connected.send.stage_to(to_b, SendOp::Send { len: 0 }, true);
    assert!(staged.is_err());
    let other = pd.context().alloc_pd().unwrap();
    let foreign = address(&other, &b.control);
    let error = a.send.add_peer(&foreign, 1, QKEY).unwrap_err();
    assert_eq!(error, AttachError::OtherDomain { what: "address handle" });
    let staged = b.send.stage_to(to_b, SendOp::Send { len: 0 }, true);
    assert_eq!(staged, Err(StageError::UnknownPeer), "it is a's");
    let to_a = peer(&pd, &mut b, &a.control);
    assert_eq!(a.send.stage_to(to_a, SendOp::Send { len: 0 }, true), Err(StageError::UnknownPeer));
    assert!(!a.send.remove_peer(to_a));
}

#[test]
fn a_removed_peer_gets_what_was_staged_and_nothing_more() {
    let (pd, mut a, mut b, to_b) = pair();
    a.send.next_slot().unwrap()[..4].copy_from_slice(b"last");
    a.send.stage_to(to_b, SendOp::Send { len: 4 }, true).unwrap();
    assert!(a.send.remove_peer(to_b));
    assert!(!a.send.remove_peer(to_b), "once");
    assert_eq!(a.send.stage_to(to_b, SendOp::Send { len: 0 }, true), Err(StageError::UnknownPeer));
    a.send.post().unwrap();
    a.sent();
    assert_eq!(&*b.receive_from().1, b"last");
    let again = peer(&pd, &mut a, &b.control);
    assert_ne!(again, to_b, "its place is used again, its name is not");
    assert_eq!(a.send.stage_to(to_b, SendOp::Send { len: 0 }, true), Err(StageError::UnknownPeer));
    a.send_to(again, b"back");
    assert_eq!(&*b.receive_from().1, b"back");
}

#[test]
fn peers_come_and_go_many_times() {
    let (pd, mut a, mut b, _) = pair();
    let at = address(&pd, &b.control);
    for round in 0..200u32 {
        let (once, twice) =
            (a.send.add_peer(&at, b.control.qp_num(), QKEY), peer(&pd, &mut a, &b.control));
        for to in [once.unwrap(), twice] {
            a.send_to(to, &round.to_le_bytes());
            let (_, message) = b.receive_from();
            assert_eq!(*message, round.to_le_bytes());
            let slot = b.recv.reclaim(message).unwrap();
            b.recv.post(&[slot]).unwrap();
            assert!(a.send.remove_peer(to));
        }
    }
}

/// A datagram queue pair that receives from the pool of `poster`.
fn on_pool(
    pd: &ProtectionDomain,
    cq: &CompletionQueue,
    transport: Transport,
    poster: &RecvPoster<()>,
) -> Result<QueuePair, CreateQpError> {
    let recv = RecvSide::Shared(poster.shared().unwrap());
    let base = QueuePairConfig::new(cq, cq);
    pd.create_qp(&QueuePairConfig { transport, recv, max_send_wr: 4, ..base }, ())
}

#[test]
fn datagram_queue_pairs_share_a_pool_among_themselves_only() {
    let pd = context().alloc_pd().unwrap();
    let cq = pd.context().create_cq(CqConfig::new(64)).unwrap();
    let (plain, _pool) = pd.create_shared_pool(8, 64, ()).unwrap();
    let (mut poster, mut pool) = pd.create_shared_datagram_pool(8, 64, ()).unwrap();
    assert!(poster.shared().unwrap().is_datagram() && !plain.shared().unwrap().is_datagram());
    let transport = Transport::Ud { qkey: QKEY };
    let error = on_pool(&pd, &cq, transport, &plain).unwrap_err();
    assert_eq!(error, CreateQpError::OtherPool { transport });
    for transport in [Transport::Rc, Transport::Uc] {
        let error = on_pool(&pd, &cq, transport, &poster).unwrap_err();
        assert_eq!(error, CreateQpError::OtherPool { transport });
    }
    assert_eq!(cq.reserved(), 0, "a refused queue pair reserves nothing");
    let receivers = [(); 2].map(|()| on_pool(&pd, &cq, transport, &poster).unwrap());
    poster.post(&[0, 1, 2, 3]).unwrap();
    let mut a = node(&pd, ud());
    for receiver in &receivers {
        receiver.control.activate(3).unwrap();
        let to = peer(&pd, &mut a, &receiver.control);
        a.send_to(to, b"shared");
        completions(&cq, 1, |completion| {
            assert_eq!(completion.qp_num(), receiver.control.qp_num());
            let message = pool.take_prepaid(completion).unwrap();
            assert_eq!(&*message, b"shared");
            assert!(message.grh_bytes().is_some());
        });
    }
}

#[test]
fn the_senders_address_may_go_at_once() {
    let (pd, mut a, mut b, _) = pair();
    let at = address(&pd, &b.control);
    let to_b = a.send.add_peer(&at, b.control.qp_num(), QKEY).unwrap();
    drop((at, pd));
    for _ in 0..4 {
        a.send_to(to_b, b"kept by the queue");
        assert_eq!(&*b.receive_from().1, b"kept by the queue");
    }
}
