//! The status tables: operation × fault → the completion statuses of both ends, for
//! each transport.
//!
//! Each row sets one thing wrong. It runs on whatever device
//! `RDMA_CONN_DEVICE` names; where devices differ, the row lists what each gives
//! (the first is the software device's, and what the specification asks for). Between two
//! processes of the software device the statuses are the same.
//!
//! Not on distant: a completion is there when its post returns.

mod common;

use std::sync::{Mutex, PoisonError};
use std::time::Instant;

use common::other::{Other, hear, role, say};
use common::*;
use verbs_sys::*;

/// Difference from a connection on which everything works.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Fault {
    None,
    /// The requester's scatter/gather entry has a key that was never given out.
    LocalKey,
    /// It ends a byte behind its region.
    LocalBounds,
    /// Its key is of another protection domain.
    LocalDomain,
    /// Its region does not permit local writes.
    LocalReadOnly,
    /// The sum of the requester's entries is over 1 GiB, or a datagram's over a packet.
    TooLong,
    /// The requester may have no read or atomic under way.
    NoReadsHere,
    /// The responder admits none.
    NoReadsThere,
    /// The receive buffer is a byte too short.
    ReceiveShort,
    /// The receive buffer's key is not valid.
    ReceiveKey,
    /// The receive buffer's region does not permit local writes.
    ReceiveReadOnly,
    /// Nothing was posted to receive.
    NoReceive,
    RemoteKey,
    RemoteBounds,
    RemoteDomain,
    /// The remote region permits nothing remote.
    RemoteAccess,
    /// The responding queue pair permits nothing remote.
    QpAccess,
    /// The remote address of an atomic is not a multiple of 8.
    Unaligned,
    /// The first PSN is not the one expected.
    Psn,
    /// The responder is not connected to the requester.
    WrongPeer,
    /// The responder is in INIT, RESET or ERR, or was destroyed.
    PeerInit,
    PeerReset,
    PeerErr,
    PeerGone,
    /// Nothing has this number.
    PeerAbsent,
    /// The request and the receive list have no bytes, and keys of nonsense.
    Empty,
    /// The datagram carries another Q_Key than the responder's.
    Qkey,
    /// The address handle is of another protection domain.
    HandleDomain,
    /// The number is that of a queue pair of another transport.
    OtherTransport,
}

use Fault as F;

/// One row: what the completions are; `-` is "none".
struct Row(Op, Fault, &'static [&'static str], &'static [&'static str]);

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Op {
    Send,
    Write,
    WriteImm,
    Read,
    Add,
    Swap,
}

use Op::{Add, Read, Send, Swap, Write, WriteImm};

const OK: &[&str] = &["SUCCESS"];
const NONE: &[&str] = &["-"];
const FLUSH: &[&str] = &["WR_FLUSH"];
const LOC_PROT: &[&str] = &["LOC_PROT"];
/// rxe takes a receive list that is too short for a malformed request.
const SHORT_AT_REQUESTER: &[&str] = &["REM_INV_REQ", "REM_OP"];
const SHORT_AT_RESPONDER: &[&str] = &["LOC_LEN", "LOC_QP_OP"];
/// mlx5 refuses in the driver or reports a local protection error; rxe reaches the end of the
/// memory, here or (reading) there.
const TOO_LONG: &[&str] = &["LOC_LEN", "LOC_PROT", "LOC_QP_OP", "REM_ACCESS", "refused"];
/// rxe keeps the request for ever: it waits until fewer than none are under way.
const NO_READS: &[&str] = &["LOC_QP_OP", "waits"];
const REM_ACCESS: &[&str] = &["REM_ACCESS"];
/// The specification has an invalid request where the queue pair does not permit
/// the operation; some cards give an access error.
const NOT_PERMITTED: &[&str] = &["REM_INV_REQ", "REM_ACCESS", "REM_OP"];
const REM_OP: &[&str] = &["REM_OP"];
/// Cards find out at the post, or the responder does.
const UNALIGNED: &[&str] = &["REM_INV_REQ", "REM_ACCESS", "refused"];
const RETRY: &[&str] = &["RETRY_EXC"];
/// Half of the PSNs look like repetitions, which real responders acknowledge.
const PSN: &[&str] = &["RETRY_EXC", "SUCCESS"];
const RNR: &[&str] = &["RNR_RETRY_EXC"];
/// Packets do not name the queue pair that sent them: this device knows all the same.
const FROM_ANYONE: &[&str] = &["-", "SUCCESS"];
/// Receives of a queue pair that the error took along.
const TAKEN: &[&str] = &["WR_FLUSH"];
/// rxe has taken the receive request before it looks at the key.
const TAKEN_FOR_IT: &[&str] = &["WR_FLUSH", "REM_ACCESS"];

