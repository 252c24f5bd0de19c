//! On-demand regions: memory that may be gone when it is accessed, which is an error and no signal.
//!
//! Not on rxe0: Linux 6.1 has no on-demand memory of rxe.

mod common;

use core::ffi::{c_int, c_void};
use core::ptr::null_mut;

use common::pages::*;
use common::*;
use libc::{EFAULT, EINVAL, ENOENT, EOPNOTSUPP, EPERM, PROT_NONE, PROT_READ};
use verbs_sys::ibv_wr_opcode as W;
use verbs_sys::*;

const RC: ibv_qp_type = ibv_qp_type::IBV_QPT_RC;
const UC: ibv_qp_type = ibv_qp_type::IBV_QPT_UC;
const LOCAL: u32 = 1;
/// Pages of a region that is long enough for each length.
const PAGES: usize = 32;
/// Below and above what is copied before it is sent; the last has a page in its middle.
const LENGTHS: [u32; 4] = [1, 100, 4096, 70_000];

fn attr_ex(net: &Net) -> ibv_device_attr_ex {
    // SAFETY: zero is a valid value of every field; the context is open.
    unsafe {
        let mut attr: ibv_device_attr_ex = core::mem::zeroed();
        let (query, size) = (later(net.ctx).query_device_ex.unwrap(), size_of_val(&attr));
        assert_eq!(query(net.ctx, core::ptr::null(), &mut attr, size), 0);
        attr
    }
}

#[test]
fn what_is_reported_is_what_there_is() {
    let net = Net::new();
    let attr = attr_ex(&net);
    let caps = attr.odp_caps;
    assert_eq!(caps.general_caps, 0b11, "explicit and implicit");
    // SEND, RECV, WRITE, READ, ATOMIC, SRQ_RECV.
    let each = caps.per_transport_caps;
    assert_eq!((each.rc_odp_caps, each.uc_odp_caps), (0b11_1111, 0b10_0111));
    let xrc = if is_wired() { 0 } else { 0b11_1101 };
    assert_eq!((each.ud_odp_caps, attr.xrc_odp_caps), (0b10_0011, xrc));
    net.close();
}

/// The version of the kernel.
fn kernel() -> (u32, u32) {
    let release = std::fs::read_to_string("/proc/sys/kernel/osrelease").unwrap();
    let mut numbers = release.split(|c: char| !c.is_ascii_digit()).map(|n| n.parse().unwrap());
    (numbers.next().unwrap(), numbers.next().unwrap())
}

#[test]
fn addresses_without_memory_can_be_registered_on_demand_only() {
    let net = Net::new();
    let pages = MappedPages::new(4);
    let all = (pages.addr(0), 4 * PAGE);
    (1..3).for_each(|page| pages.unmap(page));
    assert_eq!(register(&net, all, LOCAL).err(), Some(EFAULT));
    let mr = register(&net, all, RW | ON_DEMAND).unwrap();
    net.dereg(mr);
    (1..3).for_each(|page| pages.map(page));
    // Before Linux 6.11, the kernel does not tell of those in between.
    let looked_at: &[usize] = if kernel() >= (6, 11) { &[0, 1, 2, 3] } else { &[0, 3] };
    for &page in looked_at {
        pages.protect(page, PROT_READ);
        assert_eq!(register(&net, all, LOCAL).err(), Some(EFAULT), "read-only: page {page}");
        net.dereg(register(&net, all, 0).unwrap());
        net.dereg(register(&net, all, LOCAL | ON_DEMAND).unwrap());
        pages.make_writable(page);
    }
    net.dereg(implicit(&net, RW));
    for (refused, access) in [
        ((0, usize::MAX), LOCAL),
        ((0, usize::MAX), 0),
        ((4096, usize::MAX), LOCAL | ON_DEMAND),
        ((all.0, PAGE), 2 | ON_DEMAND),
    ] {
        let error = register(&net, refused, access).err();
        assert!([Some(EINVAL), Some(EFAULT)].contains(&error), "{refused:?}");
        assert!(error == Some(EINVAL) || access & ON_DEMAND == 0, "{refused:?}");
    }
    net.close();
}

