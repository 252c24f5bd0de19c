//! Lists: what is in the middle of one ends as it does when it is posted alone,
//! and so does what is around it.
//!
//! Not on rxe0: soft0 has a shorter way for plain lists.

mod common;

use core::ptr::null_mut;

use common::*;
use verbs_sys::*;

/// Requests of a list.
const N: usize = 11;
/// Numbers of requests before the one in the middle: two short ones may go together, and it is the
/// first or the second.
const BEFORE: [usize; 2] = [4, 5];
/// Bytes of a plain message: the short ones travel with their request to another process.
const LENS: [u32; 4] = [7, 16, 32, 48];

/// Request in the middle of plain messages.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Odd {
    Plain,
    Unsignaled,
    Inline,
    Immediate,
    Empty,
    TwoPieces,
    Write,
    Long,
    Longest,
    ForeignKey,
    OutsideRegion,
    LongerThanBuffer,
    NoKeyAtReceiver,
    TwoBuffers,
    NoReceive,
}

const ALL: [Odd; 15] = [
    Odd::Plain,
    Odd::Unsignaled,
    Odd::Inline,
    Odd::Immediate,
    Odd::Empty,
    Odd::TwoPieces,
    Odd::Write,
    Odd::Long,
    Odd::Longest,
    Odd::ForeignKey,
    Odd::OutsideRegion,
    Odd::LongerThanBuffer,
    Odd::NoKeyAtReceiver,
    Odd::TwoBuffers,
    Odd::NoReceive,
];

impl Odd {
    /// Returns the status of its completion, if there is one.
    fn status(self) -> Option<&'static str> {
        match self {
            Odd::Unsignaled => None,
            Odd::ForeignKey | Odd::OutsideRegion => Some("LOC_PROT"),
            Odd::LongerThanBuffer => Some("REM_INV_REQ"),
            Odd::NoKeyAtReceiver => Some("REM_OP"),
            Odd::NoReceive => Some("RNR_RETRY_EXC"),
            _ => Some("SUCCESS"),
        }
    }

    /// Returns the number of completions that the sender gets: one for each signaled request, and
    /// in any case for a request that failed and for those behind it.
    fn completions(self, before: usize) -> usize {
        let failed = self.status().is_some_and(|status| status != "SUCCESS");
        let of = |i: usize| if i == before { self.status().is_some() } else { signaled(i) };
        (0..N).filter(|&i| of(i) || (failed && i > before)).count()
    }
}

/// Two of three plain messages are signalled.
fn signaled(i: usize) -> bool {
    !i.is_multiple_of(3)
}

/// Results at both ends: completions, and the receiver's memory.
type Seen = (Vec<Wc>, Vec<Wc>, Vec<u8>);

#[test]
fn a_list_ends_as_its_requests_do_one_by_one() {
    let lens = || ALL.into_iter().flat_map(|odd| LENS.map(|len| (odd, len)));
    for ((odd, len), before) in lens().flat_map(|case| BEFORE.map(|before| (case, before))) {
        let (list, alone) = (run(odd, len, before, true), run(odd, len, before, false));
        let strip =
            |wcs: &[Wc]| wcs.iter().map(|&wc| Wc { qp: 0, src_qp: 0, ..wc }).collect::<Vec<_>>();
        assert_eq!(strip(&list.0), strip(&alone.0), "{odd:?}, sender");
        assert_eq!(strip(&list.1), strip(&alone.1), "{odd:?}, receiver");
        assert!(list.2 == alone.2, "{odd:?}, memory");
        check(odd, len, before, &list);
    }
}