/// A request that the transport does not have.
const LOC_OP: &[&str] = &["LOC_QP_OP", "refused"];
/// rxe looks for the memory first, and finds the request malformed.
const FAR_TOO_LONG: &[&str] = &["LOC_LEN", "LOC_PROT", "LOC_QP_OP", "refused"];
/// The specification says that nothing is sent and no error made (C10-93.1.1), and
/// rxe does so; cards and this device tell the sender.
const OVER_MTU: &[&str] = &["LOC_LEN", "SUCCESS", "refused"];
/// To rxe a request with a key that it does not find is a malformed one.
const LOCAL_KEY: &[&str] = &["LOC_PROT", "LOC_QP_OP"];
/// rxe does not read from a region that permits nothing at all.
const READ_ONLY: &[&str] = &["SUCCESS", "LOC_QP_OP"];
/// The specification has the message dropped, and the receive request stay; mlx5 and
/// rxe complete that with errors of their own, and the queue pair fails.
const SHORT: &[&str] = &["-", "LOC_LEN", "LOC_QP_OP"];
/// rxe takes a receive list without a valid key for a malformed request.
const BAD_RECEIVE: &[&str] = &["LOC_PROT", "LOC_QP_OP"];
/// A device that takes its time may find a request that is posted afterwards.
const NO_RECEIVE: &[&str] = &["-", "SUCCESS"];
/// A message is dropped where the responder cannot say no. rxe takes an unreliable
/// connection to the error state for a bad key.
const DROPPED: &[&str] = &["-", "WR_FLUSH"];

const RELIABLE: &[Row] = &[
    Row(Send, F::None, OK, OK),
    Row(Send, F::Empty, OK, OK),
    Row(Send, F::LocalKey, LOCAL_KEY, NONE),
    Row(Send, F::LocalBounds, LOC_PROT, NONE),
    Row(Send, F::LocalDomain, LOCAL_KEY, NONE),
    Row(Send, F::LocalReadOnly, READ_ONLY, OK),
    Row(Send, F::TooLong, TOO_LONG, NONE),
    Row(Send, F::NoReadsHere, OK, OK),
    Row(Send, F::ReceiveShort, SHORT_AT_REQUESTER, SHORT_AT_RESPONDER),
    Row(Send, F::ReceiveKey, REM_OP, BAD_RECEIVE),
    Row(Send, F::ReceiveReadOnly, REM_OP, BAD_RECEIVE),
    Row(Send, F::NoReceive, RNR, NONE),
    Row(Send, F::QpAccess, OK, OK),
    Row(Send, F::Psn, PSN, NONE),
    Row(Send, F::WrongPeer, RETRY, FROM_ANYONE),
    Row(Send, F::PeerInit, RETRY, NONE),
    Row(Send, F::PeerReset, RETRY, NONE),
    Row(Send, F::PeerErr, RETRY, FLUSH),
    Row(Send, F::PeerGone, RETRY, NONE),
    Row(Send, F::PeerAbsent, RETRY, NONE),
    Row(Write, F::None, OK, NONE),
    Row(Write, F::Empty, OK, NONE),
    Row(Write, F::LocalKey, LOCAL_KEY, NONE),
    Row(Write, F::LocalBounds, LOC_PROT, NONE),
    Row(Write, F::LocalReadOnly, READ_ONLY, NONE),
    Row(Write, F::TooLong, TOO_LONG, NONE),
    Row(Write, F::NoReceive, OK, NONE),
    Row(Write, F::RemoteKey, REM_ACCESS, TAKEN),
    Row(Write, F::RemoteBounds, REM_ACCESS, TAKEN),
    Row(Write, F::RemoteDomain, REM_ACCESS, TAKEN),
    Row(Write, F::RemoteAccess, REM_ACCESS, TAKEN),
    Row(Write, F::QpAccess, NOT_PERMITTED, TAKEN),
    Row(Write, F::PeerErr, RETRY, FLUSH),
    Row(WriteImm, F::None, OK, OK),
    Row(WriteImm, F::Empty, OK, OK),
    Row(WriteImm, F::NoReceive, RNR, NONE),
    Row(WriteImm, F::ReceiveShort, OK, OK),
    Row(WriteImm, F::ReceiveKey, OK, OK),
    Row(WriteImm, F::RemoteKey, REM_ACCESS, TAKEN_FOR_IT),
    Row(Read, F::None, OK, NONE),
    Row(Read, F::Empty, OK, NONE),
    Row(Read, F::LocalKey, LOC_PROT, NONE),
    Row(Read, F::LocalBounds, LOC_PROT, NONE),
    Row(Read, F::LocalReadOnly, LOC_PROT, NONE),
    Row(Read, F::TooLong, TOO_LONG, NONE),
    Row(Read, F::NoReadsHere, NO_READS, NONE),
    Row(Read, F::NoReadsThere, NOT_PERMITTED, TAKEN),
    Row(Read, F::RemoteKey, REM_ACCESS, TAKEN),
    Row(Read, F::RemoteBounds, REM_ACCESS, TAKEN),
    Row(Read, F::RemoteDomain, REM_ACCESS, TAKEN),
    Row(Read, F::RemoteAccess, REM_ACCESS, TAKEN),
    Row(Read, F::QpAccess, NOT_PERMITTED, TAKEN),
    Row(Read, F::Psn, PSN, NONE),
    Row(Read, F::PeerGone, RETRY, NONE),
    Row(Add, F::None, OK, NONE),
    Row(Add, F::LocalKey, LOC_PROT, NONE),
    Row(Add, F::LocalReadOnly, LOC_PROT, NONE),
    Row(Add, F::NoReadsHere, NO_READS, NONE),
    Row(Add, F::NoReadsThere, NOT_PERMITTED, TAKEN),
    Row(Add, F::RemoteKey, REM_ACCESS, TAKEN),
    Row(Add, F::RemoteAccess, REM_ACCESS, TAKEN),
    Row(Add, F::QpAccess, NOT_PERMITTED, TAKEN),
    Row(Add, F::Unaligned, UNALIGNED, TAKEN),
    Row(Swap, F::None, OK, NONE),
    Row(Swap, F::LocalDomain, LOC_PROT, NONE),
    Row(Swap, F::RemoteBounds, REM_ACCESS, TAKEN),
    Row(Swap, F::Unaligned, UNALIGNED, TAKEN),
    Row(Swap, F::PeerAbsent, RETRY, NONE),
];