/// Two connected ends, with on-demand memory each.
struct OnDemandEnds {
    p: QpPair,
    pages: [MappedPages; 2],
    mr: [*mut ibv_mr; 2],
}

impl OnDemandEnds {
    fn new(kind: ibv_qp_type, is_implicit: bool) -> OnDemandEnds {
        let p = QpPair::connect(kind, Net::new(), waits_for_pages(), waits_for_pages());
        let pages = [MappedPages::new(PAGES), MappedPages::new(PAGES)];
        let mr = match is_implicit {
            true => [implicit(&p.net, RW), implicit(&p.net, RW)],
            false => [0, 1].map(|end| explicit(&p.net, &pages[end], RW)),
        };
        OnDemandEnds { p, pages, mr }
    }

    fn piece(&self, end: usize, offset: usize, len: u32) -> ibv_sge {
        piece(&self.pages[end], self.mr[end], offset, len)
    }

    /// The statuses of a request, and of the receive request that it has taken.
    fn run(&self, wr: &mut ibv_send_wr, takes_receive: bool) -> (&'static str, &'static str) {
        assert_eq!(post_send(self.p.qp[0], wr), 0);
        let sent = self.p.net.poll(self.p.cq[0], 1)[0].status;
        // What fails before it is sent takes no receive request.
        let is_taken = takes_receive && sent != "LOC_PROT";
        (sent, if is_taken { self.p.net.poll(self.p.cq[1], 1)[0].status } else { "none" })
    }

    fn status(&self, op: W, mut from: Vec<ibv_sge>, to: ibv_sge) -> (&'static str, &'static str) {
        let takes_receive = matches!(op, W::IBV_WR_SEND | W::IBV_WR_RDMA_WRITE_WITH_IMM);
        if takes_receive {
            assert_eq!(post_recv(self.p.qp[1], 2, &mut [to]), 0);
        }
        self.run(&mut rdma_wr(op, &mut from, to), takes_receive)
    }

    /// Waits until all that was sent has arrived: a message that is sent now arrives after it.
    fn meet(&self) {
        assert_eq!(post_recv(self.p.qp[1], 2, &mut []), 0);
        let mut empty = send_wr(1, W::IBV_WR_SEND, &mut [], SIGNALED);
        assert_eq!(self.run(&mut empty, true), ("SUCCESS", "SUCCESS"));
    }

    fn close(self) {
        self.mr.into_iter().for_each(|mr| self.p.net.dereg(mr));
        self.p.close();
    }
}

const ALL: [W; 7] = [
    W::IBV_WR_SEND,
    W::IBV_WR_RDMA_WRITE,
    W::IBV_WR_RDMA_WRITE_WITH_IMM,
    W::IBV_WR_RDMA_READ,
    W::IBV_WR_ATOMIC_FETCH_AND_ADD,
    W::IBV_WR_ATOMIC_CMP_AND_SWP,
    W::IBV_WR_ATOMIC_WRITE,
];

/// Reports whether an operation is one of 8 bytes.
fn is_word(op: W) -> bool {
    is_atomic(op) || op == W::IBV_WR_ATOMIC_WRITE
}

/// Reports whether an operation brings something to the end that asks for it.
fn is_response(op: W) -> bool {
    op == W::IBV_WR_RDMA_READ || is_atomic(op)
}

