//! A provider that fails where real ones do: what cannot be destroyed is leaked, with
//! all that the device may still touch; what is refused leaves nothing behind.
//!
//! Only on soft0: its provider fails at will, and is made of soft0.

mod common;

use std::ffi::{c_int, c_void};
use std::ptr::null_mut;
use std::sync::atomic::{AtomicU32, Ordering};

use common::*;
use verbs_safe::*;
use verbs_sys::{Verbs, ibv_ah, ibv_ah_attr, ibv_device, ibv_mr, ibv_pd, ibv_qp, ibv_qp_init_attr};

fn set_errno(errno: c_int) {
    // SAFETY: the address is that of this thread's errno.
    unsafe { *libc::__errno_location() = errno }
}

/// soft0's functions, some of them replaced.
fn faulty(change: fn(&mut Verbs)) -> Table {
    let mut verbs: Verbs = *soft_rnic::table();
    change(&mut verbs);
    // SAFETY: each replacement does what its manual page permits: it fails, and says so.
    unsafe { Table::new(Box::leak(Box::new(verbs))) }
}

fn pd_of(table: Table) -> ProtectionDomain {
    let devices = devices(table).unwrap();
    devices.iter().find(|d| d.name() == "soft0").unwrap().open().unwrap().alloc_pd().unwrap()
}

extern "C" fn no_devices(_count: *mut c_int) -> *mut *mut ibv_device {
    set_errno(libc::ENOSYS);
    null_mut()
}

extern "C" fn no_permission(_count: *mut c_int) -> *mut *mut ibv_device {
    set_errno(libc::EACCES);
    null_mut()
}

#[test]
fn a_kernel_without_rdma_has_an_empty_device_list() {
    assert_eq!(devices(faulty(|v| v.get_device_list = no_devices)).unwrap().len(), 0);
    let error = devices(faulty(|v| v.get_device_list = no_permission)).unwrap_err();
    assert_eq!(error.errno.raw(), libc::EACCES);
}

extern "C" fn busy_qp(_qp: *mut ibv_qp) -> c_int {
    libc::EBUSY
}

extern "C" fn busy_mr(_mr: *mut ibv_mr) -> c_int {
    set_errno(libc::EBUSY);
    -1
}

#[test]
fn memory_of_an_undestroyable_queue_pair_stays_registered() {
    let pd = pd_of(faulty(|v| v.destroy_qp = busy_qp));
    let (mut a, b) = pair_on(&pd, PairConfig { recv_slots: 4, ..PairConfig::default() });
    let recv_cq = b.recv_cq.clone();
    drop(b); // its queue pair lives on, with four receives posted
    for _ in 0..4 {
        a.send(&[7; 200]);
        a.sent();
    }
    completions(&recv_cq, 4, |completion| assert!(completion.is_success()));
    assert_eq!(recv_cq.reserved(), 4, "they are still outstanding");
}

static DEREGISTERED: AtomicU32 = AtomicU32::new(0);

extern "C" fn counted_mr(mr: *mut ibv_mr) -> c_int {
    DEREGISTERED.fetch_add(1, Ordering::Relaxed);
    // SAFETY: callers of this function keep the contract of that one.
    unsafe { (soft_rnic::table().dereg_mr)(mr) }
}

#[test]
fn a_loan_stays_registered_while_a_request_may_use_it() {
    let pd = pd_of(faulty(|v| v.dereg_mr = counted_mr));
    let gone = || DEREGISTERED.load(Ordering::Relaxed);
    let theirs = pd.register_buffer(64, BufferConfig::READABLE).unwrap();
    let remote = theirs.remote(0, 64).unwrap();
    for is_used in [true, false] {
        let (a, _b) = pair_on(&pd, PairConfig::default());
        let TestEnd { control, mut send, recv, .. } = a;
        let loan = send.lend(pd.register_buffer(64, BufferConfig::default()).unwrap()).unwrap();
        if is_used {
            let op = SendOp::Read { len: 64, remote };
            send.stage_lent(loan, 0, op, SendFlags::default()).unwrap();
            send.post().unwrap();
        }
        let before = gone();
        drop(send);
        assert_eq!(
            gone() - before,
            u32::from(!is_used),
            "only the completion says that it is over"
        );
        drop((control, recv));
        assert!(gone() > before, "it went with its queue pair");
    }
}