/// Rows that unreliable connections and datagrams have in common: a requester never learns what
/// became of its message.
const UNRELIABLE: &[Row] = &[
    Row(Send, F::None, OK, OK),
    Row(Send, F::Empty, OK, OK),
    Row(Send, F::LocalKey, LOCAL_KEY, NONE),
    Row(Send, F::LocalBounds, LOC_PROT, NONE),
    Row(Send, F::LocalDomain, LOCAL_KEY, NONE),
    Row(Send, F::LocalReadOnly, READ_ONLY, OK),
    Row(Send, F::ReceiveShort, OK, SHORT),
    Row(Send, F::ReceiveKey, OK, BAD_RECEIVE),
    Row(Send, F::ReceiveReadOnly, OK, BAD_RECEIVE),
    Row(Send, F::NoReceive, OK, NO_RECEIVE),
    Row(Send, F::Psn, OK, OK),
    Row(Send, F::OtherTransport, OK, NONE),
    Row(Send, F::PeerInit, OK, NONE),
    Row(Send, F::PeerReset, OK, NONE),
    Row(Send, F::PeerErr, OK, FLUSH),
    Row(Send, F::PeerGone, OK, NONE),
    Row(Send, F::PeerAbsent, OK, NONE),
    Row(Read, F::None, LOC_OP, NONE),
    Row(Add, F::None, LOC_OP, NONE),
    Row(Swap, F::None, LOC_OP, NONE),
];

const UNRELIABLE_CONNECTION: &[Row] = &[
    Row(Send, F::TooLong, FAR_TOO_LONG, NONE),
    Row(Send, F::QpAccess, OK, OK),
    // Packets do not name the queue pair that sent them.
    Row(Send, F::WrongPeer, OK, OK),
    Row(Write, F::None, OK, NONE),
    Row(Write, F::Empty, OK, NONE),
    Row(Write, F::LocalKey, LOCAL_KEY, NONE),
    Row(Write, F::TooLong, FAR_TOO_LONG, NONE),
    Row(Write, F::RemoteKey, OK, DROPPED),
    Row(Write, F::RemoteBounds, OK, DROPPED),
    Row(Write, F::RemoteDomain, OK, DROPPED),
    Row(Write, F::RemoteAccess, OK, DROPPED),
    Row(Write, F::QpAccess, OK, DROPPED),
    Row(Write, F::PeerGone, OK, NONE),
    Row(WriteImm, F::None, OK, OK),
    Row(WriteImm, F::Empty, OK, OK),
    Row(WriteImm, F::NoReceive, OK, NO_RECEIVE),
    Row(WriteImm, F::ReceiveShort, OK, OK),
    Row(WriteImm, F::ReceiveKey, OK, OK),
    Row(WriteImm, F::RemoteKey, OK, DROPPED),
];

