//! On-demand memory of two processes: this program starts itself again.
//!
//! Only on soft0: its processes reach each other as those of soft0 do.

mod common;

use common::other::*;
use common::pages::*;
use common::*;
use verbs_sys::ibv_wr_opcode as W;
use verbs_sys::*;

const RC: ibv_qp_type = ibv_qp_type::IBV_QPT_RC;
const UC: ibv_qp_type = ibv_qp_type::IBV_QPT_UC;
const HEAP: usize = 1;
const PAGES: usize = 64;
const LENGTHS: [u32; 4] = [8, 100, 4096, 150_000];

#[test]
fn the_other_process() {
    match role().as_deref() {
        None => {}
        Some("owner") => be_owner(RC),
        Some("unreliable owner") => be_owner(UC),
        Some("unasked") => be_unasked(),
        Some("refused later") => be_refused_later(),
        Some(other) => panic!("{other}"),
    }
}

/// Has an on-demand region, of a memory file that others could map, and does what it is told.
fn be_owner(kind: ibv_qp_type) {
    let end = NearEnd::new(kind);
    let file = memory_file(PAGES);
    let pages = MappedPages::map_file(&file, PAGES);
    let mr = explicit(&end.net, &pages, RW);
    let whole = piece(&pages, mr, 0, 0);
    join_as_other(&end, patient());
    say(&format!("{} {}", whole.addr, whole.lkey));
    while let Some(line) = hear() {
        let words: Vec<&str> = line.split(' ').collect();
        let of = |nth: usize| words.get(nth).map_or(0, |n| n.parse::<usize>().unwrap());
        match words[0] {
            "fill" => {
                pages.fill(0, of(1), of(2) as u8);
                say("filled");
            }
            "look" => {
                let seen = pages.bytes(0, of(1));
                say(&format!("{} {}", seen[0], seen.iter().all(|byte| *byte == seen[0])));
            }
            "unmap" => {
                pages.unmap(of(1));
                say("unmapped");
            }
            "receive" => {
                assert_eq!(post_recv(end.qp, 1, &mut [piece(&pages, mr, 0, of(1) as u32)]), 0);
                say("ready");
            }
            "received" => say(end.net.poll(end.cq, 1)[0].status),
            // From its memory, this number of bytes.
            "send" => {
                end.send(piece(&pages, mr, 0, of(1) as u32));
                say(end.net.poll(end.cq, 1)[0].status);
            }
            other => panic!("{other}"),
        }
    }
    end.net.dereg(mr);
    end.close();
}

/// A file of `pages` pages, sealed as those are that peers map.
fn memory_file(pages: usize) -> std::os::fd::OwnedFd {
    use rustix::fs::{MemfdFlags, SealFlags, fcntl_add_seals, ftruncate, memfd_create};
    let file = memfd_create("test", MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING).unwrap();
    ftruncate(&file, (pages * PAGE) as u64).unwrap();
    fcntl_add_seals(&file, SealFlags::SHRINK).unwrap();
    file
}

/// This process, connected to the owner of the region, with on-demand memory of its own.
struct User {
    end: NearEnd,
    pages: MappedPages,
    mr: *mut ibv_mr,
    owner: Other,
    there: ibv_sge,
}

impl User {
    fn new() -> User {
        User::connect(RC)
    }

    fn connect(kind: ibv_qp_type) -> User {
        let role = if kind == UC { "unreliable owner" } else { "owner" };
        let mut owner = Other::start("the_other_process", role);
        let end = NearEnd::new(kind);
        let pages = MappedPages::new(PAGES);
        let mr = implicit(&end.net, RW);
        join(&end, &mut owner, patient());
        let said: Vec<u64> = owner.hear().split(' ').map(|n| n.parse().unwrap()).collect();
        let there = ibv_sge { addr: said[0], length: 0, lkey: said[1] as u32 };
        User { end, pages, mr, owner, there }
    }

    fn ask(&mut self, line: &str) -> String {
        self.owner.say(line);
        self.owner.hear()
    }

