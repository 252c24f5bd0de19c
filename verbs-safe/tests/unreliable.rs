//! Unreliable connections: what they carry, what they refuse, and what they drop
//! without a word.
//!
//! Only on soft0, rxe0: it takes devices of soft-rnic by no other name.

mod common;

use common::*;
use verbs_safe::*;

fn uc() -> PairConfig {
    PairConfig { transport: Transport::Uc, max_inline: 32, ..PairConfig::default() }
}

/// Two connected ends of which none has posted a receive.
fn unready_pair() -> (TestEnd, TestEnd) {
    let pd = context().alloc_pd().unwrap();
    let (a, b) = (end(&pd, uc(), ()), end(&pd, uc(), ()));
    connect_with(&a.control, &b.control, uc());
    (a, b)
}

#[test]
fn sends_of_all_sizes_arrive_with_and_without_an_immediate() {
    let (mut a, mut b) = pair(uc());
    for len in [0usize, 1, 32, 33, 256] {
        let message: Vec<u8> = (0..len).map(|i| i as u8 ^ 0x5a).collect();
        a.send(&message);
        a.sent();
        let got = b.receive();
        assert_eq!((&*got, got.grh()), (&message[..], None));
        a.send.stage(SendOp::SendImm { len: 0, imm: len as u32 }, true).unwrap();
        a.send.post().unwrap();
        a.sent();
        b.recvs(1, |recv, completion| {
            assert_eq!(completion.imm(), Some(len as u32));
            drop(recv.take(completion));
        });
    }
    assert_eq!(a.control.transport(), Transport::Uc);
    assert_eq!(a.control.state(), Ok(QpState::RTS));
}

#[test]
fn writes_arrive_and_take_a_receive_with_an_immediate() {
    let pd = context().alloc_pd().unwrap();
    let (mut a, mut b) = pair_on(&pd, uc());
    let config = SharedRegionConfig { access: RemoteAccess::ALL, on_demand: false };
    let region = pd.register_shared(Mapping::new(4096).unwrap(), config).unwrap();
    let remote = region.remote(100, 6).unwrap();
    a.send.next_slot().unwrap()[..6].copy_from_slice(b"silent");
    a.send.stage(SendOp::Write { len: 6, remote }, false).unwrap();
    let remote = region.remote(200, 4).unwrap();
    a.send.next_slot().unwrap()[..4].copy_from_slice(b"loud");
    a.send.stage(SendOp::WriteImm { len: 4, imm: 4, remote }, true).unwrap();
    assert_eq!(a.send.post(), Ok(2));
    a.sent();
    b.recvs(1, |recv, completion| {
        assert!(completion.is_write_imm());
        assert_eq!((completion.imm(), completion.byte_len()), (Some(4), 4));
        assert!(recv.take(completion).unwrap().is_empty());
    });
    let mut bytes = [0; 106];
    region.copy_out(100, &mut bytes).unwrap();
    assert_eq!((&bytes[..6], &bytes[100..104]), (&b"silent"[..], &b"loud"[..]));
}

#[test]
fn reads_and_atomics_are_refused_when_they_are_staged() {
    let pd = context().alloc_pd().unwrap();
    let (mut a, _b) = pair_on(&pd, uc());
    let config = SharedRegionConfig { access: RemoteAccess::ALL, on_demand: false };
    let region = pd.register_shared(Mapping::new(4096).unwrap(), config).unwrap();
    let (local, remote) = (a.send.attach(&region).unwrap(), region.remote(0, 8).unwrap());
    let reads = [
        SendOp::Read { len: 8, remote },
        SendOp::FetchAdd { remote, add: 1 },
        SendOp::CmpSwap { remote, compare: 0, swap: 1 },
    ];
    for op in reads {
        assert_eq!(a.send.stage(op, true), Err(StageError::NotOffered));
        let flags = SendFlags::default();
        assert_eq!(a.send.stage_at(local, 0, op, flags), Err(StageError::NotOffered));
    }
    assert_eq!((a.send.staged_total(), a.send.post()), (0, Ok(0)));
}