const DATAGRAM: &[Row] = &[
    Row(Send, F::TooLong, OVER_MTU, NONE),
    Row(Send, F::Qkey, OK, NONE),
    Row(Send, F::HandleDomain, LOC_OP, NONE),
    Row(Write, F::None, LOC_OP, NONE),
    Row(WriteImm, F::None, LOC_OP, NONE),
];

const RC: ibv_qp_type = ibv_qp_type::IBV_QPT_RC;
const UC: ibv_qp_type = ibv_qp_type::IBV_QPT_UC;
const UD: ibv_qp_type = ibv_qp_type::IBV_QPT_UD;

#[test]
fn every_fault_has_its_status_at_both_ends() {
    check_table(RC, RELIABLE);
}

#[test]
fn an_unreliable_connection_fails_here_or_not_at_all() {
    check_table(UC, UNRELIABLE);
    check_table(UC, UNRELIABLE_CONNECTION);
}

#[test]
fn a_datagram_fails_here_or_not_at_all() {
    check_table(UD, UNRELIABLE);
    check_table(UD, DATAGRAM);
}

/// Held by a test that counts what is not received: the tables take turns.
static COUNTS: Mutex<()> = Mutex::new(());

/// Messages that found no receive request here.
fn not_received() -> u64 {
    let counters = soft_rnic::counters_of(&provider().1).unwrap_or_default();
    // Over the network it is packets that count.
    let packets = soft_rnic::packet_counters_of(&provider().1).unwrap_or_default();
    counters.dropped + counters.missed + packets.not_ready
}

fn check_table(kind: ibv_qp_type, table: &[Row]) {
    let _turn = COUNTS.lock().unwrap_or_else(PoisonError::into_inner);
    let check = |row: &Row| compare(kind, row, run(kind, row.0, row.1)).err();
    let wrong: Vec<String> = table.iter().filter_map(check).collect();
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// Compares the statuses of a row with those that it should have given; the error names both.
fn compare(
    kind: ibv_qp_type,
    row: &Row,
    (at_requester, at_responder): (&str, &str),
) -> Result<(), String> {
    let Row(op, fault, requester, responder) = row;
    let of = |all: &[&str], got: &str| {
        // The software device gives the first; others may give any. Over the network it knows as
        // little as they do.
        let knows = is_soft() && !(is_wired() && *fault == F::WrongPeer);
        if knows { all[0] == got } else { all.contains(&got) }
    };
    // Where the requester succeeds or refuses, a real responder may differ.
    let comparable = is_soft() || at_requester == requester[0];
    if of(requester, at_requester) && (!comparable || of(responder, at_responder)) {
        return Ok(());
    }
    let transport = ["", "", "RC", "UC", "UD"][kind.0 as usize];
    Err(format!(
        "{transport} {op:?} with {fault:?}: {at_requester} and {at_responder}, not \
         {requester:?} and {responder:?}"
    ))
}

/// Runs one case on a connection of its own: the statuses of both ends.
fn run(kind: ibv_qp_type, op: Op, fault: Fault) -> (&'static str, &'static str) {
    let (a, b) = configs(fault);
    let pair = QpPair::connect(kind, Net::new(), a, b);
    let case = CaseMemory::new(&pair, fault, pair.num(0));
    let before = not_received();
    let gone = prepare_responder(&pair, &case, fault);
    if let (true, Some(_)) = (kind == UC, case.other_qp) {
        reconnect(&pair, case.to.1, fault);
    }
    if fault == F::PeerAbsent {
        reconnect(&pair, ABSENT, fault);
    }
    let sent = post(kind, op, fault, &pair, &case);
    let taken = match sent {
        "refused" => "-",
        sent => {
            let send_later = || case.send_later(&pair, pair.num(1));
            case.at_responder(kind, &pair, sent, fault, before, send_later)
        }
    };
    check_requester(kind, &pair, sent);
    check_responder(&pair, sent, taken, gone);
    case.close(&pair);
    close(pair, gone);
    (sent, taken)
}

/// The number of no queue pair.
const ABSENT: u32 = 0x00ff_fff0;

/// Posts what there is to be received, and breaks the responder; true if it is destroyed.
fn prepare_responder(pair: &QpPair, case: &CaseMemory, fault: Fault) -> bool {
    if posts_receive(fault) {
        assert_eq!(post_recv(pair.qp[1], 1, &mut [case.receive]), 0);
    }
    let gone = break_peer(pair, fault, case.receive);
    if fault == F::WrongPeer {
        assert_eq!(post_recv(pair.qp[1], 1, &mut [case.receive]), 0);
    }
    gone
}

/// Connects the requester anew.
fn reconnect(pair: &QpPair, to: u32, fault: Fault) {
    assert_eq!(pair.net.to_state(pair.qp[0], ibv_qp_state::IBV_QPS_RESET), 0);
    pair.net.connect(pair.qp[0], to, configs(fault).0);
}

/// Posts the request; returns its status.
fn post(kind: ibv_qp_type, op: Op, fault: Fault, pair: &QpPair, case: &CaseMemory) -> &'static str {
    let mut sges = [case.local; 4];
    let n = if fault == F::TooLong && kind != UD { 4 } else { 1 };
    let mut wr = case.request(kind, op, &mut sges[..n]);
    if post_send(pair.qp[0], &mut wr) != 0 {
        return "refused";
    }
    at_requester(pair, op, fault)
}

