//! Driving the raw table: what every test of a device needs.
//!
//! The device is `soft0`, or the one that `RDMA_CONN_DEVICE` names.
#![allow(dead_code, missing_docs, unreachable_pub, reason = "each test uses a part of it")]

#[path = "../../../tests/support/budget.rs"]
pub mod budget;
#[path = "../../../tests/support/tally.rs"]
pub mod tally;

pub mod atomic_write;
pub mod checked;
mod held_back;
pub mod import;
pub mod multicast;
pub mod mw;
pub mod other;
pub mod pages;
pub mod wired;
pub mod xrc;

use core::ffi::{CStr, c_int};
use core::ptr::null_mut;
use std::time::{Duration, Instant};

pub use budget::PATIENCE;
use budget::{Budget, DEAD, LIVING};
use verbs_sys::*;

pub const RW: u32 = 0xf; // local and remote, write, read and atomic

/// The table and the name of the device under test.
pub fn provider() -> (Table, String) {
    match std::env::var("RDMA_CONN_DEVICE") {
        Ok(name) if !name.starts_with("soft") && !name.starts_with("roce:") => {
            (load().expect("rdma-core is needed for this device"), name)
        }
        Ok(name) => (soft_rnic::table(), listed(name)),
        Err(_) => (soft_rnic::table(), "soft0".into()),
    }
}

/// A device that is there, or `soft0@5us` or `roce:ADDR`, which is there from now on. The queue
/// pairs of the latter reach each other over the network.
fn listed(name: String) -> String {
    if let Some(ip) = name.strip_prefix("roce:") {
        return wired::list(ip);
    }
    let us = name.strip_prefix("soft0@").and_then(|time| time.strip_suffix("us"));
    match us.and_then(|us| us.parse().ok()) {
        Some(us) => soft_rnic::distant(Duration::from_micros(us)),
        None => name,
    }
}

/// The number of a queue pair that is alive.
pub fn qp_num(qp: *mut ibv_qp) -> u32 {
    // SAFETY: as the caller says.
    unsafe { (*qp).qp_num }
}

/// Reports whether the software device is under test: some rows are only about it.
pub fn is_soft() -> bool {
    let (_, name) = provider();
    name.starts_with("soft") || name.starts_with("roce:")
}

/// Reports whether its peers are reached over UDP: then what is posted does not arrive within the
/// post.
pub fn is_wired() -> bool {
    provider().1.starts_with("roce:")
}

/// [`is_soft`], for a case that no other device has: there the test says that it leaves the
/// case out.
pub fn is_softs_own(case: &str) -> bool {
    if !is_soft() {
        eprintln!("on the software device only: {case}");
    }
    is_soft()
}

/// Reports whether the kernel's software device is under test: it has its own ways, which the
/// documentation of the crate lists.
pub fn is_rxe() -> bool {
    provider().1.starts_with("rxe")
}

/// The operations of a context that were added after `ibv_context`, as rdma-core's headers find
/// them.
pub fn later(ctx: *mut ibv_context) -> &'static verbs_context {
    // SAFETY: the context is open; the ABI embeds such a one in a `verbs_context`.
    unsafe {
        assert_eq!((*ctx).abi_compat, VERBS_ABI_IS_EXTENDED);
        let later = ctx.byte_sub(core::mem::offset_of!(verbs_context, context));
        assert!((*later.cast::<verbs_context>()).sz >= size_of::<verbs_context>());
        &*later.cast::<verbs_context>()
    }
}

pub fn errno() -> c_int {
    std::io::Error::last_os_error().raw_os_error().unwrap_or(0)
}

/// An open device with a protection domain.
pub struct Net {
    pub v: Table,
    pub ctx: *mut ibv_context,
    pub pd: *mut ibv_pd,
    pub gid: ibv_gid,
    pub gid_index: u8,
    pub lid: u16,
}

// SAFETY: verbs may be called from any thread.
unsafe impl Send for Net {}
// SAFETY: `ctx` and `pd` are for verbs, which may be called from any thread.
unsafe impl Sync for Net {}