#[test]
fn each_operation_takes_and_brings_the_bytes() {
    for is_implicit in [false, true] {
        let ends = OnDemandEnds::new(RC, is_implicit);
        for op in ALL.into_iter().filter(|op| !is_word(*op)) {
            for len in LENGTHS {
                let n = len as usize;
                let [from, to] = if is_response(op) { [1, 0] } else { [0, 1] };
                ends.pages[from].fill(8, n, 7);
                ends.pages[to].fill(0, n + 32, 1);
                let (local, remote) = (ends.piece(0, 8, len), ends.piece(1, 8, len));
                let (sent, received) = ends.status(op, vec![local], remote);
                assert!(sent == "SUCCESS" && ["SUCCESS", "none"].contains(&received), "{op:?}");
                let seen = ends.pages[to].bytes(0, n + 16);
                assert!(seen[8..][..n].iter().all(|byte| *byte == 7), "{op:?} {len}");
                assert!(seen[..8].iter().chain(&seen[n + 8..]).all(|byte| *byte == 1));
            }
        }
        ends.pages[0].fill(16, 8, 7);
        let (local, remote) = (ends.piece(0, 16, 8), ends.piece(1, 64, 8));
        assert_eq!(ends.status(W::IBV_WR_ATOMIC_WRITE, vec![local], remote).0, "SUCCESS");
        assert_eq!(ends.pages[1].bytes(64, 8), [7; 8]);
        for (op, becomes) in [(W::IBV_WR_ATOMIC_FETCH_AND_ADD, 10), (ALL[5], 9)] {
            ends.pages[1].fill(64, 8, 0);
            ends.pages[1].fill(64, 1, 5);
            let (local, remote) = (ends.piece(0, 16, 8), ends.piece(1, 64, 8));
            assert_eq!(ends.status(op, vec![local], remote).0, "SUCCESS");
            let seen = [ends.pages[0].bytes(16, 1)[0], ends.pages[1].bytes(64, 1)[0]];
            assert_eq!(seen, [5, becomes], "{op:?}");
            let odd = ends.piece(1, 65, 8);
            if op == ALL[5] {
                assert_eq!(ends.status(op, vec![local], odd).0, "REM_INV_REQ");
            }
        }
        ends.close();
    }
}

#[test]
fn a_list_may_have_both_kinds_of_memory() {
    let mut ends = OnDemandEnds::new(RC, false);
    for len in [64_u32, 20_000] {
        ends.p.buf[0].fill(3);
        ends.pages[0].fill(0, 40_000, 4);
        let half = len as usize;
        let mixed = |ends: &OnDemandEnds| vec![sge(ends.p.mr[0], 0, len), ends.piece(0, 0, len)];
        let whole = ends.piece(1, 0, 2 * len);
        assert_eq!(ends.status(W::IBV_WR_SEND, mixed(&ends), whole), ("SUCCESS", "SUCCESS"));
        let seen = ends.pages[1].bytes(0, 2 * half);
        assert!(seen[..half].iter().all(|b| *b == 3) && seen[half..].iter().all(|b| *b == 4));
        ends.pages[1].fill(0, half, 5);
        assert_eq!(ends.status(W::IBV_WR_RDMA_READ, mixed(&ends), whole).0, "SUCCESS");
        assert!(ends.p.buf[0][..half].iter().all(|b| *b == 5));
        assert_eq!(ends.pages[0].bytes(0, half), seen[half..]);
        // Into a list of both kinds.
        let mut to = [sge(ends.p.mr[1], 0, len), ends.piece(1, 0, len)];
        assert_eq!(post_recv(ends.p.qp[1], 3, &mut to), 0);
        let mut from = [ends.piece(0, 0, 2 * len)];
        ends.pages[0].fill(0, 2 * half, 6);
        let sent = ends.run(&mut send_wr(1, W::IBV_WR_SEND, &mut from, SIGNALED), true);
        assert_eq!(sent, ("SUCCESS", "SUCCESS"));
        assert!(ends.p.buf[1][..half].iter().chain(&ends.pages[1].bytes(0, half)).all(|b| *b == 6));
    }
    ends.close();
}

/// Ways in which a page can be gone.
const WAYS: [&str; 3] = ["unmapped", "no access", "read-only"];