/// Data that a request carries inline are the device's from the post on, however often they are
/// sent.
#[test]
fn what_waits_for_a_receive_request_arrives_as_it_was_posted() {
    let patient = ConnectConfig::PATIENT;
    let mut pair = QpPair::with(Net::new(), patient, patient);
    greet(&pair);
    let n = LENS.len();
    pair.buf[0].fill(1);
    let mut sges: Vec<_> = LENS.iter().map(|len| [sge(pair.mr[0], 0, *len); 2]).collect();
    let mut wrs: Vec<_> = sges.iter_mut().enumerate().map(|(i, s)| plain(i, s)).collect();
    for i in 0..n {
        wrs[i].send_flags = SIGNALED.0 | ibv_send_flags::IBV_SEND_INLINE.0;
        wrs[i].next = if i + 1 < n { &raw mut wrs[i + 1] } else { null_mut() };
    }
    assert_eq!(post_send(pair.qp[0], &mut wrs[0]), 0);
    pair.buf[0].fill(2);
    assert_eq!(pair.net.poll_now(pair.cq[0]), []);
    for i in 0..n {
        assert_eq!(post_recv(pair.qp[1], i as u64, &mut [sge(pair.mr[1], at(i), 4_096)]), 0);
    }
    let sent = pair.net.poll(pair.cq[0], n);
    assert!(sent.iter().all(|wc| wc.status == "SUCCESS"), "{sent:?}");
    for (i, len) in LENS.into_iter().enumerate() {
        assert_eq!(pair.buf[1][at(i)..][..len as usize], vec![1; len as usize]);
    }
    pair.close();
}

/// The same, by the way that leads to another process.
#[test]
fn so_it_is_between_processes() {
    if std::env::var_os("SOFT_RNIC_APART").is_some() || is_wired() {
        return;
    }
    let mut same = std::process::Command::new(std::env::current_exe().unwrap());
    same.args(["--nocapture", "--exact", "a_list_ends_as_its_requests_do_one_by_one"]);
    same.arg("what_waits_for_a_receive_request_arrives_as_it_was_posted");
    assert!(same.env("SOFT_RNIC_APART", "1").status().unwrap().success());
}

/// Checks what is known without a comparison.
fn check(odd: Odd, len: u32, before: usize, (sent, received, memory): &Seen) {
    let of_the_odd = sent.iter().find(|wc| wc.id == before as u64);
    assert_eq!(of_the_odd.map(|wc| wc.status), odd.status(), "{odd:?}");
    let heard: Vec<_> = sent.iter().map(|wc| wc.id).filter(|&id| id < before as u64).collect();
    let signalled: Vec<_> = (0..before).filter(|&i| signaled(i)).map(|i| i as u64).collect();
    assert_eq!(heard, signalled, "{odd:?}: those that are signalled");
    let ids: Vec<_> = received.iter().map(|wc| wc.id).collect();
    assert!(ids.is_sorted(), "{odd:?}: receive requests are taken in order: {ids:?}");
    for i in 0..before {
        let (message, behind) = memory[at(i)..].split_at(len as usize);
        assert!(message.iter().all(|byte| *byte == i as u8 + 1), "{odd:?}, {len} bytes");
        assert_eq!(behind[0], 0, "{odd:?}, {len} bytes");
        assert_eq!(received[i].len, len, "{odd:?}");
    }
}

/// Sends one message: the way is known afterwards, and the next ones may take a shorter one.
fn greet(pair: &QpPair) {
    assert_eq!(post_recv(pair.qp[1], 99, &mut [sge(pair.mr[1], at(15), 8)]), 0);
    let mut sges = [sge(pair.mr[0], at(15), 8)];
    let mut wr = send_wr(99, ibv_wr_opcode::IBV_WR_SEND, &mut sges, SIGNALED);
    assert_eq!(post_send(pair.qp[0], &mut wr), 0);
    for cq in pair.cq {
        assert_eq!(pair.net.poll(cq, 1)[0].status, "SUCCESS");
    }
}

/// Returns the offset of the data of request `i`, which is also that of its receive request.
fn at(i: usize) -> usize {
    i * 4_096
}