pub fn open(v: Table, wanted: &str) -> *mut ibv_context {
    tally::took(wanted);
    // SAFETY: the list is walked to its end and freed once.
    unsafe {
        let mut n = 0;
        let list = (v.get_device_list)(&mut n);
        assert!(!list.is_null(), "no devices");
        let mut ctx = null_mut();
        for i in 0..n as usize {
            let device = *list.add(i);
            if CStr::from_ptr((v.get_device_name)(device)).to_str() == Ok(wanted) {
                ctx = (v.open_device)(device);
            }
        }
        (v.free_device_list)(list);
        assert!(!ctx.is_null(), "no device {wanted}");
        ctx
    }
}

impl Net {
    pub fn new() -> Net {
        let (v, name) = provider();
        Net::on(v, &name)
    }

    pub fn on(v: Table, name: &str) -> Net {
        let ctx = open(v, name);
        // SAFETY: the context is open.
        unsafe {
            let pd = (v.alloc_pd)(ctx);
            assert!(!pd.is_null());
            let mut port = ibv_port_attr::default();
            assert_eq!(ibv_query_port(&v, ctx, 1, &mut port), 0);
            let (gid_index, gid) = pick_gid(&v, ctx, port.gid_tbl_len);
            Net { v, ctx, pd, gid, gid_index, lid: port.lid }
        }
    }

    pub fn port(&self) -> ibv_port_attr {
        let mut port = ibv_port_attr::default();
        // SAFETY: the context is open.
        assert_eq!(unsafe { ibv_query_port(&self.v, self.ctx, 1, &mut port) }, 0);
        port
    }

    pub fn cq(&self, cqe: i32) -> *mut ibv_cq {
        self.cq_with(cqe, null_mut())
    }

    pub fn cq_with(&self, cqe: i32, channel: *mut ibv_comp_channel) -> *mut ibv_cq {
        // SAFETY: the context is open.
        let cq = unsafe { (self.v.create_cq)(self.ctx, cqe, null_mut(), channel, 0) };
        assert!(!cq.is_null());
        cq
    }

    pub fn mr(&self, bytes: &mut [u8], access: u32) -> *mut ibv_mr {
        self.mr_in(self.pd, bytes, access)
    }

    pub fn mr_in(&self, pd: *mut ibv_pd, bytes: &mut [u8], access: u32) -> *mut ibv_mr {
        // SAFETY: the tests keep the memory until the region is gone.
        let mr =
            unsafe { (self.v.reg_mr)(pd, bytes.as_mut_ptr().cast(), bytes.len(), access as c_int) };
        assert!(!mr.is_null());
        mr
    }

    pub fn init_attr(&self, cq: *mut ibv_cq) -> ibv_qp_init_attr {
        // SAFETY: zero is a valid value of every field.
        let mut attr: ibv_qp_init_attr = unsafe { core::mem::zeroed() };
        attr.send_cq = cq;
        attr.recv_cq = cq;
        attr.qp_type = ibv_qp_type::IBV_QPT_RC;
        attr.cap = ibv_qp_cap {
            max_send_wr: 64,
            max_recv_wr: 64,
            max_send_sge: 4,
            max_recv_sge: 4,
            max_inline_data: 64,
        };
        attr
    }

    pub fn qp_with(&self, mut attr: ibv_qp_init_attr) -> *mut ibv_qp {
        // SAFETY: the attributes' objects are alive.
        let qp = unsafe { (self.v.create_qp)(self.pd, &mut attr) };
        assert!(!qp.is_null(), "create_qp: {}", std::io::Error::last_os_error());
        qp
    }

    pub fn qp(&self, cq: *mut ibv_cq) -> *mut ibv_qp {
        self.qp_with(self.init_attr(cq))
    }

    /// A queue pair of a transport, in RESET.
    pub fn qp_of(&self, kind: ibv_qp_type, cq: *mut ibv_cq) -> *mut ibv_qp {
        self.qp_with(ibv_qp_init_attr { qp_type: kind, ..self.init_attr(cq) })
    }