fn take_away(pages: &MappedPages, page: usize, way: &str) {
    match way {
        "unmapped" => pages.unmap(page),
        "no access" => pages.protect(page, PROT_NONE),
        _ => pages.protect(page, PROT_READ),
    }
}

#[test]
fn what_is_gone_fails_at_the_end_that_has_lost_it() {
    // The first page alone, and some with the gone one in the middle.
    for (len, page) in [(8, 0), (3 * PAGE as u32, 1)] {
        for op in ALL.into_iter().filter(|op| len == 8 || !is_word(*op)) {
            for (end, way) in [0, 1].into_iter().flat_map(|end| WAYS.map(|way| (end, way))) {
                let is_written = is_atomic(op) || is_response(op) == (end == 0);
                if way == "read-only" && !is_written {
                    continue;
                }
                let ends = OnDemandEnds::new(RC, way == "unmapped");
                ends.pages[1].fill(0, 3 * PAGE, 1);
                take_away(&ends.pages[end], page, way);
                let pieces = (vec![ends.piece(0, 0, len)], ends.piece(1, 0, len));
                let is = ends.status(op, pieces.0, pieces.1);
                let should_be = match (end, op) {
                    (0, _) => ("LOC_PROT", "none"),
                    (_, W::IBV_WR_SEND) => ("REM_OP", "LOC_PROT"),
                    (_, W::IBV_WR_RDMA_WRITE_WITH_IMM) => ("REM_ACCESS", "WR_FLUSH"),
                    _ => ("REM_ACCESS", "none"),
                };
                assert_eq!(is, should_be, "{op:?} {len} {way} at {end}");
                // (On the way to another process, the requester cannot ask for pages there. Over
                // the network a message arrives packet by packet, and does not say before how long
                // it is.)
                let is_apart = std::env::var_os("SOFT_RNIC_APART").is_some();
                let comes_in_packets = is_wired() && end == 1 && op == W::IBV_WR_SEND;
                if page == 1 && !is_apart && !comes_in_packets {
                    let first = ends.pages[1].bytes(0, PAGE);
                    assert!(first.iter().all(|byte| *byte == 1), "nothing has changed");
                }
                let events = ends.p.net.async_events();
                let is_access = end == 1 && should_be.0 == "REM_ACCESS";
                let expected = ibv_event_type::IBV_EVENT_QP_ACCESS_ERR;
                assert_eq!(events.contains(&expected), is_access, "{events:?}");
                ends.close();
            }
        }
    }
}

/// Memory that a request needs may go when it is under way: it waits for a receive request, or for
/// its peer.
#[test]
fn what_goes_under_way_is_an_error_and_no_signal() {
    // Half a second: it is not sent again before its memory has gone.
    let config = ConnectConfig { min_rnr_timer: 31, ..waits_for_pages() };
    for len in [64, 3 * PAGE as u32] {
        let pages = [MappedPages::new(PAGES), MappedPages::new(PAGES)];
        let p = QpPair::with(Net::new(), config, config);
        let mr = [0, 1].map(|end| explicit(&p.net, &pages[end], RW));
        let refusals = || soft_rnic::counters_of(&provider().1).map(|all| all.rnr_naks);
        let before = refusals();
        let mut from = [piece(&pages[0], mr[0], 0, len)];
        assert_eq!(post_send(p.qp[0], &mut send_wr(1, W::IBV_WR_SEND, &mut from, SIGNALED)), 0);
        // The message has been refused once, so that it is sent again.
        while before.is_some() && refusals() == before {
            std::thread::yield_now();
        }
        pages[0].unmap(0);
        assert_eq!(post_recv(p.qp[1], 2, &mut [piece(&pages[1], mr[1], 0, len)]), 0);
        assert_eq!(p.net.poll(p.cq[0], 1)[0].status, "LOC_PROT", "{len}");
        mr.into_iter().for_each(|mr| p.net.dereg(mr));
        p.close();

        let p = QpPair::unconnected(RC, Net::new());
        let mr = explicit(&p.net, &pages[1], RW);
        // It is sent again until its peer is connected.
        p.net.connect(p.qp[0], p.num(1), config);
        let (mut to, from) = ([piece(&pages[1], mr, 0, len)], sge(p.mr[1], 0, len));
        let mut wr = rdma_wr(W::IBV_WR_RDMA_READ, &mut to, from);
        (wr.wr.rdma.remote_addr, wr.wr.rdma.rkey) = (p.addr(1), p.key(1));
        assert_eq!(post_send(p.qp[0], &mut wr), 0);
        pages[1].unmap(0);
        p.net.connect(p.qp[1], p.num(0), config);
        assert_eq!(p.net.poll(p.cq[0], 1)[0].status, "LOC_PROT", "{len}");
        p.net.dereg(mr);
        p.close();
    }
}

