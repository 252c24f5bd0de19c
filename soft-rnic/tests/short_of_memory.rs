//! Verbs say `ENOMEM` where the system has no memory: the process continues, and so do the objects
//! that it has.
//!
//! Only on soft0: it limits the memory of processes that have soft0, or make a device over UDP.

mod common;

use core::ffi::c_void;
use core::ptr::null_mut;

use common::other;
use common::*;
use verbs_sys::*;

const ENTRY: &str = "verbs_report_that_there_is_no_memory";
/// The device of the other process: an address, or soft0.
const DEVICE: &str = "SHORT_OF_MEMORY_ON";
/// Bytes that the process may map beyond what it has.
const MORE: u64 = 24 << 20;
/// Objects of one kind, at most.
const MOST: usize = 300_000;

/// Limits what this process maps to `more` bytes beyond what it has, or ends the limit.
fn limit(more: Option<u64>) {
    let statm = std::fs::read_to_string("/proc/self/statm").unwrap();
    let pages: u64 = statm.split(' ').next().unwrap().parse().unwrap();
    let rlim_cur = more.map_or(libc::RLIM_INFINITY, |more| pages * 4_096 + more);
    let limit = libc::rlimit { rlim_cur, rlim_max: libc::RLIM_INFINITY };
    // SAFETY: a limit of this process.
    assert_eq!(unsafe { libc::setrlimit(libc::RLIMIT_AS, &raw const limit) }, 0);
}

/// Makes objects until there is no memory, which `ENOMEM` has to say; then one more, when there is
/// some again.
fn exhaust(net: &Net, make: impl Fn() -> *mut c_void, destroy: impl Fn(*mut c_void) -> i32) {
    let mut made = Vec::with_capacity(MOST);
    limit(Some(MORE));
    let error = loop {
        let object = make();
        if object.is_null() || made.len() == MOST {
            break std::io::Error::last_os_error();
        }
        made.push(object);
    };
    limit(None);
    assert_eq!(error.raw_os_error(), Some(libc::ENOMEM), "behind {}", made.len());
    assert!(made.len() < MOST);
    for object in made {
        assert_eq!(destroy(object), 0);
    }
    let object = make();
    assert!(!object.is_null(), "{}", std::io::Error::last_os_error());
    assert_eq!(destroy(object), 0);
    // SAFETY: everything that was made of the context is gone, but for the domain.
    assert_eq!(unsafe { (net.v.dealloc_pd)(net.pd) }, 0);
}

/// A queue pair with long queues.
fn long(net: &Net, cq: *mut ibv_cq) -> ibv_qp_init_attr {
    let cap = ibv_qp_cap {
        max_send_wr: 4_096,
        max_recv_wr: 4_096,
        max_send_sge: 16,
        max_recv_sge: 16,
        max_inline_data: 64,
    };
    ibv_qp_init_attr { cap, ..net.init_attr(cq) }
}

fn exhaust_kind(kind: &str, net: &Net) {
    let Net { v, ctx, pd, .. } = net;
    // SAFETY: objects that are alive, each destroyed once; zeroes are attributes.
    unsafe {
        match kind {
            "completion queues" | "long completion queues" => {
                let cqe = if kind.starts_with("long") { 1 << 16 } else { 16 };
                let make = || (v.create_cq)(*ctx, cqe, null_mut(), null_mut(), 0).cast();
                exhaust(net, make, |cq| (v.destroy_cq)(cq.cast()));
            }
            "queue pairs" => {
                let cq = net.cq(16);
                let make = || (v.create_qp)(*pd, &mut long(net, cq)).cast();
                exhaust(net, make, |qp| (v.destroy_qp)(qp.cast()));
                net.destroy_cq(cq);
            }
            "shared receive queues" => {
                let mut attr: ibv_srq_init_attr = core::mem::zeroed();
                (attr.attr.max_wr, attr.attr.max_sge) = (4_096, 8);
                let make = || (v.create_srq)(*pd, &mut { attr }).cast();
                exhaust(net, make, |srq| (v.destroy_srq)(srq.cast()));
            }
            "regions" => {
                static BYTES: [u8; 64] = [0; 64];
                let at = BYTES.as_ptr().cast_mut().cast();
                let make = || (v.reg_mr)(*pd, at, BYTES.len(), 0).cast();
                exhaust(net, make, |mr| (v.dereg_mr)(mr.cast()));
            }
            "domains" => {
                exhaust(net, || (v.alloc_pd)(*ctx).cast(), |pd| (v.dealloc_pd)(pd.cast()));
            }
            "address handles" => {
                let make = || (v.create_ah)(*pd, &mut net.ah_attr()).cast();
                exhaust(net, make, |ah| (v.destroy_ah)(ah.cast()));
            }
            "memory windows" => {
                let make = || ibv_alloc_mw(*pd, ibv_mw_type::IBV_MW_TYPE_1).cast();
                exhaust(net, make, |mw| ibv_dealloc_mw(mw.cast()));
            }
            "a longer queue" => {
                let cq = net.cq(16);
                limit(Some(MORE));
                let error = (v.resize_cq)(cq, 4 << 20);
                limit(None);
                assert_eq!((error, (*cq).cqe), (libc::ENOMEM, 16));
                assert_eq!((v.resize_cq)(cq, 64), 0);
                net.destroy_cq(cq);
            }
            "connections" => exhaust_connections(net),
            _ => unreachable!("{kind}"),
        }
    }
}

