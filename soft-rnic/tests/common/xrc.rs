//! Ends of extended reliable connections.

use core::ptr::null_mut;

use super::other::{Other, Shareable, hear, say};
use super::*;

use ibv_srq_init_attr_mask as SrqMask;

pub const XRC_SRQ: u32 = SrqMask::IBV_SRQ_INIT_ATTR_TYPE.0
    | SrqMask::IBV_SRQ_INIT_ATTR_PD.0
    | SrqMask::IBV_SRQ_INIT_ATTR_XRCD.0
    | SrqMask::IBV_SRQ_INIT_ATTR_CQ.0;
pub const BYTES: usize = 1 << 20;

/// Returns the object that a call made, or its errno.
fn made<T>(object: *mut T) -> Result<*mut T, c_int> {
    if object.is_null() { Err(errno()) } else { Ok(object) }
}

pub fn open_xrcd(ctx: *mut ibv_context, fd: c_int, oflags: c_int) -> Result<*mut ibv_xrcd, c_int> {
    open_xrcd_with(ctx, ibv_xrcd_init_attr { comp_mask: 3, fd, oflags })
}

pub fn open_xrcd_with(
    ctx: *mut ibv_context,
    mut attr: ibv_xrcd_init_attr,
) -> Result<*mut ibv_xrcd, c_int> {
    // SAFETY: the context is open.
    made(unsafe { later(ctx).open_xrcd.unwrap()(ctx, &mut attr) })
}

pub fn close_xrcd(xrcd: *mut ibv_xrcd) -> c_int {
    // SAFETY: the domain is open, and so its context.
    unsafe { later((*xrcd).context).close_xrcd.unwrap()(xrcd) }
}

pub fn create_srq(
    ctx: *mut ibv_context,
    mut attr: ibv_srq_init_attr_ex,
) -> Result<*mut ibv_srq, c_int> {
    // SAFETY: the context is open; the attributes' objects are alive.
    made(unsafe { later(ctx).create_srq_ex.unwrap()(ctx, &mut attr) })
}

pub fn srq_attr(pd: *mut ibv_pd, xrcd: *mut ibv_xrcd, cq: *mut ibv_cq) -> ibv_srq_init_attr_ex {
    ibv_srq_init_attr_ex {
        attr: ibv_srq_attr { max_wr: 64, max_sge: 2, srq_limit: 0 },
        comp_mask: XRC_SRQ,
        srq_type: ibv_srq_type::IBV_SRQT_XRC,
        pd,
        xrcd,
        cq,
        ..ibv_srq_init_attr_ex::default()
    }
}

pub fn srq_num(srq: *mut ibv_srq) -> u32 {
    let mut number = 0;
    // SAFETY: the queue is alive.
    let code = unsafe { later((*srq).context).get_srq_num.unwrap()(srq, &mut number) };
    assert_eq!(code, 0);
    number
}

pub fn create_recv(ctx: *mut ibv_context, xrcd: *mut ibv_xrcd) -> Result<*mut ibv_qp, c_int> {
    create_qp_ex(
        ctx,
        ibv_qp_init_attr_ex {
            qp_type: ibv_qp_type::IBV_QPT_XRC_RECV,
            comp_mask: ibv_qp_init_attr_mask::IBV_QP_INIT_ATTR_XRCD.0,
            xrcd,
            ..ibv_qp_init_attr_ex::default()
        },
    )
}

pub fn create_qp_ex(
    ctx: *mut ibv_context,
    mut attr: ibv_qp_init_attr_ex,
) -> Result<*mut ibv_qp, c_int> {
    // SAFETY: the context is open; the attributes' objects are alive.
    made(unsafe { later(ctx).create_qp_ex.unwrap()(ctx, &mut attr) })
}

pub fn open_qp(ctx: *mut ibv_context, xrcd: *mut ibv_xrcd, num: u32) -> Result<*mut ibv_qp, c_int> {
    open_qp_with(
        ctx,
        ibv_qp_open_attr {
            comp_mask: 15,
            qp_num: num,
            xrcd,
            qp_context: null_mut(),
            qp_type: ibv_qp_type::IBV_QPT_XRC_RECV,
        },
    )
}

pub fn open_qp_with(
    ctx: *mut ibv_context,
    mut attr: ibv_qp_open_attr,
) -> Result<*mut ibv_qp, c_int> {
    // SAFETY: the context is open; the attributes' objects are alive.
    made(unsafe { later(ctx).open_qp.unwrap()(ctx, &mut attr) })
}