    fn own(&self, len: u32) -> ibv_sge {
        piece(&self.pages, self.mr, 0, len)
    }

    fn post(&self, op: W, from: ibv_sge) {
        let mut sges = [from];
        assert_eq!(post_send(self.end.qp, &mut rdma_wr(op, &mut sges, self.there)), 0);
    }

    fn status(&self, op: W, from: ibv_sge) -> &'static str {
        self.post(op, from);
        self.end.net.poll(self.end.cq, 1)[0].status
    }

    fn close(self) {
        drop(self.owner);
        self.end.net.dereg(self.mr);
        self.end.close();
    }
}

#[test]
fn each_operation_takes_and_brings_the_bytes() {
    let mut user = User::new();
    for (round, len) in LENGTHS.into_iter().enumerate() {
        let (n, tag) = (len as usize, 10 * round);
        for (op, byte) in [(W::IBV_WR_RDMA_WRITE, tag), (W::IBV_WR_SEND, tag + 1)] {
            user.pages.fill(0, n, byte as u8);
            if op == W::IBV_WR_SEND {
                user.ask(&format!("receive {len}"));
            }
            assert_eq!(user.status(op, user.own(len)), "SUCCESS", "{op:?} {len}");
            if op == W::IBV_WR_SEND {
                assert_eq!(user.ask("received"), "SUCCESS");
            }
            assert_eq!(user.ask(&format!("look {len}")), format!("{byte} true"), "{op:?}");
        }
        user.ask(&format!("fill {len} {}", tag + 2));
        assert_eq!(user.status(W::IBV_WR_RDMA_READ, user.own(len)), "SUCCESS");
        assert_eq!(user.pages.bytes(0, n), vec![(tag + 2) as u8; n]);
        user.ask(&format!("fill {len} {}", tag + 3));
        assert_eq!(post_recv(user.end.qp, 1, &mut [user.own(len)]), 0);
        assert_eq!(user.ask(&format!("send {len}")), "SUCCESS");
        assert_eq!(user.end.net.poll(user.end.cq, 1)[0].status, "SUCCESS");
        assert_eq!(user.pages.bytes(0, n), vec![(tag + 3) as u8; n]);
    }
    user.ask("fill 8 0");
    for (nth, sum) in [0_u64, 5, 10].into_iter().enumerate() {
        let op = W::IBV_WR_ATOMIC_FETCH_AND_ADD;
        assert_eq!(user.status(op, user.own(8)), "SUCCESS", "{nth}");
        assert_eq!(user.pages.bytes(0, 8), sum.to_ne_bytes());
    }
    user.close();
}

/// Length of an operation, and the page that is gone: its first one, or one in its middle.
const GONE: [(u32, usize); 2] = [(8, 0), (150_000, 20)];

#[test]
fn what_the_target_has_lost_is_refused_as_in_one_process() {
    let atomic = W::IBV_WR_ATOMIC_FETCH_AND_ADD;
    for (len, page) in GONE {
        for op in [W::IBV_WR_RDMA_WRITE, W::IBV_WR_RDMA_READ, W::IBV_WR_SEND, atomic] {
            if op == atomic && len != 8 {
                continue;
            }
            // Out of memory of either kind.
            for pinned in [false, true] {
                let mut user = User::new();
                user.ask(&format!("unmap {page}"));
                if op == W::IBV_WR_SEND {
                    user.ask(&format!("receive {len}"));
                }
                let own = if pinned { user.end.local(HEAP, 0, len) } else { user.own(len) };
                let is = user.status(op, own);
                if op == W::IBV_WR_SEND {
                    assert_eq!((is, &*user.ask("received")), ("REM_OP", "LOC_PROT"), "{len}");
                } else {
                    assert_eq!(is, "REM_ACCESS", "{op:?} {len} {pinned}");
                }
                user.close();
            }
        }
    }
}

