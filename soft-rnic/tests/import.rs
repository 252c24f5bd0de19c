//! Importing a device, and objects by their handles, within the process.
//!
//! Not on rxe0: it imports descriptors and handles of soft0.

mod common;

use core::ffi::c_int;
use core::ptr::null_mut;
use std::os::fd::{AsRawFd, BorrowedFd, IntoRawFd, OwnedFd, RawFd};

use common::import::*;
use common::other::*;
use common::*;
use rustix::fs::{MemfdFlags, SealFlags, fcntl_add_seals, fstat, memfd_create};
use soft_rnic::{
    import_device, import_dm, import_mr, import_pd, unimport_dm, unimport_mr, unimport_pd,
};
use verbs_sys::*;

/// The error of an import that fails.
fn refused(fd: RawFd) -> c_int {
    // SAFETY: it is not taken where this fails.
    assert!(unsafe { import_device(fd) }.is_null());
    errno()
}

fn pd_handle(pd: *mut ibv_pd) -> u32 {
    // SAFETY: the domain is alive.
    unsafe { (*pd).handle }
}

/// Returns the device and the inode of a descriptor's file, if it is open.
fn file(fd: RawFd) -> Option<(u64, u64)> {
    // SAFETY: only asked about.
    let stat = fstat(unsafe { BorrowedFd::borrow_raw(fd) }).ok()?;
    Some((stat.st_dev, stat.st_ino))
}

/// One end is made of the device, the other of what was imported from it.
#[test]
fn what_was_imported_is_used_as_what_it_was_imported_from() {
    if !is_softs_own("importing") {
        return;
    }
    let net = Net::new();
    let mut buf = [vec![0; 64], vec![7; 64]];
    let mr = net.mr(&mut buf[0], RW);
    let other = imported(&net);
    // SAFETY: the objects are alive; each struct is given back once.
    unsafe {
        assert!((*other).async_fd != (*net.ctx).async_fd);
        let pd = import_pd(other, pd_handle(net.pd));
        assert_eq!(((*pd).context, (*pd).handle), (other, pd_handle(net.pd)));
        let again = import_mr(pd, (*mr).handle);
        assert_eq!(((*again).lkey, (*again).rkey), ((*mr).lkey, (*mr).rkey));
        assert_eq!(((*again).addr, (*again).length), (null_mut(), 64));
        assert_eq!(((*again).pd, (*again).context), (pd, other));
        // Its completion queue is of the other context.
        let cq = net.cq(16);
        let theirs = (net.v.create_cq)(other, 16, null_mut(), null_mut(), 0);
        let own = net.qp(cq);
        let mut attr = net.init_attr(theirs);
        let qp = (net.v.create_qp)(pd, &mut attr);
        assert!(!qp.is_null());
        net.connect(own, (*qp).qp_num, ConnectConfig::default());
        net.connect(qp, (*own).qp_num, ConnectConfig::default());
        // Writes to the region by the key that the imported struct has.
        let source = net.mr_in(pd, &mut buf[1], RW);
        let mut sges = [sge(source, 0, 64)];
        let mut wr = send_wr(1, ibv_wr_opcode::IBV_WR_RDMA_WRITE, &mut sges, SIGNALED);
        let remote_addr = (*mr).addr as u64;
        wr.wr.rdma = ibv_send_wr__bindgen_ty_2__bindgen_ty_1 { remote_addr, rkey: (*again).rkey };
        assert_eq!(post_send(qp, &mut wr), 0);
        assert_eq!(net.poll(theirs, 1)[0].status, "SUCCESS");
        assert_eq!(buf[0], [7; 64]);
        // A queue pair of one with the queue of the other.
        let mut attr = net.init_attr(theirs);
        let mixed = (net.v.create_qp)(net.pd, &mut attr);
        assert!(!mixed.is_null());
        net.destroy_qp(mixed);
        net.destroy_qp(own);
        net.destroy_qp(qp);
        net.destroy_cq(cq);
        net.destroy_cq(theirs);
        net.dereg(source);
        unimport_mr(again);
        net.dereg(mr);
        unimport_pd(pd);
        assert_eq!((net.v.close_device)(other), 0);
    }
    net.close();
}

