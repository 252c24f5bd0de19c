//! Queue pairs of two processes that are connected anew while something is on its way.
//!
//! Not on distant, wired: its ends are processes, as those of soft0.

mod common;

use common::other::*;
use common::*;
use verbs_sys::ibv_wr_opcode as W;
use verbs_sys::*;

const RC: ibv_qp_type = ibv_qp_type::IBV_QPT_RC;
const SHARED: usize = 0;
const HEAP: usize = 1;

fn start(role: &str) -> Other {
    Other::start("the_other_process", role)
}

#[test]
fn the_other_process() {
    match role().as_deref() {
        None => {}
        Some("anew") => be_connected_anew(),
        Some("two") => be_two(),
        Some(other) => panic!("{other}"),
    }
}

/// Connects, and connects once more to the same queue pair when the test says so.
fn be_connected_anew() {
    let end = NearEnd::new(RC);
    say(&end.say());
    let far = Far::parse(&hear().unwrap());
    for _ in 0..2 {
        assert_eq!(end.net.to_state(end.qp, ibv_qp_state::IBV_QPS_RESET), 0);
        end.connect(far, ConnectConfig::mortal());
        say("connected");
        assert_eq!(hear().as_deref(), Some("go on"));
    }
    say(&end.shared.bytes[0].to_string());
    assert_eq!(hear(), None);
}

/// Connects twice; a receive is posted for each. Says what arrived on the first.
fn be_two() {
    let ends = [NearEnd::new(RC), NearEnd::new(RC)];
    for end in &ends {
        assert_eq!(post_recv(end.qp, 1, &mut [end.local(HEAP, 0, LONG)]), 0);
        join_as_other(end, ConnectConfig::default());
    }
    assert_eq!(hear().as_deref(), Some("what came?"));
    match ends[0].net.poll_now(ends[0].cq).first() {
        Some(wc) => say(&format!("{} of {}", wc.status, ends[0].heap[0])),
        None => say("nothing"),
    }
    assert_eq!(hear(), None);
}

/// Bytes of a message that is not copied before it is received, whatever memory it lies in.
const LONG: u32 = 100_000;

#[test]
fn a_flushed_long_message_does_not_arrive_with_later_bytes() {
    for (memory, resets) in [(HEAP, false), (SHARED, false), (HEAP, true), (SHARED, true)] {
        let mut other = start("two");
        let (mut end, barrier) = (NearEnd::new(RC), NearEnd::new(RC));
        for end in [&end, &barrier] {
            join(end, &mut other, ConnectConfig::default());
        }
        other.stop();
        let buffer = if memory == HEAP { &mut end.heap[..] } else { &mut *end.shared.bytes };
        buffer.fill(1);
        end.send(end.local(memory, 0, LONG));
        let state = if resets { ibv_qp_state::IBV_QPS_RESET } else { ibv_qp_state::IBV_QPS_ERR };
        assert_eq!(end.net.to_state(end.qp, state), 0);
        // A kernel's device may have sent it by now, and its peer's kernel answers although
        // the process is stopped; then it has arrived.
        let status = if resets { "WR_FLUSH" } else { end.net.poll(end.cq, 1)[0].status };
        let acknowledged = status == "SUCCESS";
        assert!(status == "WR_FLUSH" || (acknowledged && !is_soft()), "{status}");
        let buffer = if memory == HEAP { &mut end.heap[..] } else { &mut *end.shared.bytes };
        buffer.fill(2);
        // A completion behind it shows that it was looked at.
        barrier.send(barrier.local(HEAP, 0, 8));
        other.signal(libc::SIGCONT);
        assert_eq!(barrier.net.poll(barrier.cq, 1)[0].status, "SUCCESS");
        other.say("what came?");
        let came = other.hear();
        // Elsewhere it is sent at once, or in time: then with what it held when it was posted.
        let flushed = came == "nothing" && !acknowledged;
        assert!(flushed || (!is_soft() && came == "SUCCESS of 1"), "{came}, {acknowledged}");
        end.close();
        barrier.close();
    }
}

#[test]
fn a_reconnected_peer_refuses_packets_of_a_begun_connection() {
    for begun in [true, false] {
        let mut other = start("anew");
        let mut end = NearEnd::new(RC);
        let far = join(&end, &mut other, ConnectConfig::mortal());
        let write = |end: &mut NearEnd, byte| {
            end.heap[0] = byte;
            end.post_rdma(W::IBV_WR_RDMA_WRITE, end.local(HEAP, 0, 1), far.memory[SHARED]);
            end.net.poll(end.cq, 1)[0].status
        };
        if begun {
            assert_eq!(write(&mut end, 1), "SUCCESS");
        }
        other.say("go on");
        assert_eq!(other.hear(), "connected");
        // The first packet of a connection is the same for both.
        let (status, byte) = if begun { ("RETRY_EXC", "1") } else { ("SUCCESS", "2") };
        assert_eq!(write(&mut end, 2), status);
        other.say("go on");
        assert_eq!(other.hear(), byte);
        end.close();
    }
}