    pub fn modify(&self, qp: *mut ibv_qp, mut attr: ibv_qp_attr, mask: ibv_qp_attr_mask) -> c_int {
        // SAFETY: the queue pair is alive.
        unsafe { (self.v.modify_qp)(qp, &mut attr, mask.0 as c_int) }
    }

    pub fn to_state(&self, qp: *mut ibv_qp, state: ibv_qp_state) -> c_int {
        let attr = ibv_qp_attr { qp_state: state, ..ibv_qp_attr::default() };
        self.modify(qp, attr, ibv_qp_attr_mask::IBV_QP_STATE)
    }

    /// Gives the peer of a queue pair, which the test ends next, the time of a dead one: over UDP, a
    /// death is told from slowness by the time only. The peer has acknowledged all requests.
    pub fn expect_death(&self, qp: *mut ibv_qp) {
        use ibv_qp_attr_mask as M;
        let drained = ibv_qp_attr {
            qp_state: ibv_qp_state::IBV_QPS_SQD,
            timeout: DEAD.timeout,
            retry_cnt: DEAD.retry_count,
            ..ibv_qp_attr::default()
        };
        let mask = M::IBV_QP_STATE | M::IBV_QP_TIMEOUT | M::IBV_QP_RETRY_CNT;
        assert_eq!(self.to_state(qp, ibv_qp_state::IBV_QPS_SQD), 0);
        assert_eq!(self.modify(qp, drained, mask), 0);
        assert_eq!(self.to_state(qp, ibv_qp_state::IBV_QPS_RTS), 0);
    }

    pub fn state(&self, qp: *mut ibv_qp) -> ibv_qp_state {
        self.query(qp).qp_state
    }

    /// Waits for a queue pair to get to a state, and reports whether it does.
    pub fn reaches(&self, qp: *mut ibv_qp, state: ibv_qp_state) -> bool {
        let end = Instant::now() + PATIENCE;
        while self.state(qp) != state {
            if Instant::now() > end {
                return false;
            }
            std::thread::yield_now();
        }
        true
    }

    pub fn query(&self, qp: *mut ibv_qp) -> ibv_qp_attr {
        let mut attr = ibv_qp_attr::default();
        // SAFETY: the queue pair is alive; zero is a valid value of every field.
        unsafe {
            let mut init: ibv_qp_init_attr = core::mem::zeroed();
            assert_eq!((self.v.query_qp)(qp, &mut attr, 0xfffff, &mut init), 0);
        }
        attr
    }

    /// Connects `qp` to `to`, in all states up to RTS; a datagram queue pair is
    /// only taken there.
    pub fn connect(&self, qp: *mut ibv_qp, to: u32, c: ConnectConfig) {
        // SAFETY: the queue pair is alive.
        let kind = unsafe { (*qp).qp_type };
        let (init, rtr, rts) = self.steps_of(kind, to, c);
        assert_eq!(self.modify(qp, init.0, init.1), 0, "INIT");
        assert_eq!(self.modify(qp, rtr.0, rtr.1), 0, "RTR");
        assert_eq!(self.modify(qp, rts.0, rts.1), 0, "RTS");
    }

    /// The three transitions of a transport, with the attributes that each requires.
    pub fn steps_of(
        &self,
        kind: ibv_qp_type,
        to: u32,
        c: ConnectConfig,
    ) -> (TransitionStep, TransitionStep, TransitionStep) {
        use ibv_qp_attr_mask as M;
        let (mut init, mut rtr, mut rts) = self.steps(to, c);
        let without = |mask: M, gone: M| M(mask.0 & !gone.0);
        if kind == ibv_qp_type::IBV_QPT_UC {
            rtr.1 = without(rtr.1, M::IBV_QP_MAX_DEST_RD_ATOMIC | M::IBV_QP_MIN_RNR_TIMER);
            rts.1 = M::IBV_QP_STATE | M::IBV_QP_SQ_PSN;
        }
        if kind == ibv_qp_type::IBV_QPT_XRC_SEND {
            rtr.1 = without(rtr.1, M::IBV_QP_MAX_DEST_RD_ATOMIC | M::IBV_QP_MIN_RNR_TIMER);
        }
        if kind == ibv_qp_type::IBV_QPT_XRC_RECV {
            let of_requests =
                M::IBV_QP_RETRY_CNT | M::IBV_QP_RNR_RETRY | M::IBV_QP_MAX_QP_RD_ATOMIC;
            rts.1 = without(rts.1, of_requests);
        }
        if kind == ibv_qp_type::IBV_QPT_UD {
            init.1 = without(init.1, M::IBV_QP_ACCESS_FLAGS) | M::IBV_QP_QKEY;
            rtr.1 = M::IBV_QP_STATE;
            rts.1 = M::IBV_QP_STATE | M::IBV_QP_SQ_PSN;
        }
        (init, rtr, rts)
    }

