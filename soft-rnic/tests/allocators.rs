//! Queues that lie in memory of the program: the allocators of parent domains.
//!
//! Not on rxe0: it asks where soft0's queues lie.

mod common;

use core::ffi::c_void;
use core::ptr::null_mut;
use core::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::Mutex;

use common::*;
use host::sync::SetOnDrop;
use libc::{EBUSY, EINVAL, ENOMEM};
use verbs_sys::*;

/// Memory that an allocator gives.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Gives {
    Memory,
    Nothing,
    /// `IBV_ALLOCATOR_USE_DEFAULT`.
    Default,
    /// Memory that is not aligned as it was asked for.
    Odd,
    /// Pages that cannot be accessed any more once they were given back.
    Pages,
}

/// A call of an allocator: where, what for, how many bytes if it was not given back, and by which
/// domain.
type Call = (usize, u64, Option<usize>, usize);

struct Heap {
    gives: Mutex<Gives>,
    calls: Mutex<Vec<Call>>,
}

impl Heap {
    fn new() -> Heap {
        Heap { gives: Mutex::new(Gives::Memory), calls: Mutex::default() }
    }

    fn take_calls(&self) -> Vec<Call> {
        core::mem::take(&mut *self.calls.lock().unwrap())
    }

    /// The only call since the last look.
    #[track_caller]
    fn call(&self) -> Call {
        let calls = self.take_calls();
        assert_eq!(calls.len(), 1, "{calls:x?}");
        calls[0]
    }

    /// A parent domain with these allocators.
    fn parent(&self, net: &Net) -> *mut ibv_pd {
        let attr = ibv_parent_domain_init_attr {
            pd: net.pd,
            comp_mask: 3,
            alloc: Some(alloc),
            free: Some(free),
            pd_context: core::ptr::from_ref(self).cast_mut().cast(),
            ..Default::default()
        };
        parent(net, attr).unwrap()
    }
}

fn parent(net: &Net, mut attr: ibv_parent_domain_init_attr) -> Result<*mut ibv_pd, i32> {
    // SAFETY: the context is open, and the attributes' objects are alive.
    let pd = unsafe { later(net.ctx).alloc_parent_domain.unwrap()(net.ctx, &mut attr) };
    if pd.is_null() { Err(errno()) } else { Ok(pd) }
}

fn dealloc(net: &Net, pd: *mut ibv_pd) -> i32 {
    // SAFETY: the domain is alive; what is refused stays so.
    unsafe { (net.v.dealloc_pd)(pd) }
}

unsafe extern "C" fn alloc(
    pd: *mut ibv_pd,
    context: *mut c_void,
    size: usize,
    alignment: usize,
    resource: u64,
) -> *mut c_void {
    // SAFETY: what the test has said; the memory is new.
    unsafe {
        let heap = &*context.cast::<Heap>();
        let gives = *heap.gives.lock().unwrap();
        let mut at = null_mut();
        match gives {
            Gives::Nothing => return null_mut(),
            Gives::Default => return core::ptr::without_provenance_mut(usize::MAX),
            Gives::Pages => at = pages(size),
            Gives::Memory | Gives::Odd => {
                let align = alignment.max(16);
                assert_eq!(libc::posix_memalign(&mut at, align, size + align), 0);
                at.write_bytes(0, size + align);
            }
        }
        let at = if gives == Gives::Odd { at.byte_add(1) } else { at };
        heap.calls.lock().unwrap().push((at.addr(), resource, Some(size), pd.addr()));
        at
    }
}

unsafe extern "C" fn free(pd: *mut ibv_pd, context: *mut c_void, at: *mut c_void, resource: u64) {
    // SAFETY: `context` is the test's `Heap`, and `at` memory of `alloc`, which has 8 bytes. (It
    // stays, with nonsense in it, which a later reader finds.)
    unsafe {
        let heap = &*context.cast::<Heap>();
        let mut calls = heap.calls.lock().unwrap();
        at.write_bytes(0xff, 8);
        if *heap.gives.lock().unwrap() == Gives::Pages {
            let size = calls.iter().rev().find_map(|call| call.2.filter(|_| call.0 == at.addr()));
            assert_eq!(libc::mprotect(at, size.unwrap(), libc::PROT_NONE), 0);
        }
        calls.push((at.addr(), resource, None, pd.addr()));
    }
}

