//! Cases that failed once, as they were shrunk, each in many orders of threads; and that a seed
//! repeats.
//!
//! Only on soft0: worlds make devices of their own.

use host::world::Limits;
use worlds::case::WorldCase;
use worlds::play::play;

/// Orders of threads for each case.
const ORDERS: u64 = 5;

fn holds(case: &str) {
    let case: WorldCase = serde_json::from_str(case).unwrap();
    for seed in case.seed..case.seed + ORDERS {
        let (report, ended) = play(&WorldCase { seed, ..case.clone() }, Limits::default());
        if let Err(failure) = ended {
            panic!("seed {seed}: {failure}\n{}", report.events.join("\n"));
        }
    }
}

/// The receiver's notice to the sender failed, because the sender had closed, before the messages
/// were handed out.
#[test]
fn a_buffered_write_goodbye_counts_before_what_fails_behind_it() {
    holds(
        r#"{"seed":1131,"connection":"buffered-write","place":"card","switch_one_in":64,"stall_one_in":0,
        "stall_us":1000,"faults":{},"settings":{"window":8,"message_bytes":8,"batch":1,"signal_every":0,
        "other_way":false,"wait":"adaptive","keepalive_ms":1000,"linger_ms":50},
        "senders":[[{"try-send":1},{"try-send":7},{"try-send":0},{"send":8},{"send":1}]],"ends":["close"],
        "receiver":[{"recv":3000000},{"recv":3000000},"try-recv",{"sleep":3000000},"try-recv",{"sleep":1000001}],
        "receiver_is_dropped":false}"#,
    );
}

/// The goodbye overtook a READ, which the receiver could not answer any more.
#[test]
fn a_shared_write_goodbye_waits_for_reads() {
    holds(
        r#"{"seed":4801,"connection":"shared-write","place":"faulty","switch_one_in":1,"stall_one_in":0,
        "stall_us":50000,"faults":{"delay":11,"late_read":171},"settings":{"window":7,"message_bytes":1000,
        "batch":1,"signal_every":0,"other_way":false,"wait":"spin","keepalive_ms":10,"linger_ms":1},
        "senders":[[{"send-within":[1,0]},{"try-send":1000},{"try-send":999},{"wait-all":2000},{"try-send":999},
        {"reserve":[1000,true]},{"batch":[401,7]},{"send":999},{"send":0}]],"ends":["close"],"receiver":[],
        "receiver_is_dropped":false}"#,
    );
}

/// A thread without a processor for a while probed behind its goodbye, and the receiver had gone.
#[test]
fn a_probe_behind_a_goodbye_may_fail() {
    for connection in ["shared-write", "direct-write", "buffered-write"] {
        holds(&format!(
            r#"{{"seed":81,"connection":"{connection}","place":"card","switch_one_in":2,"stall_one_in":8,
            "stall_us":50000,"faults":{{}},"settings":{{"window":2,"message_bytes":8,"batch":1,"signal_every":0,
            "other_way":false,"wait":"block","keepalive_ms":1,"linger_ms":1}},
            "senders":[[{{"send":1}},{{"send":7}}]],"ends":["close"],"receiver":[],"receiver_is_dropped":false}}"#
        ));
    }
}

/// A sender whose send queue was full polled without a pause, until the network had carried a
/// request.
#[test]
fn a_direct_read_sender_sleeps_while_its_queue_is_full() {
    holds(
        r#"{"seed":50,"connection":"direct-read","place":"wired","switch_one_in":1,"stall_one_in":0,"stall_us":1000,
        "faults":{},"network":{"delay_us":0,"loss":285,"repeat":194,"reorder":168,"corrupt":155,"congestion":0,
        "mtu":9000,"queue_kib":208},"settings":{"window":16,"message_bytes":1,"batch":1,"signal_every":2,
        "other_way":false,"wait":"block","keepalive_ms":1,"linger_ms":50,"timeout":14},
        "senders":[[{"batch":[0,15]}]],"ends":["close"],"receiver":[],"receiver_is_dropped":false}"#,
    );
}

/// Two requests that were not signalled left room for one, and a push takes up to three: none of
/// them completed.
#[test]
fn a_full_buffered_write_sender_requests_a_completion() {
    holds(
        r#"{"seed":1232,"connection":"buffered-write","place":"distant","switch_one_in":2,"stall_one_in":0,
        "stall_us":10,"faults":{},"settings":{"window":2,"message_bytes":1,"batch":2,"signal_every":3,
        "other_way":false,"wait":"block","keepalive_ms":86400000,"linger_ms":1000},
        "senders":[[{"batch":[0,3]},{"send":0}]],"ends":["close"],"receiver":[],"receiver_is_dropped":false}"#,
    );
}