    /// An address handle for this very port.
    pub fn ah(&self) -> *mut ibv_ah {
        self.ah_in(self.pd, self.ah_attr())
    }

    pub fn ah_in(&self, pd: *mut ibv_pd, mut attr: ibv_ah_attr) -> *mut ibv_ah {
        // SAFETY: the domain is alive.
        let ah = unsafe { (self.v.create_ah)(pd, &mut attr) };
        assert!(!ah.is_null(), "create_ah: {}", std::io::Error::last_os_error());
        ah
    }

    pub fn destroy_ah(&self, ah: *mut ibv_ah) {
        // SAFETY: the test is done with it.
        assert_eq!(unsafe { (self.v.destroy_ah)(ah) }, 0);
    }

    /// The address of this very port.
    pub fn ah_attr(&self) -> ibv_ah_attr {
        let mut attr = ibv_ah_attr { is_global: 1, port_num: 1, ..ibv_ah_attr::default() };
        attr.grh.dgid = self.gid;
        attr.grh.sgid_index = self.gid_index;
        attr.grh.hop_limit = 1;
        attr.dlid = self.lid;
        attr
    }

    /// The three transitions of a reliable connection; the attributes have all that
    /// other transports want, too.
    pub fn steps(
        &self,
        to: u32,
        c: ConnectConfig,
    ) -> (TransitionStep, TransitionStep, TransitionStep) {
        use ibv_qp_attr_mask as M;
        let mut a = ibv_qp_attr {
            qp_state: ibv_qp_state::IBV_QPS_INIT,
            port_num: 1,
            qp_access_flags: c.access,
            qkey: c.qkey,
            ..ibv_qp_attr::default()
        };
        let init = M::IBV_QP_STATE | M::IBV_QP_PKEY_INDEX | M::IBV_QP_PORT | M::IBV_QP_ACCESS_FLAGS;
        let first = (a, init);
        a.qp_state = ibv_qp_state::IBV_QPS_RTR;
        a.path_mtu = ibv_mtu::IBV_MTU_1024;
        a.dest_qp_num = to;
        a.rq_psn = c.rq_psn;
        a.max_dest_rd_atomic = c.dest_rd_atomic;
        a.min_rnr_timer = c.min_rnr_timer;
        a.ah_attr = self.ah_attr();
        let rtr = M::IBV_QP_STATE
            | M::IBV_QP_AV
            | M::IBV_QP_PATH_MTU
            | M::IBV_QP_DEST_QPN
            | M::IBV_QP_RQ_PSN
            | M::IBV_QP_MAX_DEST_RD_ATOMIC
            | M::IBV_QP_MIN_RNR_TIMER;
        let second = (a, rtr);
        a.qp_state = ibv_qp_state::IBV_QPS_RTS;
        a.timeout = c.timeout;
        a.retry_cnt = c.retry_cnt;
        a.rnr_retry = c.rnr_retry;
        a.sq_psn = c.sq_psn;
        a.max_rd_atomic = c.rd_atomic;
        let rts = M::IBV_QP_STATE
            | M::IBV_QP_TIMEOUT
            | M::IBV_QP_RETRY_CNT
            | M::IBV_QP_RNR_RETRY
            | M::IBV_QP_SQ_PSN
            | M::IBV_QP_MAX_QP_RD_ATOMIC;
        (first, second, (a, rts))
    }