/// Each table, and its transport.
const TABLES: [(ibv_qp_type, &[Row]); 5] = [
    (RC, RELIABLE),
    (UC, UNRELIABLE),
    (UC, UNRELIABLE_CONNECTION),
    (UD, UNRELIABLE),
    (UD, DATAGRAM),
];

#[test]
fn every_fault_has_its_status_between_processes() {
    if !is_softs_own("the statuses between processes, by what each does") {
        return;
    }
    let mut other = Other::start("the_other_process", "responder");
    let mut wrong = Vec::new();
    for (t, (kind, table)) in TABLES.iter().enumerate() {
        for (r, row) in table.iter().enumerate() {
            other.say(&format!("{t} {r}"));
            let (sent, taken) = request_from(&mut other, *kind, row);
            wrong.extend(compare(*kind, row, (sent, &taken)).err());
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// The requester's side of a row whose responder is in another process.
fn request_from(other: &mut Other, kind: ibv_qp_type, row: &Row) -> (&'static str, String) {
    let Row(op, fault, ..) = *row;
    let pair = QpPair::unconnected(kind, Net::new());
    other.say(&pair.num(0).to_string());
    let said = other.hear();
    let far: Vec<u64> = said.split(' ').map(|n| n.parse().unwrap()).collect();
    let (number, named) = (far[0] as u32, far[1] as u32);
    pair.net.connect(pair.qp[0], number, configs(fault).0);
    other.say("connected");
    assert_eq!(other.hear(), "ready");
    let mut case = CaseMemory::of_requester(&pair, fault);
    case.remote = (far[2], far[3] as u32);
    case.to.1 = named;
    if kind == UC && fault == F::OtherTransport {
        reconnect(&pair, named, fault);
    }
    if fault == F::PeerAbsent {
        reconnect(&pair, ABSENT, fault);
    }
    let sent = post(kind, op, fault, &pair, &case);
    check_requester(kind, &pair, sent);
    other.say(sent);
    let mut taken = other.hear();
    if taken == "later" {
        case.send_later(&pair, number);
        taken = other.hear();
    }
    case.close(&pair);
    pair.close();
    (sent, taken)
}

#[test]
fn the_other_process() {
    if role().is_none() {
        return;
    }
    while let Some(said) = hear() {
        let at: Vec<usize> = said.split(' ').map(|n| n.parse().unwrap()).collect();
        let (kind, table) = TABLES[at[0]];
        respond(kind, table[at[1]].1);
    }
}

/// The responder's side of a row.
fn respond(kind: ibv_qp_type, fault: Fault) {
    let pair = QpPair::unconnected(kind, Net::new());
    let requester = hear().unwrap().parse().unwrap();
    pair.net.connect(pair.qp[1], requester, configs(fault).1);
    let case = CaseMemory::new(&pair, fault, requester);
    let (addr, key) = case.remote;
    say(&format!("{} {} {addr} {key}", pair.num(1), case.to.1));
    assert_eq!(hear().as_deref(), Some("connected"));
    let before = not_received();
    let gone = prepare_responder(&pair, &case, fault);
    say("ready");
    let sent = hear().unwrap();
    let taken = match &*sent {
        "refused" => "-",
        sent => case.at_responder(kind, &pair, sent, fault, before, || say("later")),
    };
    check_responder(&pair, &sent, taken, gone);
    say(taken);
    case.close(&pair);
    close(pair, gone);
}

/// Returns the result of the request.
fn at_requester(pair: &QpPair, op: Op, fault: Fault) -> &'static str {
    let waits = fault == F::NoReadsHere && matches!(op, Read | Add | Swap) && is_rxe();
    if !waits {
        return pair.net.poll(pair.cq[0], 1)[0].status;
    }
    // The post itself has tried it: nothing else would get it going.
    assert!(pair.net.poll_now(pair.cq[0]).is_empty());
    assert_eq!(pair.net.to_state(pair.qp[0], ibv_qp_state::IBV_QPS_ERR), 0);
    assert_eq!(pair.net.poll(pair.cq[0], 1)[0].status, "WR_FLUSH");
    "waits"
}

/// A completion in error takes its queue pair to the error state, or the send queue of
/// an unreliable one to its own (rxe has none); success leaves it alone.
fn check_requester(kind: ibv_qp_type, pair: &QpPair, sent: &str) {
    let expected = match sent {
        "SUCCESS" => "RTS",
        "refused" => return,
        _ if kind != RC && is_soft() => "SQE",
        _ => "ERR",
    };
    assert_eq!(qp_state_name(pair.net.state(pair.qp[0])), expected);
}

/// And so does one at the responder, or a refusal.
fn check_responder(pair: &QpPair, sent: &str, taken: &str, gone: bool) {
    if (sent.starts_with("REM") || taken.starts_with("LOC")) && !gone {
        assert!(pair.net.reaches(pair.qp[1], ibv_qp_state::IBV_QPS_ERR));
    }
}

fn configs(fault: Fault) -> (ConnectConfig, ConnectConfig) {
    let (mut a, mut b) = (ConnectConfig::default(), ConnectConfig::default());
    match fault {
        F::NoReadsHere => a.rd_atomic = 0,
        F::NoReadsThere => b.dest_rd_atomic = 0,
        F::QpAccess => b.access = 0,
        // Packets are dropped as repetitions or gaps: the responder is as good as silent.
        F::Psn => (a, b.rq_psn) = (ConnectConfig::DEAD, 100),
        F::WrongPeer | F::PeerInit | F::PeerReset | F::PeerErr | F::PeerGone | F::PeerAbsent => {
            a = ConnectConfig::DEAD;
        }
        _ => {}
    }
    (a, b)
}

/// Nearly always: plain writes, reads and atomics leave the receive request alone,
/// and it is there to see that.
fn posts_receive(fault: Fault) -> bool {
    !matches!(fault, F::NoReceive | F::PeerReset | F::PeerGone | F::WrongPeer)
}

/// Breaks the responder; true if it is destroyed.
fn break_peer(pair: &QpPair, fault: Fault, receive: ibv_sge) -> bool {
    use ibv_qp_state as S;
    let net = &pair.net;
    match fault {
        F::PeerInit => {
            assert_eq!(net.to_state(pair.qp[1], S::IBV_QPS_RESET), 0);
            // SAFETY: the queue pair is alive.
            let kind = unsafe { (*pair.qp[1]).qp_type };
            let ((attr, mask), _, _) = net.steps_of(kind, 0, ConnectConfig::default());
            assert_eq!(net.modify(pair.qp[1], attr, mask), 0);
            assert_eq!(post_recv(pair.qp[1], 1, &mut [receive]), 0);
        }
        F::PeerReset => assert_eq!(net.to_state(pair.qp[1], S::IBV_QPS_RESET), 0),
        F::PeerErr => assert_eq!(net.to_state(pair.qp[1], S::IBV_QPS_ERR), 0),
        F::PeerGone => net.destroy_qp(pair.qp[1]),
        F::WrongPeer => {
            assert_eq!(net.to_state(pair.qp[1], S::IBV_QPS_RESET), 0);
            net.connect(pair.qp[1], ABSENT, ConnectConfig::default());
        }
        _ => {}
    }
    fault == F::PeerGone
}

fn close(pair: QpPair, gone: bool) {
    if !gone {
        return pair.close();
    }
    pair.net.destroy_qp(pair.qp[0]);
    for end in 0..2 {
        pair.net.destroy_cq(pair.cq[end]);
        pair.net.dereg(pair.mr[end]);
    }
    pair.net.close();
}

/// The memory of a case: what the request names at either end.
struct CaseMemory {
    local: ibv_sge,
    receive: ibv_sge,
    remote: (u64, u32),
    /// Destination of a datagram; the handle is there for datagrams alone.
    to: (*mut ibv_ah, u32, u32),
    other_pd: *mut ibv_pd,
    /// Reliable connection to the requester, for [`Fault::OtherTransport`].
    other_qp: Option<*mut ibv_qp>,
    mrs: Vec<*mut ibv_mr>,
    _memory: Vec<u8>,
}

/// Returns the Q_Key that a datagram carries.
fn qkey_of(fault: Fault) -> u32 {
    match fault {
        F::Qkey => QKEY + 1,
        // What the other one would have, if it had one.
        F::OtherTransport => 0,
        _ => QKEY,
    }
}

/// The immediate of a message that is sent to find out that nothing arrived before it.
const LATER: u32 = 0x1a7e_0000;
const LEN: u32 = 8;
const WRONG_KEY: u32 = 0x00ba_dbad;
/// In front of every datagram.
const GRH: u32 = 40;

impl CaseMemory {
    /// Creates the requester's part of a case.
    fn of_requester(pair: &QpPair, fault: Fault) -> CaseMemory {
        let here = if fault == F::OtherTransport { F::None } else { fault };
        let mut case = CaseMemory::new(pair, here, pair.num(0));
        case.to.2 = qkey_of(fault);
        case
    }

    /// `requester` is the number of its queue pair.
    fn new(pair: &QpPair, fault: Fault, requester: u32) -> CaseMemory {
        let net = &pair.net;
        let mut memory = vec![0; 4096];
        // SAFETY: the context is open.
        let other_pd = unsafe { (net.v.alloc_pd)(net.ctx) };
        let foreign = net.mr_in(other_pd, &mut memory[..1024], RW);
        let read_only = net.mr(&mut memory[1024..2048], 0);
        // SAFETY: the regions are alive.
        let (foreign_key, read_only_key) = unsafe { ((*foreign).rkey, (*read_only).rkey) };
        let at = |offset: usize| memory.as_ptr() as u64 + offset as u64;
        let end = pair.buf[0].len() - 7;
        // SAFETY: the queue pair is alive.
        let kind = unsafe { (*pair.qp[0]).qp_type };
        let mut local = sge(pair.mr[0], 0, LEN);
        match fault {
            F::LocalKey => local.lkey = WRONG_KEY,
            F::LocalBounds => local = sge(pair.mr[0], end, LEN),
            F::LocalDomain => (local.addr, local.lkey) = (at(0), foreign_key),
            F::LocalReadOnly => (local.addr, local.lkey) = (at(1024), read_only_key),
            F::TooLong if kind == UD => local.length = (128 << net.port().active_mtu.0) + 1,
            F::TooLong => local.length = 1 << 29,
            F::Empty => (local.length, local.lkey) = (0, WRONG_KEY),
            _ => {}
        }
        let header = if kind == UD { GRH } else { 0 };
        let mut receive = sge(pair.mr[1], 512, header + LEN);
        match fault {
            F::ReceiveShort => receive.length -= 1,
            F::ReceiveKey => receive.lkey = WRONG_KEY,
            F::ReceiveReadOnly => (receive.addr, receive.lkey) = (at(1024), read_only_key),
            F::Empty if kind == UD => receive.length = GRH,
            F::Empty => (receive.length, receive.lkey) = (0, WRONG_KEY),
            _ => {}
        }
        let other_qp = (fault == F::OtherTransport).then(|| {
            let qp = net.qp(pair.cq[1]);
            net.connect(qp, requester, ConnectConfig::default());
            assert_eq!(post_recv(qp, 1, &mut [receive]), 0);
            qp
        });
        let ah = match kind {
            UD if fault == F::HandleDomain => net.ah_in(other_pd, net.ah_attr()),
            UD => net.ah(),
            _ => core::ptr::null_mut(),
        };
        let number = match (fault, other_qp) {
            (F::PeerAbsent, _) => ABSENT,
            // SAFETY: the queue pair is alive.
            (_, Some(other)) => unsafe { (*other).qp_num },
            _ => pair.num(1),
        };
        let to = (ah, number, qkey_of(fault));
        let remote = match fault {
            F::RemoteKey | F::Empty => (pair.addr(1), WRONG_KEY),
            F::RemoteBounds => (pair.addr(1) + end as u64 + 7, pair.key(1)),
            F::RemoteDomain => (at(0), foreign_key),
            F::RemoteAccess => (at(1024), read_only_key),
            F::Unaligned => (pair.addr(1) + 4, pair.key(1)),
            _ => (pair.addr(1), pair.key(1)),
        };
        let mrs = vec![foreign, read_only];
        CaseMemory { local, receive, remote, to, other_pd, other_qp, mrs, _memory: memory }
    }

    /// Returns the result of the receive request that was posted for the message.
    fn at_responder(
        &self,
        kind: ibv_qp_type,
        pair: &QpPair,
        sent: &str,
        fault: Fault,
        not_received_before: u64,
        send_later: impl FnOnce(),
    ) -> &'static str {
        let (net, cq) = (&pair.net, pair.cq[1]);
        let out_of_reach =
            matches!(fault, F::PeerInit | F::PeerReset | F::PeerGone | F::PeerAbsent);
        let is_taken = kind == RC && sent.starts_with("REM") && posts_receive(fault);
        if is_taken || fault == F::PeerErr {
            return net.poll(cq, 1)[0].status;
        }
        // A reliable requester's completion is later than the responder's.
        let now = kind == RC || sent != "SUCCESS" || out_of_reach || self.other_qp.is_some();
        if now {
            return net.poll_now(cq).first().map_or("-", |wc| wc.status);
        }
        // A message that has arrived and was not looked at takes the request that is posted next.
        if let Some(wc) = net.poll_now(cq).first() {
            return wc.status;
        }
        // On the way between processes that is so while another thread looks.
        let start = Instant::now();
        while fault == F::NoReceive && is_soft() && not_received() == not_received_before {
            assert!(start.elapsed() < PATIENCE, "neither received nor dropped");
            if let Some(wc) = net.poll_now(cq).first() {
                return wc.status;
            }
        }
        // Nothing tells of what is dropped, but what is sent after it.
        assert_eq!(post_recv(pair.qp[1], 9, &mut [sge(pair.mr[1], 1024, GRH)]), 0);
        send_later();
        let first = net.poll(cq, 1)[0];
        if first.imm == Some(LATER) { "-" } else { first.status }
    }

    /// Sends what finds the responder, `to`, whatever was dropped.
    fn send_later(&self, pair: &QpPair, to: u32) {
        let mut wr = datagram_wr(9, &mut [], SIGNALED, (self.to.0, to, QKEY));
        wr.opcode = ibv_wr_opcode::IBV_WR_SEND_WITH_IMM;
        wr.__bindgen_anon_1.imm_data = LATER.to_be();
        assert_eq!(post_send(pair.qp[0], &mut wr), 0);
    }

    fn request(&self, kind: ibv_qp_type, op: Op, sges: &mut [ibv_sge]) -> ibv_send_wr {
        use ibv_wr_opcode as W;
        let opcode = match op {
            Send => W::IBV_WR_SEND,
            Write => W::IBV_WR_RDMA_WRITE,
            WriteImm => W::IBV_WR_RDMA_WRITE_WITH_IMM,
            Read => W::IBV_WR_RDMA_READ,
            Add => W::IBV_WR_ATOMIC_FETCH_AND_ADD,
            Swap => W::IBV_WR_ATOMIC_CMP_AND_SWP,
        };
        let mut wr = send_wr(2, opcode, sges, SIGNALED);
        let (remote_addr, rkey) = self.remote;
        if kind == UD {
            // With other operations, too: rxe's library looks for the handle.
            let (ah, remote_qpn, remote_qkey) = self.to;
            wr.wr.ud = ibv_send_wr__bindgen_ty_2__bindgen_ty_3 { ah, remote_qpn, remote_qkey };
        } else if matches!(op, Add | Swap) {
            let (compare_add, swap) = (0, 1);
            wr.wr.atomic =
                ibv_send_wr__bindgen_ty_2__bindgen_ty_2 { remote_addr, compare_add, swap, rkey };
        } else {
            wr.wr.rdma = ibv_send_wr__bindgen_ty_2__bindgen_ty_1 { remote_addr, rkey };
        }
        wr
    }

    fn close(self, pair: &QpPair) {
        if let Some(other) = self.other_qp {
            pair.net.destroy_qp(other);
        }
        if !self.to.0.is_null() {
            pair.net.destroy_ah(self.to.0);
        }
        for mr in self.mrs {
            pair.net.dereg(mr);
        }
        // SAFETY: its region is gone.
        assert_eq!(unsafe { (pair.net.v.dealloc_pd)(self.other_pd) }, 0);
    }
}

#[test]
fn a_responder_error_without_a_completion_raises_an_event() {
    for (fault, event) in [(F::RemoteKey, "QP_ACCESS_ERR"), (F::QpAccess, "QP_REQ_ERR")] {
        let (a, b) = configs(fault);
        let pair = QpPair::with(Net::new(), a, b);
        let case = CaseMemory::new(&pair, fault, pair.num(0));
        let mut sges = [case.local];
        let mut wr = case.request(RC, Write, &mut sges);
        assert_eq!(post_send(pair.qp[0], &mut wr), 0);
        pair.net.poll(pair.cq[0], 1);
        let events: Vec<_> = pair.net.async_events().into_iter().map(async_event_name).collect();
        // rxe raises none of them; cards differ.
        assert_eq!(events, [event][usize::from(is_rxe())..]);
        case.close(&pair);
        pair.close();
    }
}
