use super::*;
use crate::cli::{ConnectionArgs, RawArgs};

#[test]
fn an_immediate_holds_a_rank_and_a_number() {
    for (rank, number) in [(0, 0), (255, 1), (7, (1 << 24) - 1), (1, 1 << 24), (255, u64::MAX)] {
        let low = (number & 0xff_ffff) as u32;
        assert_eq!(rank_and_number(immediate(rank, number)), (rank, low));
    }
}

fn longest() -> Plan {
    Plan {
        rounds: 1,
        task: Task::Pingpong,
        op: RawOp::WriteImm,
        transport: RawTransport::Rc,
        size: 1 << 29,
        large: Some(1 << 30),
        unacked: 8000,
        batch: 8000,
        signal_every: 16_384,
        inline: u32::MAX,
        recv_depth: 16_384,
        poll_batch: 1024,
        repost_batch: 8192,
        qps: 256,
        srq: true,
        verify: false,
        assumed_in_order: false,
        datagram: None,
        answer_timeout: u32::MAX,
        at: u32::MAX,
        of: u32::MAX,
    }
}

/// As many of everything, but of messages that there is room for.
fn small() -> Plan {
    Plan { size: 16, large: Some(64), ..longest() }
}

/// Each number is possible; all together are not.
#[test]
fn more_memory_than_a_stranger_may_ask_for_is_refused() {
    let all = longest();
    for bad in [
        // What is sent from, what arrives, and what is reached.
        Plan { size: 1 << 20, large: None, ..all.clone() },
        // And what the queues take besides, for that many.
        Plan { op: RawOp::Send, srq: false, size: 192, large: None, ..all.clone() },
        Plan {
            op: RawOp::Send,
            task: Task::Bench,
            unacked: 1,
            batch: 1,
            signal_every: 1,
            ..all.clone()
        },
        Plan {
            op: RawOp::Read,
            task: Task::Bench,
            srq: false,
            verify: true,
            size: 1 << 20,
            large: None,
            unacked: 64,
            batch: 1,
            signal_every: 1,
            ..all
        },
    ] {
        let refused = Plan::decode(&bad.encode().unwrap()).unwrap_err().to_string();
        assert!(refused.contains("MiB is the most"), "{refused}");
    }
}

#[derive(clap::Parser)]
struct Line {
    #[command(flatten)]
    raw: RawArgs,
    #[command(flatten)]
    connection: ConnectionArgs,
}

#[test]
fn without_other_wishes_the_longest_message_has_room() {
    let Line { raw, connection } = clap::Parser::parse_from(["rdma-conn"]);
    for op in [RawOp::Send, RawOp::Write, RawOp::WriteImm, RawOp::Read] {
        for task in [Task::Pingpong, Task::Bench] {
            for size in [1 << 20, 1 << 29, 858_993_408, 858_993_459, 858_993_460, 1 << 30] {
                let plan = Plan::new(task, op, &raw, &connection, size, false);
                plan.check().unwrap_or_else(|e| panic!("{op:?} {task:?} {size}: {e}"));
            }
        }
    }
}

#[test]
fn the_longest_one_fits_the_handshake() {
    let bytes = longest().encode().unwrap();
    assert_eq!(serde_json::from_slice::<Plan>(&bytes).unwrap(), longest());
    let bytes = small().encode().unwrap();
    assert_eq!(Plan::decode(&bytes).unwrap(), small());
    assert!(Plan::decode(b"{}").is_err());
}

#[test]
fn numbers_out_of_range_are_refused() {
    let fine = small;
    fine().check().unwrap();
    let cut = || Plan {
        task: Task::Bench,
        transport: RawTransport::Ud,
        op: RawOp::Send,
        size: 100_000,
        large: None,
        unacked: 64,
        batch: 1,
        signal_every: 1,
        recv_depth: 512,
        repost_batch: 32,
        qps: 16,
        srq: false,
        datagram: Some(4096),
        ..small()
    };
    cut().check().unwrap();
    for bad in [
        Plan { unacked: 0, batch: 0, ..fine() },
        Plan { unacked: u32::MAX, ..fine() },
        Plan { batch: 8001, ..fine() },
        Plan { signal_every: 16_385, ..fine() },
        Plan { recv_depth: 8192, repost_batch: 8192, ..fine() },
        Plan { recv_depth: u32::MAX, ..fine() },
        Plan { poll_batch: 0, ..fine() },
        Plan { repost_batch: 0, ..fine() },
        Plan { qps: 1, ..fine() },
        Plan { qps: 257, ..fine() },
        Plan { qps: 257, srq: false, transport: RawTransport::Uc, ..fine() },
        Plan { qps: 1025, srq: false, ..fine() },
        Plan { large: Some(u32::MAX), ..fine() },
        Plan { op: RawOp::Read, ..fine() },
        Plan { op: RawOp::Write, srq: false, size: 0, large: None, ..fine() },
        Plan { transport: RawTransport::Uc, op: RawOp::Send, ..fine() },
        Plan { datagram: Some(0), ..cut() },
        Plan { datagram: Some(255), ..cut() },
        Plan { datagram: Some(u32::MAX), ..cut() },
        Plan { unacked: 65, ..cut() },
        Plan { transport: RawTransport::Rc, ..cut() },
        Plan { task: Task::Pingpong, ..cut() },
        // A message of each peer, to be put together.
        Plan { size: 1 << 30, ..cut() },
        Plan { transport: RawTransport::Uc, srq: false, ..fine() },
        Plan { transport: RawTransport::Ud, srq: false, ..fine() },
    ] {
        assert!(bad.check().is_err(), "{bad:?}");
    }
}