    /// Polls until there are `n` completions.
    pub fn poll(&self, cq: *mut ibv_cq, n: usize) -> Vec<Wc> {
        let mut all = Vec::new();
        let end = host::time::now() + PATIENCE;
        while all.len() < n {
            all.extend(self.poll_now(cq));
            assert!(host::time::now() < end, "{n} completions wanted, {all:?} polled");
            host::thread::yield_now();
        }
        all
    }

    /// Returns the completions that can be polled at once.
    pub fn poll_now(&self, cq: *mut ibv_cq) -> Vec<Wc> {
        let mut wc = [ibv_wc::default(); 32];
        // SAFETY: the queue is alive; there is room for 32.
        let n = unsafe { ibv_poll_cq(cq, 32, wc.as_mut_ptr()) };
        assert!(n >= 0, "poll_cq: {n}");
        wc[..n as usize].iter().map(Wc::from).collect()
    }

    pub fn async_events(&self) -> Vec<ibv_event_type> {
        events_of(&self.v, self.ctx)
    }

    pub fn destroy_qp(&self, qp: *mut ibv_qp) {
        // SAFETY: the test is done with it.
        assert_eq!(unsafe { (self.v.destroy_qp)(qp) }, 0);
    }

    pub fn destroy_cq(&self, cq: *mut ibv_cq) {
        // SAFETY: the test is done with it.
        assert_eq!(unsafe { (self.v.destroy_cq)(cq) }, 0);
    }

    pub fn dereg(&self, mr: *mut ibv_mr) {
        // SAFETY: the test is done with it.
        assert_eq!(unsafe { (self.v.dereg_mr)(mr) }, 0);
    }

    /// Everything made from it is gone by now: both calls say so.
    pub fn close(self) {
        // SAFETY: as said.
        unsafe {
            assert_eq!((self.v.dealloc_pd)(self.pd), 0);
            assert_eq!((self.v.close_device)(self.ctx), 0);
        }
    }
}

/// The asynchronous events of a context that are pending.
pub fn events_of(v: &Table, context: *mut ibv_context) -> Vec<ibv_event_type> {
    let mut all = Vec::new();
    // SAFETY: the context is open; each event is acknowledged once.
    unsafe {
        let fd = (*context).async_fd;
        let flags = libc::fcntl(fd, libc::F_GETFL);
        libc::fcntl(fd, libc::F_SETFL, flags | libc::O_NONBLOCK);
        let mut event: ibv_async_event = core::mem::zeroed();
        while (v.get_async_event)(context, &mut event) == 0 {
            all.push(event.event_type);
            (v.ack_async_event)(&mut event);
        }
    }
    all
}

pub type TransitionStep = (ibv_qp_attr, ibv_qp_attr_mask);

/// The first RoCE v2 GID that is an IPv4 address; else the first that is one.
fn pick_gid(v: &Table, ctx: *mut ibv_context, len: c_int) -> (u8, ibv_gid) {
    let mut found = None;
    for index in 0..len as u32 {
        // SAFETY: the context is open.
        unsafe {
            let mut entry = ibv_gid_entry::default();
            if ibv_query_gid_ex(v, ctx, 1, index, &mut entry) != Some(0) {
                continue;
            }
            let v2 = entry.gid_type == ibv_gid_type::IBV_GID_TYPE_ROCE_V2.0;
            let mapped = entry.gid.raw[..12] == [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff];
            if v2 && mapped {
                return (index as u8, entry.gid);
            }
            found.get_or_insert((index as u8, entry.gid));
        }
    }
    found.expect("a GID")
}

/// The Q_Key of datagram queue pairs, where nothing else is said.
pub const QKEY: u32 = 0x1122_3344;

/// Attributes with which a queue pair is connected.
#[derive(Debug, Clone, Copy)]
pub struct ConnectConfig {
    pub access: u32,
    pub rq_psn: u32,
    pub sq_psn: u32,
    pub rd_atomic: u8,
    pub dest_rd_atomic: u8,
    pub min_rnr_timer: u8,
    pub timeout: u8,
    pub retry_cnt: u8,
    pub rnr_retry: u8,
    pub qkey: u32,
}