#[test]
fn an_object_is_destroyed_through_one_of_its_structs() {
    if !is_softs_own("importing") {
        return;
    }
    let net = Net::new();
    let other = imported(&net);
    let mut buf = vec![0; 64];
    let mr = net.mr(&mut buf, RW);
    // SAFETY: the objects are alive; each struct is given back once.
    unsafe {
        let pd = import_pd(other, pd_handle(net.pd));
        let again = import_mr(pd, (*mr).handle);
        // The region is in the domain, whichever struct names it.
        assert_eq!(
            ((net.v.dealloc_pd)(pd), (net.v.dealloc_pd)(net.pd)),
            (libc::EBUSY, libc::EBUSY)
        );
        let (key, handle) = ((*mr).lkey, (*mr).handle);
        assert_eq!((net.v.dereg_mr)(again), 0);
        assert_eq!((net.v.dereg_mr)(mr), libc::ENOENT);
        assert!(import_mr(pd, handle).is_null());
        assert_eq!((errno(), (*mr).lkey), (libc::ENOENT, key));
        unimport_mr(mr);
        // What is in the domain by the imported struct counts for the other, too.
        let ah = net.ah_in(pd, net.ah_attr());
        assert_eq!((net.v.dealloc_pd)(net.pd), libc::EBUSY);
        net.destroy_ah(ah);
        let handle = pd_handle(pd);
        assert_eq!((net.v.dealloc_pd)(pd), 0);
        assert_eq!((net.v.dealloc_pd)(net.pd), libc::ENOENT);
        assert!(import_pd(net.ctx, handle).is_null());
        assert_eq!(errno(), libc::ENOENT);
        unimport_pd(net.pd);
        assert_eq!((net.v.close_device)(net.ctx), 0);
        // The other context lives on.
        let pd = (net.v.alloc_pd)(other);
        assert!(!pd.is_null());
        assert_eq!(((net.v.dealloc_pd)(pd), (net.v.close_device)(other)), (0, 0));
    }
}

/// A domain that was given back through another struct takes nothing any more.
#[test]
fn nothing_is_made_in_a_domain_that_has_ended() {
    if !is_softs_own("importing") {
        return;
    }
    let net = Net::new();
    let mut buf = vec![0; 64];
    // SAFETY: the objects are alive; each struct is given back once.
    unsafe {
        let verbs = later(net.ctx);
        let pd = (net.v.alloc_pd)(net.ctx);
        let again = import_pd(net.ctx, pd_handle(pd));
        let (mr, cq) = (net.mr(&mut buf, RW), net.cq(16));
        let mut dm_attr = ibv_alloc_dm_attr { length: 64, log_align_req: 0, comp_mask: 0 };
        let dm = verbs.alloc_dm.unwrap()(net.ctx, &mut dm_attr);
        assert_eq!((net.v.dealloc_pd)(again), 0);
        let srq_attr = ibv_srq_attr { max_wr: 4, max_sge: 1, srq_limit: 0 };
        let mut srq_attr = ibv_srq_init_attr { srq_context: null_mut(), attr: srq_attr };
        let mut parent = ibv_parent_domain_init_attr { pd, ..Default::default() };
        let zero_based = ibv_access_flags::IBV_ACCESS_ZERO_BASED.0;
        let refused = |made: bool| assert_eq!((made, errno()), (false, libc::ENOENT));
        refused(!(net.v.create_qp)(pd, &mut net.init_attr(cq)).is_null());
        refused(!(net.v.create_srq)(pd, &mut srq_attr).is_null());
        refused(!(net.v.create_ah)(pd, &mut net.ah_attr()).is_null());
        refused(!(net.v.reg_mr)(pd, buf.as_mut_ptr().cast(), 64, 1).is_null());
        refused(!verbs.alloc_null_mr.unwrap()(pd).is_null());
        refused(!verbs.reg_dm_mr.unwrap()(pd, dm, 0, 64, RW | zero_based).is_null());
        refused(!ibv_alloc_mw(pd, ibv_mw_type::IBV_MW_TYPE_1).is_null());
        refused(!verbs.alloc_parent_domain.unwrap()(net.ctx, &mut parent).is_null());
        refused(!import_mr(pd, (*mr).handle).is_null());
        let change_pd = ibv_rereg_mr_flags::IBV_REREG_MR_CHANGE_PD.0 as c_int;
        refused(net.v.rereg_mr.unwrap()(mr, change_pd, pd, null_mut(), 0, 0) == 0);
        assert_eq!((net.v.dealloc_pd)(pd), libc::ENOENT);
        unimport_pd(pd);
        assert_eq!(verbs.free_dm.unwrap()(dm), 0);
        net.dereg(mr);
        net.destroy_cq(cq);
    }
    net.close();
}

