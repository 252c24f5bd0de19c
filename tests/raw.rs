//! Raw queue pairs: every transport over the handshake, and peers that do not fit.

use std::io::Write;
use std::os::unix::net::UnixStream;

use rdma_conn::conn_core::handshake::{Frame, Options, Parameters, ProtocolId, Reason};
use rdma_conn::conn_core::raw::{Offer as WireOffer, Transport as WireTransport};
use rdma_conn::device::Device;
use rdma_conn::handshake::HandshakeError;
use rdma_conn::raw::{Incoming, Offer, RawEnd, RawPeer};
use rdma_conn::send_recv::ConnectError;
use rdma_conn::verbs_safe::{
    CompletionBatch, CompletionQueue, CqConfig, Mapping, QueuePairConfig, RecvSide, RemoteAccess,
    RemoteSpan, SendOp, SharedRegionConfig, Transport,
};

mod support;

use support::raw::{parameters, read_frame, write_frame};
use support::{bounded, device};

const TRANSPORTS: [Transport; 3] =
    [Transport::Rc, Transport::Uc, Transport::Ud { qkey: 0x1234_5678 }];

/// A queue pair with four receives posted, and its completion queue.
fn end(device: &Device, transport: Transport) -> (RawEnd, CompletionQueue) {
    let cq = device.context().create_cq(CqConfig::new(64)).unwrap();
    let config = QueuePairConfig {
        transport,
        access: RemoteAccess { write: true, ..RemoteAccess::NONE },
        max_send_wr: 8,
        send_slots: 8,
        send_slot_bytes: 64,
        recv: RecvSide::Own { slots: 4, slot_bytes: 64 },
        ..QueuePairConfig::new(&cq, &cq)
    };
    let mut end = RawEnd::new(device, &config, support::link(support::budget::LIVING)).unwrap();
    end.queues.recv.as_mut().unwrap().post(&[0, 1, 2, 3]).unwrap();
    (end, cq)
}

type JoinResults = (Result<RawPeer, ConnectError>, Result<RawPeer, ConnectError>);

/// Joins two ends; returns what each then knows of the other.
fn join(
    near: &mut RawEnd,
    far: &mut RawEnd,
    near_says: &Offer<'_>,
    far_says: &Offer<'_>,
) -> JoinResults {
    let (mut a, mut b) = UnixStream::pair().unwrap();
    std::thread::scope(|scope| {
        let accepting = scope.spawn(|| Incoming::greet(&mut b)?.accept(far, far_says));
        let connected = near.connect(&mut a, near_says);
        (connected, accepting.join().unwrap())
    })
}

fn said(user: &[u8]) -> Offer<'_> {
    Offer { memory: None, user }
}

/// Sends `bytes` to the peer, and waits until they have arrived there.
fn deliver(
    from: &mut RawEnd,
    peer: &RawPeer,
    to: &mut RawEnd,
    to_cq: &CompletionQueue,
    bytes: &[u8],
) {
    let send = &mut from.queues.send;
    send.next_slot().unwrap()[..bytes.len()].copy_from_slice(bytes);
    let op = SendOp::Send { len: bytes.len() as u32 };
    match peer.id {
        Some(id) => send.stage_to(id, op, false).unwrap(),
        None => send.stage(op, false).unwrap(),
    }
    send.post().unwrap();
    let recv = to.queues.recv.as_mut().unwrap();
    let mut batch = CompletionBatch::new(8);
    loop {
        to_cq.poll(&mut batch).unwrap();
        for completion in batch.drain() {
            if completion.queue_id() == recv.queue_id() {
                assert_eq!(&*recv.take(completion).unwrap(), bytes);
                return;
            }
        }
        std::thread::yield_now();
    }
}

#[test]
fn every_transport_is_joined_and_carries_messages_both_ways() {
    bounded(|| {
        let device = device();
        for transport in TRANSPORTS {
            let ((mut near, near_cq), (mut far, far_cq)) =
                (end(&device, transport), end(&device, transport));
            let (at_near, at_far) = join(&mut near, &mut far, &said(b"near"), &said(b"far"));
            let (of_far, of_near) = (at_near.unwrap(), at_far.unwrap());
            assert_eq!((&of_far.user[..], &of_near.user[..]), (&b"far"[..], &b"near"[..]));
            assert_eq!(of_far.endpoint, far.endpoint());
            assert_eq!((of_near.recv_slots, of_near.recv_slot_bytes), (4, 64));
            deliver(&mut near, &of_far, &mut far, &far_cq, b"there");
            deliver(&mut far, &of_near, &mut near, &near_cq, b"and back");
        }
    });
}