impl ConnectConfig {
    /// For a peer that lives. A message that finds no receive request fails at once: those that are
    /// posted too late are a test's error.
    pub const LIVING: ConnectConfig = ConnectConfig {
        access: 0xe,
        rq_psn: 7,
        sq_psn: 7,
        rd_atomic: 4,
        dest_rd_atomic: 4,
        min_rnr_timer: 1,
        timeout: LIVING.timeout,
        retry_cnt: LIVING.retry_count,
        rnr_retry: 0,
        qkey: QKEY,
    };

    /// For a peer that lives, and may not be ready to receive for as long as it likes.
    pub const PATIENT: ConnectConfig = ConnectConfig { rnr_retry: 7, ..ConnectConfig::LIVING };

    /// For a peer that does not answer, by design.
    pub const DEAD: ConnectConfig = ConnectConfig::LIVING.with(DEAD);

    /// For a peer that lives until the test ends it.
    pub fn mortal() -> ConnectConfig {
        ConnectConfig::LIVING.with(budget::mortal())
    }

    const fn with(self, budget: Budget) -> ConnectConfig {
        ConnectConfig { timeout: budget.timeout, retry_cnt: budget.retry_count, ..self }
    }
}

impl Default for ConnectConfig {
    fn default() -> ConnectConfig {
        ConnectConfig::LIVING
    }
}

/// A completion that can be printed and compared.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Wc {
    pub id: u64,
    pub status: &'static str,
    pub opcode: &'static str,
    pub len: u32,
    pub imm: Option<u32>,
    pub qp: u32,
    pub src_qp: u32,
    pub has_grh: bool,
    pub vendor_err: u32,
}

impl From<&ibv_wc> for Wc {
    fn from(wc: &ibv_wc) -> Wc {
        let with_imm = wc.wc_flags & ibv_wc_flags::IBV_WC_WITH_IMM.0 != 0;
        Wc {
            id: wc.wr_id,
            status: wc_status_name(wc.status),
            opcode: wc_opcode_name(wc.opcode),
            len: wc.byte_len,
            // SAFETY: an integer.
            imm: with_imm.then(|| u32::from_be(unsafe { wc.__bindgen_anon_1.imm_data })),
            qp: wc.qp_num,
            src_qp: wc.src_qp,
            has_grh: wc.wc_flags & ibv_wc_flags::IBV_WC_GRH.0 != 0,
            vendor_err: wc.vendor_err,
        }
    }
}

/// A send work request over `sges`, to be changed by the test. It points to them:
/// they have to outlive the post, so they are a variable of the test.
pub fn send_wr(
    id: u64,
    opcode: ibv_wr_opcode,
    sges: &mut [ibv_sge],
    flags: ibv_send_flags,
) -> ibv_send_wr {
    // SAFETY: zero is a valid value of every field.
    let mut wr: ibv_send_wr = unsafe { core::mem::zeroed() };
    wr.wr_id = id;
    wr.sg_list = sges.as_mut_ptr();
    wr.num_sge = sges.len() as c_int;
    wr.opcode = opcode;
    wr.send_flags = flags.0;
    wr
}

/// [`send_wr`] to a datagram queue pair.
pub fn datagram_wr(
    id: u64,
    sges: &mut [ibv_sge],
    flags: ibv_send_flags,
    (ah, remote_qpn, remote_qkey): (*mut ibv_ah, u32, u32),
) -> ibv_send_wr {
    let mut wr = send_wr(id, ibv_wr_opcode::IBV_WR_SEND, sges, flags);
    wr.wr.ud = ibv_send_wr__bindgen_ty_2__bindgen_ty_3 { ah, remote_qpn, remote_qkey };
    wr
}

pub const SIGNALED: ibv_send_flags = ibv_send_flags::IBV_SEND_SIGNALED;
pub const UNSIGNALED: ibv_send_flags = ibv_send_flags(0);

pub fn post_send(qp: *mut ibv_qp, wr: &mut ibv_send_wr) -> c_int {
    let mut bad = null_mut();
    // SAFETY: the tests keep the memory until the work completes.
    let error = unsafe { ibv_post_send(qp, wr, &mut bad) };
    refusal(error, bad.is_null())
}

