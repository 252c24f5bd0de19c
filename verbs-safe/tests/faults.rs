//! A provider that fails where real ones do: what cannot be destroyed is leaked, with
//! all that the device may still touch; what is refused leaves nothing behind.

mod common;

use std::ffi::c_int;
use std::ptr::null_mut;
use std::sync::atomic::{AtomicU32, Ordering};

use common::*;
use verbs_safe::*;
use verbs_sys::{Verbs, ibv_device, ibv_mr, ibv_pd, ibv_qp, ibv_qp_init_attr};

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
fn a_kernel_without_rdma_has_no_devices_and_other_failures_are_told() {
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
fn memory_of_a_queue_pair_that_cannot_be_destroyed_stays_for_the_device_to_write_to() {
    let pd = pd_of(faulty(|v| v.destroy_qp = busy_qp));
    let (mut a, b) = pair_on(&pd, Shape { recv_slots: 4, ..Shape::default() });
    let recv_cq = b.recv_cq.clone();
    drop(b); // its queue pair lives on, with four receives posted
    for _ in 0..4 {
        a.send(&[7; 200]);
        a.sent();
    }
    completions(&recv_cq, 4, |completion| assert!(completion.is_success()));
    assert_eq!(recv_cq.reserved(), 4, "they are still outstanding");
}

#[test]
fn memory_that_cannot_be_deregistered_stays_mapped() {
    let pd = pd_of(faulty(|v| v.dereg_mr = busy_mr));
    let (mut a, b) = pair_on(&pd, Shape::default());
    let config = SharedRegionConfig { access: RemoteAccess::ALL, on_demand: false };
    let region = pd.register_shared(Mapping::new(4096).unwrap(), config).unwrap();
    let remote = region.remote(0, 8).unwrap();
    drop(region);
    a.send.stage(SendOp::Write { len: 8, remote }, true).unwrap();
    a.send.post().unwrap();
    a.sent(); // the device has written there
    drop((a, b));
}

/// What a device takes inline, that this provider pretends to be.
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
    let end = end(&pd, Shape { max_inline: 512, ..Shape::default() }, ());
    assert_eq!(end.send.max_inline(), 64);
    assert_eq!(ATTEMPTS.load(Ordering::Relaxed), 4, "512, 256, 128, 64");
}

extern "C" fn no_qp(_pd: *mut ibv_pd, _attr: *mut ibv_qp_init_attr) -> *mut ibv_qp {
    set_errno(libc::EPERM);
    null_mut()
}

#[test]
fn a_refused_queue_pair_leaves_nothing_behind() {
    let pd = pd_of(faulty(|v| v.create_qp = no_qp));
    let cq = pd.context().create_cq(CqConfig::new(64)).unwrap();
    let error = pd.create_qp(&config((&cq, &cq), Shape::default()), ()).unwrap_err();
    let CreateQpError::Refused { max_send_wr, max_recv_wr, errno, .. } = error else {
        panic!("{error}")
    };
    assert_eq!((max_send_wr, max_recv_wr, errno.raw()), (16, 16, libc::EPERM));
    assert_eq!(cq.reserved(), 0);
}