#[test]
fn memory_that_cannot_be_deregistered_stays_mapped() {
    let pd = pd_of(faulty(|v| v.dereg_mr = busy_mr));
    let (mut a, b) = pair_on(&pd, PairConfig::default());
    let config = SharedRegionConfig { access: RemoteAccess::ALL, on_demand: false };
    let region = pd.register_shared(Mapping::new(4096).unwrap(), config).unwrap();
    let remote = region.remote(0, 8).unwrap();
    drop(region);
    a.send.stage(SendOp::Write { len: 8, remote }, true).unwrap();
    a.send.post().unwrap();
    a.sent(); // the device has written there
    drop((a, b));
}

/// Bytes that this provider's device, as it pretends, takes inline.
const INLINE: u32 = 100;

extern "C" fn little_inline(pd: *mut ibv_pd, attr: *mut ibv_qp_init_attr) -> *mut ibv_qp {
    ATTEMPTS.fetch_add(1, Ordering::Relaxed);
    // SAFETY: the arguments are the caller's.
    unsafe {
        if (*attr).cap.max_inline_data > INLINE {
            set_errno(libc::EINVAL);
            return null_mut();
        }
        (soft_rnic::table().create_qp)(pd, attr)
    }
}

static ATTEMPTS: AtomicU32 = AtomicU32::new(0);

#[test]
fn what_the_device_takes_inline_is_found_by_asking_for_less() {
    let pd = pd_of(faulty(|v| v.create_qp = little_inline));
    let end = end(&pd, PairConfig { max_inline: 512, ..PairConfig::default() }, ());
    assert_eq!(end.send.max_inline(), 64);
    assert_eq!(ATTEMPTS.load(Ordering::Relaxed), 4, "512, 256, 128, 64");
}

extern "C" fn no_qp(_pd: *mut ibv_pd, _attr: *mut ibv_qp_init_attr) -> *mut ibv_qp {
    set_errno(libc::EPERM);
    null_mut()
}

#[test]
fn a_refused_queue_pair_reserves_nothing_and_is_described() {
    let pd = pd_of(faulty(|v| v.create_qp = no_qp));
    let cq = pd.context().create_cq(CqConfig::new(64)).unwrap();
    for transport in [Transport::Rc, Transport::Uc, Transport::Ud { qkey: QKEY }] {
        let shape = PairConfig { transport, ..PairConfig::default() };
        let error = pd.create_qp(&config((&cq, &cq), shape), ()).unwrap_err();
        let text = error.to_string();
        assert!(text.contains(&format!("of transport {transport}, 16 sends")), "{text}");
        let CreateQpError::Refused { max_send_wr, max_recv_wr, errno, .. } = error else {
            panic!("{error}")
        };
        assert_eq!((max_send_wr, max_recv_wr, errno.raw()), (16, 16, libc::EPERM));
    }
    assert_eq!(cq.reserved(), 0);
}

/// Registers the first page only: requests from behind it fail.
extern "C" fn one_page(
    pd: *mut ibv_pd,
    addr: *mut c_void,
    length: usize,
    access: c_int,
) -> *mut ibv_mr {
    // SAFETY: the arguments are the caller's.
    unsafe { (soft_rnic::table().reg_mr)(pd, addr, length.min(PAGE), access) }
}

const PAGE: usize = 4096;

/// Two ends whose send slots from the third on cannot be read by the device.
fn ends_that_will_fail(transport: Transport) -> (ProtectionDomain, TestEnd, TestEnd) {
    let pd = pd_of(faulty(|v| v.reg_mr = one_page));
    let shape =
        PairConfig { transport, slot_bytes: PAGE / 2, recv_slots: 2, ..PairConfig::default() };
    let (mut a, mut b) = (end(&pd, shape, ()), end(&pd, shape, ()));
    if transport.is_datagram() {
        a.control.activate(1).unwrap();
        b.control.activate(2).unwrap();
    } else {
        connect_with(&a.control, &b.control, shape);
    }
    a.recv.post(&[0]).unwrap();
    b.recv.post(&[0]).unwrap();
    (pd, a, b)
}

const QKEY: u32 = 7;