/// A struct may go before the object, and that of the first maker before the others.
#[test]
fn structs_are_given_back_in_any_order() {
    if !is_softs_own("importing") {
        return;
    }
    let net = Net::new();
    let mut buf = vec![0; 64];
    // SAFETY: the objects are alive; each struct is given back once.
    unsafe {
        let pd = (net.v.alloc_pd)(net.ctx);
        let mr = net.mr_in(pd, &mut buf, RW);
        let other = imported(&net);
        let pds = [import_pd(other, pd_handle(pd)), import_pd(net.ctx, pd_handle(pd))];
        let mrs = [import_mr(pds[0], (*mr).handle), import_mr(pds[1], (*mr).handle)];
        unimport_pd(pd);
        unimport_mr(mr);
        unimport_pd(pds[0]);
        unimport_mr(mrs[0]);
        assert_eq!((net.v.close_device)(other), 0);
        assert_eq!((net.v.dealloc_pd)(pds[1]), libc::EBUSY);
        net.dereg(mrs[1]);
        assert_eq!((net.v.dealloc_pd)(pds[1]), 0);
        unimport_pd(null_mut());
        unimport_mr(null_mut());
        unimport_dm(null_mut());
    }
    net.close();
}

/// A region that is registered again, through either struct, is counted in its new domain.
#[test]
fn a_region_that_moves_is_one_region() {
    if !is_softs_own("importing") {
        return;
    }
    let net = Net::new();
    let mut buf = vec![0; 64];
    let rereg = net.v.rereg_mr.unwrap();
    let change_pd = ibv_rereg_mr_flags::IBV_REREG_MR_CHANGE_PD.0 as c_int;
    // SAFETY: the objects are alive; each struct is given back once.
    unsafe {
        let to = (net.v.alloc_pd)(net.ctx);
        let mr = net.mr(&mut buf, RW);
        let again = import_mr(net.pd, (*mr).handle);
        assert_eq!(rereg(again, change_pd, to, null_mut(), 0, 0), 0);
        assert_eq!((net.v.dealloc_pd)(to), libc::EBUSY);
        net.dereg(mr);
        unimport_mr(again);
        assert_eq!((net.v.dealloc_pd)(to), 0);
        // A null region has no remote key.
        let null = later(net.ctx).alloc_null_mr.unwrap()(net.pd);
        let again = import_mr(net.pd, (*null).handle);
        assert_eq!(((*again).lkey, (*again).rkey), ((*null).lkey, 0));
        net.dereg(again);
        unimport_mr(null);
    }
    net.close();
}

#[test]
fn device_memory_is_shared_until_it_is_freed() {
    if !is_softs_own("importing") {
        return;
    }
    let net = Net::new();
    let other = imported(&net);
    let zero_based = ibv_access_flags::IBV_ACCESS_ZERO_BASED.0;
    // SAFETY: the objects are alive; each struct is given back once.
    unsafe {
        let mut attr = ibv_alloc_dm_attr { length: 64, log_align_req: 0, comp_mask: 0 };
        let dm = later(net.ctx).alloc_dm.unwrap()(net.ctx, &mut attr);
        let again = import_dm(other, (*dm).handle);
        assert_eq!(((*again).context, (*again).handle), (other, (*dm).handle));
        let (from, mut to) = ([5_u8; 8], [0_u8; 8]);
        assert_eq!((*dm).memcpy_to_dm.unwrap()(dm, 56, from.as_ptr().cast(), 8), 0);
        let get = (*again).memcpy_from_dm.unwrap();
        assert_eq!((get(to.as_mut_ptr().cast(), again, 56, 8), to), (0, from));
        let (register, free) = (later(other).reg_dm_mr.unwrap(), later(other).free_dm.unwrap());
        let mr = register(net.pd, again, 0, 64, RW | zero_based);
        assert_eq!((free(dm), free(again)), (libc::EBUSY, libc::EBUSY));
        let mr_again = import_mr(net.pd, (*mr).handle);
        net.dereg(mr_again);
        unimport_mr(mr);
        assert_eq!((free(again), free(dm)), (0, libc::ENOENT));
        assert!(register(net.pd, dm, 0, 64, RW | zero_based).is_null());
        assert_eq!(errno(), libc::ENOENT);
        assert!(import_dm(net.ctx, (*dm).handle).is_null());
        assert_eq!(errno(), libc::ENOENT);
        unimport_dm(dm);
        assert_eq!((net.v.close_device)(other), 0);
    }
    net.close();
}