fn pages(size: usize) -> *mut c_void {
    let (prot, flags) = (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_PRIVATE | libc::MAP_ANON);
    // SAFETY: a new mapping, which stays.
    let at = unsafe { libc::mmap(null_mut(), size, prot, flags, -1, 0) };
    assert_ne!(at, libc::MAP_FAILED);
    at
}

fn cq_in(net: &Net, pd: *mut ibv_pd) -> *mut ibv_cq {
    let mut attr = ibv_cq_init_attr_ex {
        cqe: 16,
        comp_mask: ibv_cq_init_attr_mask::IBV_CQ_INIT_ATTR_MASK_PD.0,
        parent_domain: pd,
        ..Default::default()
    };
    // SAFETY: the context is open, and the domain alive.
    unsafe { later(net.ctx).create_cq_ex.unwrap()(net.ctx, &mut attr).cast() }
}

fn srq_in(net: &Net, pd: *mut ibv_pd) -> *mut ibv_srq {
    let attr = ibv_srq_attr { max_wr: 4, max_sge: 1, srq_limit: 0 };
    // SAFETY: the domain is alive.
    unsafe { (net.v.create_srq)(pd, &mut ibv_srq_init_attr { srq_context: null_mut(), attr }) }
}

fn qp_in(net: &Net, pd: *mut ibv_pd, cq: *mut ibv_cq) -> *mut ibv_qp {
    // SAFETY: the domain and the queue are alive.
    unsafe { (net.v.create_qp)(pd, &mut net.init_attr(cq)) }
}

const QP: u64 = 1;
const SRQ: u64 = 4;
const CQ: u64 = 5;

fn is_left_out() -> bool {
    !is_softs_own("allocators")
}

#[test]
fn queues_lie_where_the_program_says_until_they_are_destroyed() {
    if is_left_out() {
        return;
    }
    let (net, heap) = (Net::new(), Heap::new());
    let pd = heap.parent(&net);
    let lent = |resource| {
        let (at, is, size, domain) = heap.call();
        assert_eq!((is, domain), (resource, pd.addr()));
        assert!(size.unwrap() >= 4 * 32);
        at
    };
    let given_back = |at, resource| assert_eq!(heap.call(), (at, resource, None, pd.addr()));
    let cq = cq_in(&net, pd);
    let cq_at = lent(CQ);
    let srq = srq_in(&net, pd);
    let srq_at = lent(SRQ);
    let qps = [(); 2].map(|()| (qp_in(&net, pd, cq), lent(QP)));
    // SAFETY: both are alive.
    let nums = qps.map(|(qp, _)| unsafe { (*qp).qp_num });
    net.connect(qps[0].0, nums[1], ConnectConfig::mortal());
    net.connect(qps[1].0, nums[0], ConnectConfig::default());
    // What is posted is there, and what completes.
    const ID: u64 = 0x1122_3344_5566_7788;
    let holds_id = |at: usize, bytes: usize| {
        // SAFETY: the memory is the test's.
        let words = unsafe { core::slice::from_raw_parts(at as *const u64, bytes / 8) };
        words.contains(&ID)
    };
    let mut bytes = [0_u8; 64];
    let mr = net.mr(&mut bytes, RW);
    assert_eq!(post_srq_recv(srq, ID, &mut []), 0);
    assert_eq!(post_recv(qps[1].0, ID, &mut [sge(mr, 32, 16)]), 0);
    assert!(holds_id(srq_at, 128) && holds_id(qps[1].1, 128) && !holds_id(cq_at, 1024));
    let mut sges = [sge(mr, 0, 16)];
    let mut wr = send_wr(2, ibv_wr_opcode::IBV_WR_SEND, &mut sges, SIGNALED);
    assert_eq!(post_send(qps[0].0, &mut wr), 0);
    // SAFETY: the queue is alive.
    unsafe { assert_eq!((net.v.resize_cq)(cq, 32), 0) };
    let resized_at = lent(CQ);
    assert!(net.poll(cq, 2).iter().all(|wc| wc.status == "SUCCESS"));
    assert!(holds_id(resized_at, 2048));
    // The first one's peer is gone: it does not look into memory that was given back.
    assert_eq!(dealloc(&net, pd), EBUSY);
    net.destroy_qp(qps[1].0);
    given_back(qps[1].1, QP);
    assert_eq!(post_send(qps[0].0, &mut wr), 0);
    assert_eq!(net.poll(cq, 1)[0].status, "RETRY_EXC");
    net.destroy_qp(qps[0].0);
    given_back(qps[0].1, QP);
    // SAFETY: it has no queue pairs.
    unsafe { assert_eq!((net.v.destroy_srq)(srq), 0) };
    given_back(srq_at, SRQ);
    net.destroy_cq(cq);
    let back: Vec<_> = heap.take_calls().iter().map(|call| (call.0, call.1, call.2)).collect();
    assert_eq!(back, [(cq_at, CQ, None), (resized_at, CQ, None)]);
    net.dereg(mr);
    assert_eq!(dealloc(&net, pd), 0);
    net.close();
}