#[test]
fn what_the_requester_has_lost_fails_there() {
    let atomic = W::IBV_WR_ATOMIC_FETCH_AND_ADD;
    for (len, page) in GONE {
        for op in [W::IBV_WR_RDMA_WRITE, W::IBV_WR_RDMA_READ, W::IBV_WR_SEND, atomic] {
            if op == atomic && len != 8 {
                continue;
            }
            let mut user = User::new();
            if op == W::IBV_WR_SEND {
                user.ask(&format!("receive {len}"));
            }
            user.pages.unmap(page);
            assert_eq!(user.status(op, user.own(len)), "LOC_PROT", "{op:?} {len}");
            user.close();
        }
    }
}

/// The requests are done before the queue pair finds out, and their order stays.
#[test]
fn a_page_goes_between_two_requests() {
    let mut user = User::new();
    user.pages.fill(0, 8192, 3);
    assert_eq!(user.status(W::IBV_WR_RDMA_WRITE, user.own(8192)), "SUCCESS");
    user.ask("unmap 1");
    assert_eq!(user.status(W::IBV_WR_RDMA_WRITE, user.own(4096)), "SUCCESS");
    user.post(W::IBV_WR_RDMA_WRITE, user.own(8192));
    user.post(W::IBV_WR_RDMA_WRITE, user.own(8));
    let statuses: Vec<_> = user.end.net.poll(user.end.cq, 2).iter().map(|wc| wc.status).collect();
    assert_eq!(statuses, ["REM_ACCESS", "WR_FLUSH"]);
    user.close();
}

/// The copies find out what is gone where the kernel does not say it beforehand (as before Linux
/// 5.14): such memory is for what lands in it and is sent from it, and no peer reaches it.
#[test]
fn copies_find_out_what_the_kernel_does_not_say() {
    let mut unasked = Other::start("the_other_process", "unasked");
    assert_eq!(unasked.wait(), Some(0));
}

fn be_unasked() {
    const LOCAL: u32 = 1;
    refuse(&[libc::SYS_madvise]);
    let lone = Net::new();
    let pages = MappedPages::new(4);
    let all = (pages.addr(0), 4 * PAGE);
    assert_eq!(register(&lone, all, RW | ON_DEMAND).err(), Some(libc::EOPNOTSUPP));
    lone.close();
    let judged = |op, len, gone_at| judged(RC, &pages, LOCAL, op, len, gone_at);
    for len in [8, 10_000] {
        assert_eq!(judged(W::IBV_WR_RDMA_READ, len, 0), ("LOC_PROT", None), "{len}");
        assert_eq!(judged(W::IBV_WR_SEND, len, 1), ("REM_OP", Some("LOC_PROT")), "{len}");
    }
    // A short one fails before it is sent, and a long one when it is copied: the receiver is not
    // touched by what its peer has lost.
    let all = [W::IBV_WR_SEND, W::IBV_WR_RDMA_WRITE, W::IBV_WR_RDMA_WRITE_WITH_IMM];
    for (kind, len, op) in [RC, UC]
        .into_iter()
        .flat_map(|kind| [8, 10_000].into_iter().flat_map(move |len| all.map(|op| (kind, len, op))))
    {
        let is = self::judged(kind, &pages, LOCAL, op, len, 0);
        assert_eq!(is, ("LOC_PROT", None), "{kind:?} {op:?} {len}");
    }
}