#[test]
fn one_queue_pair_for_datagrams_has_many_peers() {
    bounded(|| {
        let (device, transport) = (device(), TRANSPORTS[2]);
        let (mut server, server_cq) = end(&device, transport);
        for number in 0..4 {
            let (mut client, client_cq) = end(&device, transport);
            let (at_client, at_server) = join(&mut client, &mut server, &said(b""), &said(b""));
            let (of_server, of_client) = (at_client.unwrap(), at_server.unwrap());
            deliver(&mut client, &of_server, &mut server, &server_cq, &[number]);
            deliver(&mut server, &of_client, &mut client, &client_cq, &[number, number]);
        }
    });
}

/// One end serves many: peers that vanish before they are ready leave nothing behind.
#[test]
fn a_datagram_peer_that_never_gets_ready_is_forgotten() {
    bounded(|| {
        let device = device();
        let datagrams = Transport::Ud { qkey: 7 };
        let (mut one, _) = end(&device, datagrams);
        let offer = WireOffer { transport: WireTransport::Ud, qkey: 7, memory: None, user: b"" };
        let mut application = [0; 28];
        offer.encode(&mut application).unwrap();
        for _ in 0..3 {
            let (mut a, mut b) = UnixStream::pair().unwrap();
            a.write_all(&hello(|_| {}, &application)).unwrap();
            a.shutdown(std::net::Shutdown::Write).unwrap();
            let refused = Incoming::greet(&mut b).unwrap().accept(&mut one, &said(b""));
            assert!(refused.is_err(), "{refused:?}");
        }
        let (mut peer, _) = end(&device, datagrams);
        let joined = join(&mut peer, &mut one, &said(b""), &said(b"")).1.unwrap();
        // Places are taken again, so the first one to stay has the first place.
        let id = format!("{:?}", joined.id.unwrap());
        assert!(id.contains("index: 0,"), "{id}");
    });
}

#[test]
fn memory_is_offered_with_what_it_takes_to_reach_it() {
    bounded(|| {
        let device = device();
        let ((mut near, near_cq), (mut far, _)) =
            (end(&device, Transport::Rc), end(&device, Transport::Rc));
        let access = RemoteAccess { write: true, ..RemoteAccess::NONE };
        let config = SharedRegionConfig { access, on_demand: false };
        let memory = device.pd().register_shared(Mapping::new(4096).unwrap(), config).unwrap();
        let offer = Offer { memory: Some(memory.remote(8, 100).unwrap()), user: b"" };
        let (at_near, at_far) = join(&mut near, &mut far, &said(b""), &offer);
        assert_eq!(at_far.unwrap().memory, None);
        let remote: RemoteSpan = at_near.unwrap().memory.unwrap();
        assert_eq!(Some(remote), offer.memory);
        let send = &mut near.queues.send;
        send.next_slot().unwrap()[..5].copy_from_slice(b"bytes");
        send.stage(SendOp::Write { len: 5, remote }, true).unwrap();
        send.post().unwrap();
        let mut batch = CompletionBatch::new(1);
        while near_cq.poll(&mut batch).unwrap() == 0 {
            std::thread::yield_now();
        }
        let mut bytes = [0; 5];
        memory.copy_out(8, &mut bytes).unwrap();
        assert_eq!(&bytes, b"bytes");
    });
}

#[test]
fn ends_of_different_transports_get_an_error() {
    bounded(|| {
        let device = device();
        for (here, there) in [(0, 1), (1, 2), (2, 0)] {
            let (mut near, _) = end(&device, TRANSPORTS[here]);
            let (mut far, _) = end(&device, TRANSPORTS[there]);
            let (at_near, at_far) = join(&mut near, &mut far, &said(b""), &said(b""));
            for refused in [at_near.unwrap_err(), at_far.unwrap_err()] {
                assert!(refused.to_string().contains("queue pair is"), "{refused}");
            }
        }
    });
}

#[test]
fn what_does_not_fit_an_offer_is_refused_here() {
    let device = device();
    let (mut near, _) = end(&device, Transport::Rc);
    let (mut a, _b) = UnixStream::pair().unwrap();
    let long = [0; Offer::MAX_USER + 1];
    assert!(near.connect(&mut a, &said(&long)).is_err());
    let beyond = RemoteSpan { addr: u64::MAX, rkey: 0, len: 2 };
    assert!(near.connect(&mut a, &Offer { memory: Some(beyond), user: b"" }).is_err());
}