/// Over the network, a queue pair that ends keeps what its peer has read, for the case that it asks
/// again.
#[test]
fn what_was_read_may_go_before_the_queue_pair() {
    let mut ends = OnDemandEnds::new(RC, false);
    let (local, remote) = (ends.piece(0, 0, 64), ends.piece(1, 0, 64));
    assert_eq!(ends.status(W::IBV_WR_RDMA_READ, vec![local], remote).0, "SUCCESS");
    ends.pages[1].unmap(0);
    ends.p.net.destroy_qp(ends.p.qp[1]);
    ends.p.qp[1] = ends.p.net.qp(ends.p.cq[1]);
    ends.close();
}

#[test]
fn unreliable_transports_drop_what_the_receiver_has_lost() {
    for len in [8, 3 * PAGE as u32] {
        let ends = OnDemandEnds::new(UC, false);
        ends.pages[1].unmap(0);
        let (local, remote) = (ends.piece(0, 0, len), ends.piece(1, 0, len));
        assert_eq!(ends.status(W::IBV_WR_RDMA_WRITE, vec![local], remote).0, "SUCCESS");
        ends.meet();
        // The queue pair continues, and the page is mapped again.
        ends.pages[1].map(0);
        // On a network, a message to pages that have to be paged in first is dropped, too.
        ends.pages[1].fill(0, len as usize, 0);
        ends.pages[0].fill(0, len as usize, 3);
        assert_eq!(ends.status(W::IBV_WR_RDMA_WRITE, vec![local], remote).0, "SUCCESS");
        ends.meet();
        assert_eq!(ends.pages[1].bytes(0, 8), [3; 8]);
        ends.pages[0].unmap(0);
        assert_eq!(ends.status(W::IBV_WR_RDMA_WRITE, vec![local], remote).0, "LOC_PROT");
        assert_eq!(ends.p.net.state(ends.p.qp[0]), ibv_qp_state::IBV_QPS_SQE);
        ends.close();
    }
}

