//! Queue pairs of two processes that are connected anew while something is on its way.

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
        Some(other) => panic!("{other}"),
    }
}

/// Connects, and when it is told so, connects once more to the same queue pair.
fn be_connected_anew() {
    let end = End::new(RC);
    say(&end.say());
    let far = Far::parse(&hear().unwrap());
    for _ in 0..2 {
        assert_eq!(end.net.to_state(end.qp, ibv_qp_state::IBV_QPS_RESET), 0);
        end.connect(far, Config::default());
        say("connected");
        assert_eq!(hear().as_deref(), Some("go on"));
    }
    say(&end.shared.bytes[0].to_string());
    assert_eq!(hear(), None);
}

#[test]
fn a_peer_that_was_connected_anew_takes_nothing_of_the_old_connection() {
    for begun in [true, false] {
        let mut other = start("anew");
        let mut end = End::new(RC);
        let far = join(&end, &mut other, Config::default());
        let write = |end: &mut End, byte| {
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