#[test]
fn an_allocator_can_refuse_or_leave_it_to_the_device() {
    if is_left_out() {
        return;
    }
    let (net, heap) = (Net::new(), Heap::new());
    let (pd, cq) = (heap.parent(&net), net.cq(16));
    assert_eq!(heap.take_calls(), [], "a queue of no domain is the device's");
    for (gives, error) in [(Gives::Nothing, ENOMEM), (Gives::Odd, EINVAL)] {
        *heap.gives.lock().unwrap() = gives;
        for made in [cq_in(&net, pd).is_null(), srq_in(&net, pd).is_null()] {
            assert!(made);
        }
        assert!(qp_in(&net, pd, cq).is_null());
        assert_eq!(errno(), error);
        // What was not taken is given back.
        let calls = heap.take_calls();
        assert_eq!(calls.len(), if gives == Gives::Odd { 6 } else { 0 });
        assert!(calls.chunks(2).all(|pair| pair[0].0 == pair[1].0 && pair[1].2.is_none()));
    }
    *heap.gives.lock().unwrap() = Gives::Default;
    let (own, srq) = (cq_in(&net, pd), srq_in(&net, pd));
    let qp = qp_in(&net, pd, own);
    assert!(!qp.is_null() && !srq.is_null());
    net.destroy_qp(qp);
    // SAFETY: it has no queue pairs.
    unsafe { assert_eq!((net.v.destroy_srq)(srq), 0) };
    net.destroy_cq(own);
    assert_eq!(heap.take_calls(), [], "nothing was lent");
    net.destroy_cq(cq);
    assert_eq!(dealloc(&net, pd), 0);
    net.close();
}

#[test]
fn allocators_come_in_pairs() {
    if is_left_out() {
        return;
    }
    let net = Net::new();
    for (alloc, free) in [(None, None), (Some(alloc as _), None), (None, Some(free as _))] {
        let attr = ibv_parent_domain_init_attr {
            pd: net.pd,
            comp_mask: 1,
            alloc,
            free,
            ..Default::default()
        };
        assert_eq!(parent(&net, attr), Err(EINVAL));
    }
    net.close();
}