#[test]
fn datagrams_come_from_and_go_to_on_demand_memory() {
    let net = Net::new();
    let (pages, ah) = (MappedPages::new(4), net.ah());
    let mr = explicit(&net, &pages, RW);
    let cq = net.cq(16);
    let kind = ibv_qp_type::IBV_QPT_UD;
    let qps = [net.qp_of(kind, cq), net.qp_of(kind, cq)];
    qps.iter().for_each(|qp| net.connect(*qp, 0, ConnectConfig::default()));
    // SAFETY: the queue pair is alive.
    let to = (ah, unsafe { (*qps[1]).qp_num }, QKEY);
    let statuses = |n: usize| {
        let mut all: Vec<&str> = net.poll(cq, n).iter().map(|wc| wc.status).collect();
        all.sort_unstable();
        all
    };
    pages.fill(0, 1000, 7);
    // On a network, a datagram to pages that have to be paged in first is dropped.
    pages.fill(2 * PAGE - 500, 1040, 0);
    let mut from = [piece(&pages, mr, 0, 1000)];
    let mut wr = datagram_wr(1, &mut from, SIGNALED, to);
    assert_eq!(post_recv(qps[1], 2, &mut [piece(&pages, mr, 2 * PAGE - 500, 1040)]), 0);
    assert_eq!(post_send(qps[0], &mut wr), 0);
    assert_eq!(statuses(2), ["SUCCESS", "SUCCESS"]);
    assert_eq!(pages.bytes(2 * PAGE - 460, 1000), [7; 1000]);
    // The receiver's is gone: as with a key that is not valid.
    assert_eq!(post_recv(qps[1], 2, &mut [piece(&pages, mr, 2 * PAGE - 500, 1040)]), 0);
    pages.unmap(2);
    let (mut seen, mut sent) = (Vec::new(), 0);
    // On a network, datagrams are dropped until it is known that the page cannot be paged in.
    while !seen.contains(&"LOC_PROT") {
        assert_eq!(post_send(qps[0], &mut wr), 0);
        sent += 1;
        seen.extend(statuses(if is_wired() { 1 } else { 2 }));
    }
    seen.extend(statuses(1 + sent - seen.len()));
    assert_eq!(seen.iter().filter(|status| **status == "SUCCESS").count(), sent);
    pages.unmap(0);
    assert_eq!(post_send(qps[0], &mut wr), 0);
    assert_eq!(statuses(1), ["LOC_PROT"]);
    assert_eq!(net.state(qps[0]), ibv_qp_state::IBV_QPS_SQE);
    qps.into_iter().for_each(|qp| net.destroy_qp(qp));
    net.destroy_cq(cq);
    net.dereg(mr);
    net.destroy_ah(ah);
    net.close();
}

#[test]
fn a_file_that_has_become_shorter_is_no_bus_error() {
    use rustix::fs::{MemfdFlags, ftruncate, memfd_create};
    let file = memfd_create("test", MemfdFlags::CLOEXEC).unwrap();
    for op in [W::IBV_WR_SEND, W::IBV_WR_RDMA_WRITE, W::IBV_WR_RDMA_READ] {
        for end in [0, 1] {
            let mut ends = OnDemandEnds::new(RC, true);
            ftruncate(&file, 2 * PAGE as u64).unwrap();
            ends.pages[end] = MappedPages::map_file(&file, 2);
            ends.pages[end].fill(0, 2 * PAGE, 1);
            ftruncate(&file, PAGE as u64).unwrap();
            let [local, remote] = [0, 1].map(|end| ends.piece(end, 0, 2 * PAGE as u32));
            let is = ends.status(op, vec![local], remote).0;
            let there = if op == W::IBV_WR_SEND { "REM_OP" } else { "REM_ACCESS" };
            assert_eq!(is, if end == 0 { "LOC_PROT" } else { there }, "{op:?} at {end}");
            ends.close();
        }
    }
}

// Kinds of advice, and its flag.
const READ: u32 = 0;
const WRITE: u32 = 1;
const NO_FAULT: u32 = 2;
const FLUSH: u32 = 1;