/// Handles are those of one open device.
#[test]
fn another_open_device_has_other_objects() {
    if !is_softs_own("importing") {
        return;
    }
    let (one, two) = (Net::new(), Net::new());
    let mut buf = vec![0; 64];
    let mr = one.mr(&mut buf, RW);
    // SAFETY: the objects are alive.
    unsafe {
        assert!(import_pd(two.ctx, pd_handle(one.pd)).is_null());
        assert_eq!(errno(), libc::ENOENT);
        assert!(import_mr(two.pd, (*mr).handle).is_null());
        assert_eq!(errno(), libc::ENOENT);
        assert!(import_dm(two.ctx, u32::MAX).is_null());
        assert_eq!(errno(), libc::ENOENT);
        assert!(import_pd(null_mut(), 1).is_null() && import_dm(null_mut(), 1).is_null());
        assert!(import_mr(null_mut(), 1).is_null());
        assert_eq!(errno(), libc::EINVAL);
        let cq = two.cq(16);
        let mut attr = one.init_attr(cq);
        assert!((one.v.create_qp)(one.pd, &mut attr).is_null());
        assert_eq!(errno(), libc::EINVAL);
        two.destroy_cq(cq);
    }
    one.dereg(mr);
    one.close();
    two.close();
}

/// The context closes what it was imported by, and nothing else.
#[test]
fn a_descriptor_is_closed_by_its_context() {
    if !is_softs_own("importing") {
        return;
    }
    let net = Net::new();
    let named = file(command(&net).as_raw_fd());
    let other = imported(&net);
    // SAFETY: the contexts are open, each closed once.
    unsafe {
        let copy = (*other).cmd_fd;
        assert_eq!(file(copy), named);
        assert_eq!((net.v.close_device)(other), 0);
        assert_ne!(file(copy), named);
        // One that is no duplicate stays the first one's.
        let own = (*net.ctx).cmd_fd;
        let other = import_device(own);
        assert_ne!((*other).cmd_fd, own);
        assert_eq!((net.v.close_device)(other), 0);
        assert_eq!(file(own), named);
    }
    // The device can be imported when the first context is gone.
    let copy = command(&net).try_clone_to_owned().unwrap();
    net.close();
    // SAFETY: `other` is open, and closed once; the descriptor is the context's.
    unsafe {
        let other = import_device(copy.into_raw_fd());
        let v = provider().0;
        let pd = (v.alloc_pd)(other);
        assert_eq!(((v.dealloc_pd)(pd), (v.close_device)(other)), (0, 0));
    }
}

#[test]
fn other_descriptors_are_refused_and_stay_open() {
    if !is_softs_own("importing") {
        return;
    }
    let sealed = |text: &str| {
        let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
        let file = memfd_create("test", flags).unwrap();
        rustix::io::write(&file, text.as_bytes()).unwrap();
        let seals = SealFlags::WRITE | SealFlags::GROW | SealFlags::SHRINK | SealFlags::SEAL;
        fcntl_add_seals(&file, seals).unwrap();
        file
    };
    for number in [-1, c_int::MIN, c_int::MAX] {
        assert_eq!(refused(number), libc::EINVAL);
    }
    let pid = std::process::id();
    let files: [(OwnedFd, c_int); 7] = [
        (std::fs::File::open("/dev/null").unwrap().into(), libc::EINVAL),
        (std::os::unix::net::UnixStream::pair().unwrap().0.into(), libc::EINVAL),
        (memfd_create("soft0", MemfdFlags::CLOEXEC).unwrap(), libc::EINVAL),
        (sealed(""), libc::EINVAL),
        (sealed("soft0\n"), libc::EINVAL),
        (sealed(&format!("soft0 {pid} x\n")), libc::EINVAL),
        (sealed(&format!("none {pid} 0\n")), libc::ENODEV),
    ];
    for (fd, error) in files {
        let before = file(fd.as_raw_fd());
        assert_eq!(refused(fd.as_raw_fd()), error);
        assert_eq!(file(fd.as_raw_fd()), before);
    }
}

#[test]
fn the_other_process() {
    if role().is_none() {
        return;
    }
    let net = Net::new();
    say(&command(&net).as_raw_fd().to_string());
    assert_eq!(hear(), None);
    net.close();
}

#[test]
fn a_device_of_another_process_is_not_imported() {
    if !is_softs_own("importing") {
        return;
    }
    let mut other = Other::start("the_other_process", "any");
    let path = format!("/proc/{}/fd/{}", other.pid(), other.hear());
    let theirs = std::fs::File::open(path).unwrap();
    assert_eq!(refused(theirs.as_raw_fd()), libc::EOPNOTSUPP);
}