fn run(odd: Odd, len: u32, before: usize, as_list: bool) -> Seen {
    let mut pair = QpPair::new();
    greet(&pair);
    for i in 0..N {
        pair.buf[0][at(i)..at(i) + 4_096].fill(i as u8 + 1);
    }
    post_receives(&pair, odd, len, before);
    let mut sges: Vec<_> = (0..N).map(|i| [sge(pair.mr[0], at(i), len); 2]).collect();
    let mut wrs: Vec<_> = sges.iter_mut().enumerate().map(|(i, s)| plain(i, s)).collect();
    wrs[before].send_flags |= SIGNALED.0;
    make_odd(&pair, odd, &mut wrs[before], &mut sges[before]);
    if as_list {
        for i in 1..N {
            wrs[i - 1].next = &raw mut wrs[i];
        }
        assert_eq!(post_send(pair.qp[0], &mut wrs[0]), 0);
    } else {
        wrs.iter_mut().for_each(|wr| assert_eq!(post_send(pair.qp[0], wr), 0));
    }
    let sent = pair.net.poll(pair.cq[0], odd.completions(before));
    // A receiver that refuses a message ends, and what is left of its requests with it.
    let has_ended = sent.iter().any(|wc| wc.status.starts_with("REM"));
    let received = match has_ended {
        true => pair.net.poll(pair.cq[1], N),
        false => pair.net.poll_now(pair.cq[1]),
    };
    let memory = pair.buf[1].clone();
    pair.close();
    (sent, received, memory)
}

fn plain(i: usize, sges: &mut [ibv_sge; 2]) -> ibv_send_wr {
    let flags = if signaled(i) { SIGNALED } else { UNSIGNALED };
    send_wr(i as u64, ibv_wr_opcode::IBV_WR_SEND, &mut sges[..1], flags)
}

fn post_receives(pair: &QpPair, odd: Odd, len: u32, before: usize) {
    let count = if odd == Odd::NoReceive { before } else { N };
    for i in 0..count {
        let mut sges = [sge(pair.mr[1], at(i), 4_096), sge(pair.mr[1], at(i) + 2_048, 2_048)];
        let mut used = 1;
        match odd {
            Odd::LongerThanBuffer if i == before => sges[0].length = len - 1,
            Odd::NoKeyAtReceiver if i == before => sges[0].lkey ^= 1 << 20,
            Odd::TwoBuffers if i == before => (sges[0].length, used) = (len / 3, 2),
            _ => {}
        }
        assert_eq!(post_recv(pair.qp[1], i as u64, &mut sges[..used]), 0);
    }
}

fn make_odd(pair: &QpPair, odd: Odd, wr: &mut ibv_send_wr, sges: &mut [ibv_sge; 2]) {
    match odd {
        Odd::Plain | Odd::LongerThanBuffer | Odd::NoKeyAtReceiver => {}
        Odd::TwoBuffers | Odd::NoReceive => {}
        Odd::Unsignaled => wr.send_flags = 0,
        Odd::Inline => {
            wr.send_flags |= ibv_send_flags::IBV_SEND_INLINE.0;
            sges[0].lkey = 0;
        }
        Odd::Immediate => {
            wr.opcode = ibv_wr_opcode::IBV_WR_SEND_WITH_IMM;
            wr.__bindgen_anon_1.imm_data = 77_u32.to_be();
        }
        Odd::Empty => (wr.num_sge, wr.sg_list) = (0, null_mut()),
        Odd::TwoPieces => wr.num_sge = 2,
        Odd::Write => {
            wr.opcode = ibv_wr_opcode::IBV_WR_RDMA_WRITE;
            wr.wr.rdma.remote_addr = pair.addr(1) + at(N + 1) as u64;
            wr.wr.rdma.rkey = pair.key(1);
        }
        Odd::Long => sges[0].length = 4_095,
        Odd::Longest => sges[0].length = 4_096,
        Odd::ForeignKey => sges[0].lkey ^= 1 << 20,
        Odd::OutsideRegion => {
            sges[0].addr = pair.addr(0) + (1 << 16) - u64::from(sges[0].length) + 1
        }
    }
}