#[test]
fn advice_brings_pages_or_says_what_is_wrong() {
    let net = Net::new();
    let pages = MappedPages::new(8);
    let (mr, constant) = (explicit(&net, &pages, RW), explicit(&net, &pages, 0));
    let everything = implicit(&net, RW);
    let resident = |page: usize| {
        let mut seen = 0_u8;
        // SAFETY: a page of ours, and one byte.
        let error =
            unsafe { libc::mincore(pages.addr(page * PAGE) as *mut c_void, PAGE, &raw mut seen) };
        (error, seen & 1)
    };
    let tell = |advice, flags, mr, page: usize, n: usize| {
        let mut list = [piece(&pages, mr, page * PAGE, (n * PAGE) as u32)];
        advise(&net, net.pd, advice, flags, &mut list)
    };
    assert_eq!(tell(WRITE, FLUSH, mr, 2, 2), 0);
    assert_eq!([1, 2, 3, 4].map(resident), [(0, 0), (0, 1), (0, 1), (0, 0)]);
    assert_eq!(tell(WRITE, 0, everything, 4, 1), 0);
    assert_eq!(resident(4), (0, 1));
    assert_eq!((tell(NO_FAULT, FLUSH, mr, 5, 1), resident(5)), (0, (0, 0)));
    assert_eq!((tell(READ, FLUSH, constant, 0, 8), pages.bytes(0, 1)), (0, vec![0]));
    // What is asked for is wrong.
    assert_eq!(tell(3, FLUSH, mr, 0, 1), EOPNOTSUPP);
    assert_eq!(tell(READ, 2, mr, 0, 1), EINVAL);
    assert_eq!(advise(&net, net.pd, READ, FLUSH, &mut []), EINVAL);
    assert_eq!(advise(&net, null_mut(), READ, FLUSH, &mut [piece(&pages, mr, 0, 1)]), EINVAL);
    // Keys.
    let mut key = piece(&pages, mr, 0, 8);
    key.lkey ^= 1 << 20;
    assert_eq!(advise(&net, net.pd, READ, FLUSH, &mut [key]), ENOENT);
    let pinned = register(&net, (pages.addr(0), PAGE), RW).unwrap();
    assert_eq!(tell(READ, FLUSH, pinned, 0, 1), ENOENT);
    net.dereg(pinned);
    assert_eq!(tell(WRITE, FLUSH, constant, 0, 1), EPERM);
    // SAFETY: the context is open.
    let foreign = unsafe { (net.v.alloc_pd)(net.ctx) };
    assert_eq!(advise(&net, foreign, READ, FLUSH, &mut [piece(&pages, mr, 0, 8)]), EPERM);
    // SAFETY: it has no objects.
    assert_eq!(unsafe { (net.v.dealloc_pd)(foreign) }, 0);
    // Addresses: behind the region, unmapped, not permitted.
    assert_eq!(tell(READ, FLUSH, mr, 7, 2), EFAULT);
    pages.unmap(6);
    assert_eq!([READ, WRITE, NO_FAULT].map(|a| tell(a, FLUSH, mr, 5, 3)), [EFAULT, EFAULT, 0]);
    pages.map(6);
    pages.protect(6, PROT_READ);
    assert_eq!([READ, WRITE].map(|a| tell(a, FLUSH, mr, 5, 3)), [0, EFAULT]);
    // One that is refused is refused before any is followed.
    pages.map(5);
    let mut list = [piece(&pages, mr, 5 * PAGE, 8), key];
    assert_eq!(advise(&net, net.pd, WRITE, FLUSH, &mut list), ENOENT);
    assert_eq!(resident(5), (0, 0));
    [mr, constant, everything].into_iter().for_each(|mr| net.dereg(mr));
    net.close();
}

#[test]
fn a_region_can_change_to_the_other_kind() {
    let ends = OnDemandEnds::new(RC, false);
    let change = |mr, access: u32| {
        const ACCESS: c_int = 4;
        // SAFETY: the region is alive.
        unsafe {
            let rereg = ends.p.net.v.rereg_mr.unwrap();
            rereg(mr, ACCESS, null_mut(), null_mut(), 0, access as c_int)
        }
    };
    let write = || {
        let (local, remote) = (ends.piece(0, 0, 8), ends.piece(1, 0, 8));
        ends.status(W::IBV_WR_RDMA_WRITE, vec![local], remote).0
    };
    assert_eq!(change(ends.mr[1], RW), 0);
    assert_eq!(write(), "SUCCESS");
    assert_eq!(change(ends.mr[1], RW | ON_DEMAND), 0);
    assert_eq!(write(), "SUCCESS");
    ends.pages[1].unmap(0);
    let new_memory = ibv_rereg_mr_err_code::IBV_REREG_MR_ERR_DONT_FORK_NEW.0;
    assert_eq!((change(ends.mr[1], RW), errno()), (new_memory, EFAULT));
    assert_eq!(write(), "REM_ACCESS");
    ends.close();
}