#[test]
fn a_message_without_a_receive_is_gone_and_the_next_one_arrives() {
    let (mut a, mut b) = unready_pair();
    a.send(b"lost");
    a.sent(); // it was sent, which is all that is known
    a.fence(&mut b);
    b.post_all();
    a.send(b"arrives");
    a.sent();
    assert_eq!(&*b.receive(), b"arrives");
    assert!(b.is_quiet());
}

trait Fence {
    fn fence(&mut self, peer: &mut Self);
}

impl Fence for TestEnd {
    /// Waits until all that was sent has arrived, or is lost: the queue pair delivers in
    /// order, and a WRITE is seen to have arrived.
    fn fence(&mut self, peer: &mut TestEnd) {
        let config = SharedRegionConfig { access: RemoteAccess::ALL, on_demand: false };
        let pd = peer.control.protection_domain();
        let region = pd.register_shared(Mapping::new(8).unwrap(), config).unwrap();
        let remote = region.remote(0, 1).unwrap();
        self.send.next_slot().unwrap()[0] = 1;
        self.send.stage(SendOp::Write { len: 1, remote }, true).unwrap();
        self.send.post().unwrap();
        self.sent();
        let deadline = std::time::Instant::now() + PATIENCE;
        while region.observe_byte(0).unwrap() == 0 {
            assert!(std::time::Instant::now() < deadline, "the write did not arrive");
            std::thread::yield_now();
        }
    }
}

#[test]
fn a_write_that_the_peer_does_not_permit_is_dropped() {
    let pd = context().alloc_pd().unwrap();
    let (mut a, mut b) = pair_on(&pd, uc());
    let read_only = RemoteAccess { read: true, ..RemoteAccess::NONE };
    let config = SharedRegionConfig { access: read_only, on_demand: false };
    let region = pd.register_shared(Mapping::new(4096).unwrap(), config).unwrap();
    region.fill(0, 8, 7).unwrap();
    a.send.next_slot().unwrap()[..8].fill(9);
    let remote = region.remote(0, 8).unwrap();
    a.send.stage(SendOp::Write { len: 8, remote }, true).unwrap();
    a.send.post().unwrap();
    a.sent();
    let old = b.control.state().unwrap();
    if old == QpState::RTS {
        a.fence(&mut b);
    }
    assert_eq!(region.load_u64(0), Ok(u64::from_ne_bytes([7; 8])));
}

#[test]
fn a_peer_that_is_gone_is_not_missed() {
    let (mut a, b) = pair(uc());
    drop(b);
    for _ in 0..3 {
        a.send(b"to no peer");
        a.sent();
    }
    assert_eq!(a.control.state(), Ok(QpState::RTS));
}

#[test]
fn each_transport_is_made_ready_in_its_own_way() {
    let pd = context().alloc_pd().unwrap();
    let gid = pd.context().choose_gid(1, None).unwrap();
    for transport in [Transport::Rc, Transport::Uc, Transport::Ud { qkey: 5 }] {
        let end = end(&pd, PairConfig { transport, ..PairConfig::default() }, ());
        let own = end.control.endpoint(1, gid, 9).unwrap();
        let attr = ConnectAttr::new(gid.index as u8, 9);
        let datagrams = transport.is_datagram();
        let wrong =
            if datagrams { end.control.connect(&own, &attr) } else { end.control.activate(9) };
        let error = wrong.unwrap_err();
        assert_eq!((error.from, error.to), (QpState::INIT, QpState::RTR), "{error}");
        assert!(!error.detail.is_empty());
        if datagrams { end.control.activate(9) } else { end.control.connect(&own, &attr) }.unwrap();
        assert_eq!(end.control.query().unwrap().sq_psn, 9, "{transport}");
        let error = end.control.resume_sends().unwrap_err();
        assert_eq!((error.from, error.to), (QpState::RTS, QpState::RTS), "{error}");
    }
    let end =
        end(&pd, PairConfig { transport: Transport::Ud { qkey: 5 }, ..PairConfig::default() }, ());
    assert!(end.control.activate(1 << 24).is_err(), "24 bits");
}