/// A sending and a receiving queue pair, a receive queue, and memory.
pub struct Xrc {
    pub net: Net,
    pub xrcd: *mut ibv_xrcd,
    /// Completion queues of the send queue, then of the receive queue.
    pub cq: [*mut ibv_cq; 2],
    pub srq: *mut ibv_srq,
    pub send: *mut ibv_qp,
    pub recv: *mut ibv_qp,
    pub shared: Shareable,
    pub heap: Vec<u8>,
    /// Regions of the shareable memory, then of the heap.
    pub mr: [*mut ibv_mr; 2],
}

// SAFETY: verbs may be called from any thread; the memory is the device's and the test's.
unsafe impl Send for Xrc {}
// SAFETY: verbs may be called from any thread; the memory is the device's and the test's.
unsafe impl Sync for Xrc {}

/// Numbers and addresses of an end, for the other one.
#[derive(Debug, Clone, Copy)]
pub struct FarXrc {
    pub send: u32,
    pub recv: u32,
    pub srq: u32,
    pub addr: u64,
    pub rkey: u32,
}

impl Xrc {
    pub fn new() -> Xrc {
        Xrc::on(Net::new())
    }

    pub fn on(net: Net) -> Xrc {
        let xrcd = open_xrcd(net.ctx, -1, libc::O_CREAT).unwrap();
        let cq = [net.cq(256), net.cq(256)];
        let srq = create_srq(net.ctx, srq_attr(net.pd, xrcd, cq[1])).unwrap();
        let attr = net.init_attr(cq[0]);
        let send = net.qp_with(ibv_qp_init_attr {
            recv_cq: null_mut(),
            qp_type: ibv_qp_type::IBV_QPT_XRC_SEND,
            ..attr
        });
        let recv = create_recv(net.ctx, xrcd).unwrap();
        let (shared, mut heap) = (Shareable::new(BYTES), vec![0; BYTES]);
        let mr = [net.mr(shared.bytes, RW), net.mr(&mut heap, RW)];
        Xrc { net, xrcd, cq, srq, send, recv, shared, heap, mr }
    }

    /// Returns what the other end has to know.
    pub fn near(&self) -> FarXrc {
        // SAFETY: all of it is alive.
        let (mr, send, recv) = unsafe { (*self.mr[0], (*self.send).qp_num, (*self.recv).qp_num) };
        FarXrc { send, recv, srq: srq_num(self.srq), addr: mr.addr as u64, rkey: mr.rkey }
    }

    pub fn connect(&self, far: FarXrc, config: ConnectConfig) {
        self.net.connect(self.recv, far.send, config);
        self.net.connect(self.send, far.recv, config);
    }

    /// Posts a request that names a receive queue.
    pub fn post(&self, srqn: u32, wr: &mut ibv_send_wr) {
        wr.qp_type.xrc.remote_srqn = srqn;
        assert_eq!(post_send(self.send, wr), 0);
    }

    /// Sends from one of the two memories.
    pub fn send(&self, srqn: u32, memory: usize, len: u32) {
        let mut sges = [sge(self.mr[memory], 0, len)];
        self.post(srqn, &mut send_wr(1, ibv_wr_opcode::IBV_WR_SEND, &mut sges, SIGNALED));
    }

    /// Posts an operation on the other end's memory.
    pub fn rdma(&self, opcode: ibv_wr_opcode, srqn: u32, len: u32, remote: (u64, u32)) {
        let mut sges = [sge(self.mr[1], 0, len)];
        let mut wr = send_wr(1, opcode, &mut sges, SIGNALED);
        let (remote_addr, rkey) = remote;
        if opcode == ibv_wr_opcode::IBV_WR_ATOMIC_FETCH_AND_ADD {
            let (compare_add, swap) = (5, 0);
            wr.wr.atomic =
                ibv_send_wr__bindgen_ty_2__bindgen_ty_2 { remote_addr, compare_add, swap, rkey };
        } else {
            wr.wr.rdma = ibv_send_wr__bindgen_ty_2__bindgen_ty_1 { remote_addr, rkey };
        }
        wr.__bindgen_anon_1.imm_data = 77_u32.to_be();
        self.post(srqn, &mut wr);
    }

    pub fn post_recv(&self, id: u64, offset: usize, len: u32) {
        assert_eq!(post_srq_recv(self.srq, id, &mut [sge(self.mr[0], offset, len)]), 0);
    }