/// Takes what the allocator has left, but for small pieces; `rest` has room for them.
fn take_rest(rest: &mut Vec<Vec<u8>>) {
    for size in [1 << 20, 1 << 16] {
        let room = || {
            let mut room = Vec::new();
            room.try_reserve_exact(size).ok().map(|()| room)
        };
        let most = rest.capacity() - rest.len();
        rest.extend(core::iter::from_fn(room).take(most));
    }
}

/// Over the network a connection takes memory when it becomes ready to send: each of these finds a
/// little more of it than the one before.
fn exhaust_connections(net: &Net) {
    const STEP: u64 = 256 << 10;
    let cq = net.cq(16);
    let cap = ibv_qp_cap {
        max_send_wr: 32_768,
        max_recv_wr: 1,
        max_send_sge: 1,
        max_recv_sge: 1,
        max_inline_data: 0,
    };
    let qps: Vec<_> =
        (0..20).map(|_| net.qp_with(ibv_qp_init_attr { cap, ..net.init_attr(cq) })).collect();
    let (init, rtr, rts) = net.steps(9, ConnectConfig::default());
    let (mut short, mut rest) = (0, Vec::with_capacity(10_000));
    for (more, qp) in (0..).zip(qps) {
        assert_eq!(net.modify(qp, init.0, init.1), 0);
        assert_eq!(net.modify(qp, rtr.0, rtr.1), 0);
        limit(Some(0));
        take_rest(&mut rest);
        limit(Some(more * STEP));
        let error = net.modify(qp, rts.0, rts.1);
        limit(None);
        rest.clear();
        if error != 0 {
            short += 1;
            assert_eq!((error, net.state(qp)), (libc::ENOMEM, ibv_qp_state::IBV_QPS_RTR));
            assert_eq!(net.modify(qp, rts.0, rts.1), 0);
        }
        net.destroy_qp(qp);
    }
    assert!((1..20).contains(&short), "{short} of 20");
    net.destroy_cq(cq);
}

#[test]
fn verbs_report_that_there_is_no_memory() {
    if let Some(kind) = other::role() {
        let net = match std::env::var(DEVICE).unwrap().as_str() {
            "soft0" => Net::on(soft_rnic::table(), "soft0"),
            address => wired::open(address),
        };
        return exhaust_kind(&kind, &net);
    }
    let mut failed = Vec::new();
    for (nth, device) in ["soft0", "127.31.9.1"].into_iter().enumerate() {
        for kind in [
            "long completion queues",
            "completion queues",
            "queue pairs",
            "shared receive queues",
            "regions",
            "domains",
            "address handles",
            "memory windows",
            "a longer queue",
            "connections",
        ] {
            // On soft0 a connection takes none.
            if kind == "connections" && nth == 0 {
                continue;
            }
            // Where each thread had addresses of its own, they would count before they are used.
            let environment = [(DEVICE, device), ("MALLOC_ARENA_MAX", "1")];
            let output = other::play(ENTRY, kind, &environment);
            if !output.status.success() {
                let errors = String::from_utf8_lossy(&output.stderr).into_owned();
                failed.push(format!("{kind} on {device}: {}\n{errors}", output.status));
            }
        }
    }
    assert!(failed.is_empty(), "{}", failed.join("\n"));
}