/// Returns the statuses of a request of `len` bytes, and of the receive request that is there for
/// it, if the first page of an end's memory for it is gone.
fn judged(
    kind: ibv_qp_type,
    pages: &MappedPages,
    access: u32,
    op: W,
    len: u32,
    gone_at: usize,
) -> (&'static str, Option<&'static str>) {
    let p = QpPair::connect(kind, Net::new(), ConnectConfig::default(), ConnectConfig::default());
    let mr = explicit(&p.net, pages, access);
    let (gone, there) = (piece(pages, mr, 0, len), sge(p.mr[1 - gone_at], 0, len));
    let mut sges = [if gone_at == 0 { gone } else { there }];
    let to = if gone_at == 0 { there } else { gone };
    if matches!(op, W::IBV_WR_SEND | W::IBV_WR_RDMA_WRITE_WITH_IMM) {
        assert_eq!(post_recv(p.qp[1], 2, &mut [to]), 0);
    }
    pages.unmap(0);
    assert_eq!(post_send(p.qp[0], &mut rdma_wr(op, &mut sges, to)), 0);
    let sent = p.net.poll(p.cq[0], 1)[0].status;
    pages.map(0);
    let received = p.net.poll_now(p.cq[1]).first().map(|wc| wc.status);
    if sent == "LOC_PROT" {
        let failed = if kind == UC { ibv_qp_state::IBV_QPS_SQE } else { ibv_qp_state::IBV_QPS_ERR };
        assert_eq!(p.net.state(p.qp[0]), failed);
        assert_eq!(
            p.net.state(p.qp[1]),
            ibv_qp_state::IBV_QPS_RTS,
            "it is no matter of the peer's"
        );
    }
    p.net.dereg(mr);
    p.close();
    (sent, received)
}

/// As if each page went between the check and the copy.
#[test]
fn what_goes_after_the_check_the_copy_finds_out() {
    let mut later = Other::start("the_other_process", "refused later");
    assert_eq!(later.wait(), Some(0));
}

fn be_refused_later() {
    let pages = MappedPages::new(4);
    let (user, mut sender) = (User::new(), User::connect(UC));
    refuse(&[libc::SYS_madvise]);
    let atomic = W::IBV_WR_ATOMIC_FETCH_AND_ADD;
    let imm = W::IBV_WR_RDMA_WRITE_WITH_IMM;
    for len in [8, 10_000] {
        let there = |op| judged(RC, &pages, RW, op, len, 1);
        assert_eq!(there(W::IBV_WR_RDMA_WRITE), ("REM_ACCESS", None));
        assert_eq!(there(W::IBV_WR_RDMA_READ), ("REM_ACCESS", None));
        assert_eq!(there(imm), ("REM_ACCESS", Some("WR_FLUSH")));
        assert_eq!(there(W::IBV_WR_SEND), ("REM_OP", Some("LOC_PROT")));
    }
    let of_atomic = [0, 1].map(|end| judged(RC, &pages, RW, atomic, 8, end).0);
    assert_eq!(of_atomic, ["LOC_PROT", "REM_ACCESS"]);
    // A message that is kept back fails as well.
    let late = soft_rnic::NetworkFaults { reordering: 1.0, ..Default::default() };
    soft_rnic::set_network_faults(1, late);
    assert_eq!(judged(UC, &pages, RW, W::IBV_WR_SEND, 10_000, 0), ("LOC_PROT", None));
    soft_rnic::set_network_faults(0, soft_rnic::NetworkFaults::default());
    // Between processes, what an atomic has found has no place any more.
    user.pages.unmap(0);
    assert_eq!(user.status(atomic, user.own(8)), "LOC_PROT");
    user.close();
    // Nor has an unreliable message anything to be fetched. The one behind it is the first that
    // arrives.
    sender.ask("receive 10000");
    sender.pages.unmap(0);
    assert_eq!(sender.status(W::IBV_WR_SEND, sender.own(10_000)), "LOC_PROT");
    assert_eq!(sender.end.net.state(sender.end.qp), ibv_qp_state::IBV_QPS_SQE);
    let again = sender.end.net.steps_of(UC, 0, patient()).2.0;
    let state = ibv_qp_attr_mask::IBV_QP_STATE;
    assert_eq!(sender.end.net.modify(sender.end.qp, again, state), 0);
    sender.pages.map(0);
    sender.pages.fill(0, 10_000, 9);
    assert_eq!(sender.status(W::IBV_WR_SEND, sender.own(10_000)), "SUCCESS");
    assert_eq!((&*sender.ask("received"), &*sender.ask("look 10000")), ("SUCCESS", "9 true"));
    sender.close();
}
