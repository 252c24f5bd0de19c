use super::*;
use crate::cli::{ConnectionArgs, RawArgs};

#[test]
fn an_immediate_holds_a_rank_and_a_number() {
    for (rank, number) in [(0, 0), (255, 1), (7, (1 << 24) - 1), (1, 1 << 24), (255, u64::MAX)] {
        let low = (number & 0xff_ffff) as u32;
        assert_eq!(rank_and_number(immediate(rank, number)), (rank, low));
    }
}

fn longest() -> RawPlan {
    RawPlan {
        rounds: 1,
        task: RawTask::Pingpong,
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
fn small() -> RawPlan {
    RawPlan { size: 16, large: Some(64), ..longest() }
}

/// Each number is possible; all together are not.
#[test]
fn more_memory_than_a_stranger_may_ask_for_is_refused() {
    let all = longest();
    for bad in [
        // What is sent from, what arrives, and what is reached.
        RawPlan { size: 1 << 20, large: None, ..all.clone() },
        // And what the queues take besides, for that many.
        RawPlan { op: RawOp::Send, srq: false, size: 192, large: None, ..all.clone() },
        RawPlan {
            op: RawOp::Send,
            task: RawTask::Bench,
            unacked: 1,
            batch: 1,
            signal_every: 1,
            ..all.clone()
        },
        RawPlan {
            op: RawOp::Read,
            task: RawTask::Bench,
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
        let refused = RawPlan::decode(&bad.encode().unwrap()).unwrap_err().to_string();
        assert!(refused.contains("MiB is the most"), "{refused}");
    }
}

#[derive(clap::Parser)]
struct RawCommandLine {
    #[command(flatten)]
    raw: RawArgs,
    #[command(flatten)]
    connection: ConnectionArgs,
}

#[test]
fn without_other_wishes_the_longest_message_has_room() {
    let RawCommandLine { raw, connection } = clap::Parser::parse_from(["rdma-conn"]);
    for op in [RawOp::Send, RawOp::Write, RawOp::WriteImm, RawOp::Read] {
        for task in [RawTask::Pingpong, RawTask::Bench] {
            for size in [1 << 20, 1 << 29, 858_993_408, 858_993_459, 858_993_460, 1 << 30] {
                let plan = RawPlan::new(task, op, &raw, &connection, size, false);
                plan.check().unwrap_or_else(|e| panic!("{op:?} {task:?} {size}: {e}"));
            }
        }
    }
}

#[test]
fn the_longest_one_fits_the_handshake() {
    let bytes = longest().encode().unwrap();
    assert_eq!(serde_json::from_slice::<RawPlan>(&bytes).unwrap(), longest());
    let bytes = small().encode().unwrap();
    assert_eq!(RawPlan::decode(&bytes).unwrap(), small());
    assert!(RawPlan::decode(b"{}").is_err());
}

#[test]
fn numbers_out_of_range_are_refused() {
    let fine = small;
    fine().check().unwrap();
    let cut = || RawPlan {
        task: RawTask::Bench,
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
    RawPlan { task: RawTask::Pingpong, ..cut() }.check().unwrap();
    for bad in [
        RawPlan { unacked: 0, batch: 0, ..fine() },
        RawPlan { unacked: u32::MAX, ..fine() },
        RawPlan { batch: 8001, ..fine() },
        RawPlan { signal_every: 16_385, ..fine() },
        RawPlan { recv_depth: 8192, repost_batch: 8192, ..fine() },
        RawPlan { recv_depth: u32::MAX, ..fine() },
        RawPlan { poll_batch: 0, ..fine() },
        RawPlan { repost_batch: 0, ..fine() },
        RawPlan { qps: 1, ..fine() },
        RawPlan { qps: 257, ..fine() },
        RawPlan { qps: 257, srq: false, transport: RawTransport::Uc, ..fine() },
        RawPlan { qps: 1025, srq: false, ..fine() },
        RawPlan { large: Some(u32::MAX), ..fine() },
        RawPlan { op: RawOp::Read, ..fine() },
        RawPlan { op: RawOp::Write, srq: false, size: 0, large: None, ..fine() },
        RawPlan { transport: RawTransport::Uc, op: RawOp::Send, ..fine() },
        RawPlan { datagram: Some(0), ..cut() },
        RawPlan { datagram: Some(255), ..cut() },
        RawPlan { datagram: Some(u32::MAX), ..cut() },
        RawPlan { unacked: 65, ..cut() },
        RawPlan { transport: RawTransport::Rc, ..cut() },
        // A message of each peer, to be put together.
        RawPlan { size: 1 << 30, ..cut() },
        RawPlan { transport: RawTransport::Uc, srq: false, ..fine() },
        RawPlan { transport: RawTransport::Ud, srq: false, ..fine() },
    ] {
        assert!(bad.check().is_err(), "{bad:?}");
    }
}