/// Stages a SEND of `len` bytes to the peer, whatever the transport.
fn stage(end: &mut TestEnd, peer: Option<PeerId>, len: u32) {
    match peer {
        Some(peer) => end.send.stage_to(peer, SendOp::Send { len }, true).unwrap(),
        None => end.send.stage(SendOp::Send { len }, true).unwrap(),
    }
}

/// The peer of `from`, where one has to be named.
fn peer(pd: &ProtectionDomain, from: &mut TestEnd, to: &TestEnd) -> Option<PeerId> {
    if !from.control.transport().is_datagram() {
        return None;
    }
    let gid = pd.context().choose_gid(1, None).unwrap();
    let told = to.control.endpoint(1, gid, 0).unwrap();
    let address = pd.create_ah(&told, AhAttr::new(gid.index as u8)).unwrap();
    Some(from.send.add_peer(&address, to.control.qp_num(), QKEY).unwrap())
}

#[test]
fn a_failed_unreliable_queue_pair_receives_and_can_resume() {
    for transport in [Transport::Uc, Transport::Ud { qkey: QKEY }] {
        let (pd, mut a, mut b) = ends_that_will_fail(transport);
        let (to_b, to_a) = (peer(&pd, &mut a, &b), peer(&pd, &mut b, &a));
        for len in [0, 1, 1, 1, 0] {
            stage(&mut a, to_b, len); // the fourth is from the third slot
        }
        a.send.post().unwrap();
        let mut ends = Vec::new();
        a.sends(5, |send, completion| {
            ends.push(completion.status());
            send.retire(&completion).unwrap();
        });
        let (good, flushed) = (WcStatus::SUCCESS, WcStatus::WR_FLUSH);
        assert_eq!(ends, [good, good, good, WcStatus::LOC_PROT, flushed], "{transport}");
        assert_eq!(a.control.state(), Ok(QpState::SQE));
        assert_eq!(QpState::SQE.name(), "SQE");
        stage(&mut b, to_a, 1);
        b.send.post().unwrap();
        assert_eq!(a.receive().len(), 1, "it keeps receiving");
        a.control.resume_sends().unwrap();
        assert_eq!(a.control.state(), Ok(QpState::RTS));
        stage(&mut a, to_b, 0);
        a.send.post().unwrap();
        a.sent();
        assert_eq!(a.send.retired_total(), 6);
        assert!(a.control.resume_sends().is_err(), "they have not stopped");
    }
}

#[test]
fn a_reliable_queue_pair_whose_send_failed_has_failed() {
    let (_pd, mut a, _b) = ends_that_will_fail(Transport::Rc);
    for _ in 0..3 {
        a.send.stage(SendOp::Send { len: 1 }, true).unwrap();
    }
    a.send.post().unwrap();
    a.sends(3, |send, completion| {
        let _ = send.retire(&completion);
    });
    assert_eq!(a.control.state(), Ok(QpState::ERR));
    let error = a.control.resume_sends().unwrap_err();
    assert_eq!((error.from, error.to), (QpState::ERR, QpState::RTS), "{error}");
}

#[test]
fn a_library_that_cannot_tell_promises_no_order() {
    let promise = |table| end(&pd_of(table), PairConfig::default(), ()).control.data_in_order();
    assert!(promise(soft_rnic::table()), "the software device does promise it");
    assert!(!promise(faulty(|v| v.query_qp_data_in_order = None)));
}

extern "C" fn no_ah(_pd: *mut ibv_pd, _attr: *mut ibv_ah_attr) -> *mut ibv_ah {
    set_errno(libc::ENETUNREACH);
    null_mut()
}

extern "C" fn busy_ah(_ah: *mut ibv_ah) -> c_int {
    libc::EBUSY
}

#[test]
fn an_unroutable_address_is_refused_and_a_busy_one_is_leaked() {
    let gid = [9; 16];
    let nowhere = Endpoint { qp_num: 1, psn: 0, lid: 0, gid };
    let error = pd_of(faulty(|v| v.create_ah = no_ah)).create_ah(&nowhere, AhAttr::new(0));
    let CreateAhError::Refused(errno) = error.unwrap_err() else { panic!("refused otherwise") };
    assert_eq!(errno.raw(), libc::ENETUNREACH);
    let pd = pd_of(faulty(|v| v.destroy_ah = busy_ah));
    drop(pd.create_ah(&nowhere, AhAttr::new(0)).unwrap());
    drop(pd); // which is leaked with it
}