/// The error at the accepting end, and the answer, to a client that sends `bytes`.
fn answer_to(bytes: &[u8]) -> (ConnectError, Option<Vec<u8>>) {
    let (mut a, mut b) = UnixStream::pair().unwrap();
    a.write_all(bytes).unwrap();
    a.shutdown(std::net::Shutdown::Write).unwrap();
    let refused = Incoming::greet(&mut b).unwrap_err();
    drop(b);
    (refused, read_frame(&mut a))
}

fn hello(change: impl FnOnce(&mut Parameters<'_>), application: &[u8]) -> Vec<u8> {
    let endpoint = rdma_conn::conn_core::handshake::Endpoint {
        qp_num: 1,
        psn: 2,
        recv_depth: 3,
        max_message: 4,
    };
    let mut hello = Parameters {
        protocol: ProtocolId::RAW,
        initiator_to_acceptor: Some(endpoint),
        application,
        ..parameters(&device(), Options::NONE)
    };
    change(&mut hello);
    let mut bytes = Vec::new();
    write_frame(&mut bytes, &Frame::Hello(hello));
    bytes
}

#[test]
fn strangers_are_refused_with_the_reason() {
    bounded(|| {
        let offer = WireOffer { transport: WireTransport::Rc, qkey: 0, memory: None, user: b"" };
        let mut good = [0; 28];
        offer.encode(&mut good).unwrap();
        let mut odd = good;
        odd[0] = 9;
        let connection = |p: &mut Parameters<'_>| p.protocol = ProtocolId::SEND_RECV;
        let backwards = |p: &mut Parameters<'_>| {
            p.acceptor_to_initiator = p.initiator_to_acceptor.take();
        };
        let cases: [(Vec<u8>, Reason, &str); 5] = [
            (hello(connection, &good), Reason::PROTOCOL, "raw queue pairs"),
            (hello(backwards, &good), Reason::PARAMETERS, "direction"),
            (hello(|_| {}, b"short"), Reason::PARAMETERS, "5 bytes"),
            (hello(|_| {}, &odd), Reason::PARAMETERS, "transport 9"),
            (b"GET / HTTP/1.1\r\n".to_vec(), Reason::PROTOCOL, "does not speak"),
        ];
        for (bytes, reason, says) in cases {
            let (refused, answer) = answer_to(&bytes);
            assert!(refused.to_string().contains(says), "{refused}");
            let answer = answer.expect("an answer");
            match rdma_conn::conn_core::handshake::decode(&answer).unwrap().frame {
                Frame::Refuse(refusal) => assert_eq!(refusal.reason, reason, "{says}"),
                other => panic!("{other:?}"),
            }
        }
    });
}

#[test]
fn an_answer_out_of_order_ends_the_handshake() {
    bounded(|| {
        let device = device();
        let (mut near, _) = end(&device, Transport::Rc);
        let (mut a, mut b) = UnixStream::pair().unwrap();
        let peer = std::thread::spawn(move || {
            read_frame(&mut b).expect("a Hello");
            write_frame(&mut b, &Frame::Ready);
            read_frame(&mut b)
        });
        let refused = near.connect(&mut a, &said(b"")).unwrap_err();
        let out_of_order = |e: &HandshakeError| matches!(e, HandshakeError::OutOfOrder { .. });
        assert!(matches!(&refused, ConnectError::Handshake(e) if out_of_order(e)), "{refused}");
        assert!(peer.join().unwrap().is_some(), "it is told");
    });
}

#[test]
fn an_application_may_refuse() {
    bounded(|| {
        let device = device();
        let (mut near, _) = end(&device, Transport::Rc);
        let (mut a, mut b) = UnixStream::pair().unwrap();
        let refusing = std::thread::spawn(move || {
            let incoming = Incoming::greet(&mut b).unwrap();
            assert_eq!(incoming.peer().user, b"please");
            assert_eq!(incoming.transport(), WireTransport::Rc);
            incoming.refuse("not today");
        });
        let refused = near.connect(&mut a, &said(b"please")).unwrap_err();
        assert!(refused.to_string().contains("not today"), "{refused}");
        refusing.join().unwrap();
    });
}