/// `arm` of a half without a channel said at once to poll, and probed no peer: its future waited
/// for ever for a process that was killed.
#[test]
fn a_future_that_spins_notices_a_killed_process() {
    let connections = [
        "send-recv",
        "buffered-read",
        "buffered-write",
        "direct-read",
        "direct-write",
        "shared-write",
    ];
    for (connection, process) in connections.into_iter().flat_map(|it| [(it, 0), (it, 1)]) {
        holds(&format!(
            r#"{{"seed":5720,"connection":"{connection}","form":"futures","place":"process","switch_one_in":64,
            "stall_one_in":0,"stall_us":1000,"faults":{{}},"settings":{{"window":1,"message_bytes":4000,"batch":1,
            "signal_every":2,"other_way":true,"wait":"spin","keepalive_ms":1,"linger_ms":1000,"timeout":8}},
            "senders":[[{{"send":3736}},{{"batch":[3453,3]}}]],"ends":["close"],"receiver":[{{"recv":3000000}}],
            "receiver_is_dropped":false,"sender_processes":2,"kill":{{"process":{process},"at_us":63}}}}"#
        ));
    }
}

/// The receiver asked a sender that had said goodbye, and reported it as lost.
#[test]
fn a_direct_read_sender_with_a_goodbye_is_not_lost() {
    holds(
        r#"{"seed":3000251,"connection":"direct-read","place":"near","switch_one_in":64,"stall_one_in":0,"stall_us":10,
        "faults":{},"settings":{"window":3,"message_bytes":4000,"batch":1,"signal_every":0,"other_way":true,
        "wait":"adaptive","keepalive_ms":100,"linger_ms":1000},
        "senders":[[{"send":47},{"batch":[1,2]}],[{"try-send":2959},{"send":1},{"send":1},{"send":3999}]],
        "ends":["close","close"],"receiver":[{"recv":300000},"try-recv",{"recv":300},{"recv":100001},{"recv":300000},
        "try-recv",{"recv":300000}],"receiver_is_dropped":false}"#,
    );
}

/// There was no descriptor for the eventfd by which messages are returned: the message had been
/// read and acknowledged, and was not handed out.
#[test]
fn a_read_message_is_handed_out_despite_missing_resources() {
    holds(
        r#"{"seed":30,"connection":"direct-read","place":"near","switch_one_in":2,"stall_one_in":0,"stall_us":1000,
        "short_one_in":20,"short_to_the_end":true,"faults":{},"settings":{"window":1,"message_bytes":100,"batch":1,"signal_every":3,
        "other_way":false,"wait":"block","keepalive_ms":100,"linger_ms":1000},
        "senders":[[{"send":99}]],"ends":["close"],"receiver":[{"recv":2000}],"receiver_is_dropped":false}"#,
    );
}

/// A receiver of several senders, and one in an event loop, asked after a silent one up to two
/// keepalive intervals late.
#[test]
fn a_silent_sender_is_detected_within_the_keepalive_interval() {
    holds(
        r#"{"seed":7000709,"connection":"shared-write","form":"futures","place":"faulty","switch_one_in":2,
        "stall_one_in":0,"stall_us":50000,"faults":{"delay":90,"rnr":32,"lost_response":36,"late_read":33},
        "settings":{"window":16,"message_bytes":8,"batch":1,"signal_every":1,"other_way":true,"wait":"adaptive",
        "keepalive_ms":100,"linger_ms":1},"senders":[
        [{"try-send":8},"ask",{"batch":[3,5]},{"reserve":[7,true]},{"wait-all":0},{"send":8},"ask"],
        [{"try-send":1},{"reserve":[1,false]},{"send":0},{"wait-all":0},{"send":8},{"try-send":7},{"send":6}],
        [{"batch":[7,6]},{"send":4},{"try-send":1},{"send-within":[7,1]},{"send":6},{"try-send":8},{"try-send":8}]],
        "ends":["close","close","drop"],"receiver":[{"free-elsewhere":1},{"free":7},"try-recv",{"recv":300},
        {"sleep":50},{"recv":300},{"recv":300},"free-all",{"recv":50},{"free":7},{"recv":0},"try-recv",{"recv":50000},
        {"free-elsewhere":3}],"receiver_is_dropped":false}"#,
    );
}

/// Each READ of a tail that had nothing new woke the future, which had the tail read again: more
/// steps than a world may take.
#[test]
fn a_buffered_read_future_that_waits_sleeps() {
    holds(
        r#"{"seed":1,"connection":"buffered-read","form":"futures","place":"faulty","switch_one_in":16,
        "stall_one_in":0,"stall_us":1000,"faults":{},"settings":{"window":3,"message_bytes":4000,"batch":1,
        "signal_every":0,"other_way":false,"wait":"adaptive","keepalive_ms":100,"linger_ms":1000},
        "senders":[[{"sleep":1000000},{"send":4000}]],"ends":["close"],"receiver":[{"recv":3000000}],
        "receiver_is_dropped":false}"#,
    );
}

#[test]
fn a_seed_repeats() {
    for seed in 0..30 {
        let case = WorldCase::draw(seed, None, None);
        let [first, second] = [(); 2].map(|()| play(&case, Limits::default()));
        assert_eq!(first, second, "seed {seed}");
    }
}