    /// The status of what was sent.
    pub fn status(&self) -> &'static str {
        self.statuses::<1>()[0]
    }

    /// The statuses of the last requests.
    pub fn statuses<const N: usize>(&self) -> [&'static str; N] {
        let all: Vec<_> = self.net.poll(self.cq[0], N).iter().map(|wc| wc.status).collect();
        all.try_into().unwrap()
    }

    /// The one message that has arrived.
    pub fn received(&self) -> Wc {
        let all = self.net.poll(self.cq[1], 1);
        assert_eq!(all.len(), 1, "{all:?}");
        all[0]
    }

    pub fn close(self) {
        self.net.destroy_qp(self.send);
        self.net.destroy_qp(self.recv);
        // SAFETY: the test is done with it.
        assert_eq!(unsafe { (self.net.v.destroy_srq)(self.srq) }, 0);
        assert_eq!(close_xrcd(self.xrcd), 0);
        self.cq.iter().for_each(|cq| self.net.destroy_cq(*cq));
        self.mr.iter().for_each(|mr| self.net.dereg(*mr));
        self.net.close();
    }
}

/// Two ends in this process, connected both ways.
pub fn two(config: ConnectConfig) -> [Xrc; 2] {
    let ends = [Xrc::new(), Xrc::new()];
    ends[0].connect(ends[1].near(), config);
    ends[1].connect(ends[0].near(), config);
    ends
}

/// Meets the other process.
pub fn join(end: &Xrc, other: &mut Other, config: ConnectConfig) -> FarXrc {
    let far = parse(&other.hear());
    other.say(&line(end.near()));
    end.connect(far, config);
    assert_eq!(other.hear(), "connected");
    far
}

/// The same, in the other process.
pub fn join_as_other(end: &Xrc, config: ConnectConfig) -> FarXrc {
    say(&line(end.near()));
    let far = parse(&hear().unwrap());
    end.connect(far, config);
    say("connected");
    far
}

fn line(near: FarXrc) -> String {
    format!("{} {} {} {} {}", near.send, near.recv, near.srq, near.addr, near.rkey)
}

fn parse(said: &str) -> FarXrc {
    let all: Vec<u64> = said.split_whitespace().map(|n| n.parse().unwrap()).collect();
    let [send, recv, srq, rkey] = [all[0], all[1], all[2], all[4]].map(|n| n as u32);
    FarXrc { send, recv, srq, addr: all[3], rkey }
}

/// Long enough for a machine that is busy, and it repeats for ever.
pub fn patient() -> ConnectConfig {
    ConnectConfig { access: RW, ..ConnectConfig::PATIENT }
}

/// All operations at the other end, whose first memory is known; `at` reads its bytes.
pub fn operate(a: &mut Xrc, far: FarXrc, mut at: impl FnMut(usize) -> u8) {
    let to = (far.addr, far.rkey);
    a.heap[..8].copy_from_slice(&41_u64.to_ne_bytes());
    a.rdma(ibv_wr_opcode::IBV_WR_RDMA_WRITE, far.srq, 8, to);
    assert_eq!((a.status(), at(0)), ("SUCCESS", 41));
    a.rdma(ibv_wr_opcode::IBV_WR_ATOMIC_FETCH_AND_ADD, far.srq, 8, to);
    assert_eq!((a.status(), a.heap[0], at(0)), ("SUCCESS", 41, 46));
    a.rdma(ibv_wr_opcode::IBV_WR_RDMA_READ, far.srq, 8, to);
    assert_eq!((a.status(), a.heap[0]), ("SUCCESS", 46));
}

/// Sends of all sizes, and a write with immediate; the other end has posted four receives.
pub fn send_all(a: &mut Xrc, far: FarXrc) {
    (a.heap[0], a.shared.bytes[0]) = (1, 2);
    a.send(far.srq, 1, 16);
    assert_eq!(a.status(), "SUCCESS");
    a.send(far.srq, 1, 2000);
    assert_eq!(a.status(), "SUCCESS");
    a.send(far.srq, 0, 100_000);
    assert_eq!(a.status(), "SUCCESS");
    a.rdma(ibv_wr_opcode::IBV_WR_RDMA_WRITE_WITH_IMM, far.srq, 8, (far.addr + 512, far.rkey));
    assert_eq!(a.status(), "SUCCESS");
}

/// Checks the messages that [`send_all`] has brought.
pub fn check_received(b: &Xrc, far: FarXrc) {
    let recv = b.near().recv;
    let all = b.net.poll(b.cq[1], 4);
    let lens: Vec<_> = all.iter().map(|wc| (wc.id, wc.len, wc.imm)).collect();
    assert_eq!(lens, [(0, 16, None), (1, 2000, None), (2, 100_000, None), (3, 8, Some(77))]);
    assert!(all.iter().all(|wc| (wc.status, wc.qp, wc.src_qp) == ("SUCCESS", recv, far.send)));
    let first = |at: usize| b.shared.bytes[at << 17];
    assert_eq!([first(1), first(2), first(3), b.shared.bytes[512]], [1, 1, 2, 1]);
}

pub fn post_four(b: &Xrc) {
    for id in 0..4 {
        b.post_recv(id, (id as usize + 1) << 17, 1 << 17);
    }
}