/// Returns the error of a post, without its sign. rxe gives what its library finds as a negative
/// number, and names no request where the kernel refuses, or the queue as such.
fn refusal(error: c_int, names_none: bool) -> c_int {
    assert!(error >= 0 || is_rxe(), "{error}");
    assert!(if error == 0 || !is_rxe() { (error == 0) == names_none } else { true });
    error.abs()
}

pub fn post_recv(qp: *mut ibv_qp, id: u64, sges: &mut [ibv_sge]) -> c_int {
    let mut wr = ibv_recv_wr {
        wr_id: id,
        next: null_mut(),
        sg_list: sges.as_mut_ptr(),
        num_sge: sges.len() as c_int,
    };
    let mut bad = null_mut();
    // SAFETY: as in `post_send`.
    let error = unsafe { ibv_post_recv(qp, &mut wr, &mut bad) };
    refusal(error, bad.is_null())
}

pub fn post_srq_recv(srq: *mut ibv_srq, id: u64, sges: &mut [ibv_sge]) -> c_int {
    let mut wr = ibv_recv_wr {
        wr_id: id,
        next: null_mut(),
        sg_list: sges.as_mut_ptr(),
        num_sge: sges.len() as c_int,
    };
    // SAFETY: as in `post_send`.
    unsafe { ibv_post_srq_recv(srq, &mut wr, &mut null_mut()) }
}

/// `len` bytes at `offset` of a region.
pub fn sge(mr: *mut ibv_mr, offset: usize, len: u32) -> ibv_sge {
    // SAFETY: the region is alive.
    unsafe { ibv_sge { addr: (*mr).addr as u64 + offset as u64, length: len, lkey: (*mr).lkey } }
}

/// Two connected queue pairs, each with its completion queue, and a buffer each.
pub struct QpPair {
    pub net: Net,
    pub cq: [*mut ibv_cq; 2],
    pub qp: [*mut ibv_qp; 2],
    pub mr: [*mut ibv_mr; 2],
    pub buf: [Vec<u8>; 2],
}

impl QpPair {
    pub fn new() -> QpPair {
        QpPair::with(Net::new(), ConnectConfig::default(), ConnectConfig::default())
    }

    /// A pair with all of `a` at the requester and all of `b` at the responder.
    pub fn with(net: Net, a: ConnectConfig, b: ConnectConfig) -> QpPair {
        QpPair::connect(ibv_qp_type::IBV_QPT_RC, net, a, b)
    }

    /// [`QpPair::with`] of a transport.
    pub fn connect(kind: ibv_qp_type, net: Net, a: ConnectConfig, b: ConnectConfig) -> QpPair {
        let pair = QpPair::unconnected(kind, net);
        pair.net.connect(pair.qp[0], pair.num(1), a);
        pair.net.connect(pair.qp[1], pair.num(0), b);
        pair
    }

    /// Two queue pairs of a transport, in RESET.
    pub fn unconnected(kind: ibv_qp_type, net: Net) -> QpPair {
        let cq = [net.cq(256), net.cq(256)];
        let qp = [net.qp_of(kind, cq[0]), net.qp_of(kind, cq[1])];
        let mut buf = [vec![0; 1 << 16], vec![0; 1 << 16]];
        let mr = [net.mr(&mut buf[0], RW), net.mr(&mut buf[1], RW)];
        QpPair { net, cq, qp, mr, buf }
    }

    pub fn num(&self, end: usize) -> u32 {
        // SAFETY: the queue pair is alive.
        unsafe { (*self.qp[end]).qp_num }
    }

    pub fn key(&self, end: usize) -> u32 {
        // SAFETY: the region is alive.
        unsafe { (*self.mr[end]).rkey }
    }

    pub fn addr(&self, end: usize) -> u64 {
        self.buf[end].as_ptr() as u64
    }

    /// Destroys all of it in order, checking each step.
    pub fn close(self) {
        for end in 0..2 {
            self.net.destroy_qp(self.qp[end]);
            self.net.destroy_cq(self.cq[end]);
            self.net.dereg(self.mr[end]);
        }
        self.net.close();
    }
}