#[test]
fn a_queue_that_is_resized_gives_back_what_it_had_before() {
    if is_left_out() {
        return;
    }
    let (net, heap) = (Net::new(), Heap::new());
    let pd = heap.parent(&net);
    let cq = cq_in(&net, pd);
    let (first, ..) = heap.call();
    let mut last = None;
    for n in 0..100 {
        // SAFETY: the queue is alive.
        unsafe { assert_eq!((net.v.resize_cq)(cq, 16 << (n % 3)), 0) };
        let calls = heap.take_calls();
        let (at, .., size, _) = calls[0];
        assert!(size.is_some(), "{calls:x?}");
        // The first one stays: a poll may look into it.
        let back: Vec<_> = calls[1..].iter().map(|call| (call.0, call.2)).collect();
        assert_eq!(back, last.map(|last| (last, None)).into_iter().collect::<Vec<_>>());
        last = Some(at);
    }
    // SAFETY: `cq` is alive; there is no memory for such a queue.
    unsafe { assert_eq!((net.v.resize_cq)(cq, 0), EINVAL) };
    *heap.gives.lock().unwrap() = Gives::Nothing;
    // SAFETY: `cq` is alive.
    unsafe { assert_eq!((net.v.resize_cq)(cq, 64), ENOMEM) };
    assert_eq!(heap.take_calls(), []);
    net.destroy_cq(cq);
    let back: Vec<_> = heap.take_calls().iter().map(|call| (call.0, call.2)).collect();
    assert_eq!(back, [(first, None), (last.unwrap(), None)]);
    assert_eq!(dealloc(&net, pd), 0);
    net.close();
}

/// Resizes of a queue that threads poll, and into which completions are written meanwhile.
const RESIZES: u64 = 10_000;
/// More threads than processors, so that some stop wherever they are in a poll.
const POLLERS: usize = 4;

/// Memory that a poll looks at is there: where it is not, this test ends by a signal.
#[test]
fn polls_look_into_nothing_that_a_resize_has_given_back() {
    if is_left_out() {
        return;
    }
    let (net, heap) = (Net::new(), Heap::new());
    *heap.gives.lock().unwrap() = Gives::Pages;
    let pd = heap.parent(&net);
    let (cq, recv_cq) = (cq_in(&net, pd), net.cq(16));
    let qps = [net.qp(cq), net.qp(recv_cq)];
    // SAFETY: both are alive.
    let nums = qps.map(|qp| unsafe { (*qp).qp_num });
    net.connect(qps[0], nums[1], ConnectConfig::default());
    net.connect(qps[1], nums[0], ConnectConfig::default());
    let is_over = AtomicBool::new(false);
    let (polled, failures) = (AtomicU64::new(0), AtomicU64::new(0));
    let queue = cq as usize;
    std::thread::scope(|scope| {
        for _ in 0..POLLERS {
            scope.spawn(|| {
                while !is_over.load(Ordering::Relaxed) {
                    let all = net.poll_now(queue as *mut ibv_cq);
                    let failed = all.iter().filter(|wc| wc.status != "SUCCESS").count();
                    failures.fetch_add(failed as u64, Ordering::Relaxed);
                    polled.fetch_add(all.len() as u64, Ordering::Relaxed);
                }
            });
        }
        let _over = SetOnDrop(&is_over);
        for n in 0..RESIZES {
            let mut wr = send_wr(n, ibv_wr_opcode::IBV_WR_RDMA_WRITE, &mut [], SIGNALED);
            // The shorter queue has room for all.
            while n - polled.load(Ordering::Relaxed) >= 16 {
                std::thread::yield_now();
            }
            assert_eq!(post_send(qps[0], &mut wr), 0);
            // SAFETY: the queue is alive.
            unsafe { assert_eq!((net.v.resize_cq)(cq, 16 << (n % 2)), 0) };
        }
        while polled.load(Ordering::Relaxed) < RESIZES {
            std::thread::yield_now();
        }
    });
    assert_eq!((polled.into_inner(), failures.into_inner()), (RESIZES, 0));
    let [lent, back] = [true, false].map(|lent| {
        let calls = heap.calls.lock().unwrap();
        calls.iter().filter(|call| call.2.is_some() == lent).count()
    });
    assert_eq!(lent - back, 2, "{lent} rings lent, {back} given back");
    qps.into_iter().for_each(|qp| net.destroy_qp(qp));
    net.destroy_cq(cq);
    net.destroy_cq(recv_cq);
    assert_eq!(dealloc(&net, pd), 0);
    net.close();
}
