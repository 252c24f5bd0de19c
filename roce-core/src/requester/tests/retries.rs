//! Repetition of packets, and its end.

use super::*;

#[test]
fn a_silent_peer_ends_the_request_after_all_retries() {
    for retry_cnt in [0, 1, 3, 7] {
        let mut requester = machine(RequesterConfig { retry_cnt, ..CONFIG });
        requester.post(send(1)).unwrap();
        requester.post(send(1)).unwrap();
        let mut now_ns = 5;
        for _ in 0..=retry_cnt {
            assert_eq!(numbers(&drain(&mut requester, now_ns)), [0, 1]);
            assert_eq!(requester.deadline_ns(), Some(now_ns + TIMEOUT_NS));
            requester.on_timer(now_ns + TIMEOUT_NS - 1);
            assert_eq!(drain(&mut requester, now_ns), [], "before its time");
            now_ns += TIMEOUT_NS;
            requester.on_timer(now_ns);
        }
        assert_eq!(drain(&mut requester, now_ns), []);
        assert_eq!(completions(&mut requester), [(0, CompletionStatus::RetryExceeded)]);
    }
}

#[test]
fn what_is_mended_is_counted_and_the_last_failure_is_not() {
    let mut requester = sent(RequesterConfig { retry_cnt: 1, rnr_retry: 1, ..CONFIG }, &[send(1)]);
    let timer = RnrTimer::new(1).unwrap();
    let rnr = response(Opcode::RcAck, 0, Syndrome::RnrNak { timer });
    requester.on_response(&rnr, 0, 1);
    requester.on_timer(requester.deadline_ns().unwrap());
    assert_eq!(requester.counts(), RetryCounts { rnr_naks: 1, retries: 0 });
    drain(&mut requester, TIMEOUT_NS);
    requester.on_response(&nak(0, NakCode::PsnSequenceError), 0, TIMEOUT_NS);
    requester.on_response(&nak(0, NakCode::PsnSequenceError), 0, TIMEOUT_NS);
    assert_eq!(requester.counts(), RetryCounts { rnr_naks: 1, retries: 1 }, "a copy is none");
    drain(&mut requester, TIMEOUT_NS);
    requester.on_response(&rnr, 0, TIMEOUT_NS);
    assert_eq!(completions(&mut requester), [(0, CompletionStatus::RnrRetryExceeded)]);
    assert_eq!(requester.counts(), RetryCounts { rnr_naks: 1, retries: 1 });
}

#[test]
fn without_a_timeout_it_waits_for_ever() {
    let mut requester = sent(RequesterConfig { timeout: 0, ..CONFIG }, &[send(1)]);
    assert_eq!(requester.deadline_ns(), None);
    requester.on_timer(u64::MAX);
    assert_eq!(drain(&mut requester, u64::MAX), []);
}

#[test]
fn progress_restores_the_retries_and_the_timeout() {
    let mut requester = sent(CONFIG, &[send(1), send(1)]);
    for timeout in 1..=3 {
        requester.on_timer(timeout * TIMEOUT_NS);
        drain(&mut requester, timeout * TIMEOUT_NS);
    }
    let now_ns = 4 * TIMEOUT_NS - 1;
    requester.on_response(&ack(0), 0, now_ns);
    for timeout in 1..=3 {
        assert_eq!(requester.deadline_ns(), Some(now_ns + timeout * TIMEOUT_NS));
        requester.on_timer(now_ns + timeout * TIMEOUT_NS);
        assert_eq!(numbers(&drain(&mut requester, now_ns + timeout * TIMEOUT_NS)), [1]);
    }
    requester.on_timer(now_ns + 4 * TIMEOUT_NS);
    assert_eq!(
        completions(&mut requester),
        [(0, CompletionStatus::Success), (1, CompletionStatus::RetryExceeded)]
    );
}

#[test]
fn a_sequence_nak_repeats_once() {
    let mut requester = sent(CONFIG, &[send(6 * MTU)]);
    let lost = nak(2, NakCode::PsnSequenceError);
    requester.on_response(&lost, 0, 1);
    assert_eq!(numbers(&drain(&mut requester, 1)), [2, 3, 4, 5]);
    for _ in 0..10 {
        requester.on_response(&lost, 0, 2);
        assert_eq!(drain(&mut requester, 2), [], "a copy");
    }
    requester.on_timer(1 + TIMEOUT_NS);
    assert_eq!(numbers(&drain(&mut requester, TIMEOUT_NS)), [2, 3, 4, 5]);
    requester.on_response(&lost, 0, TIMEOUT_NS + 2);
    assert_eq!(numbers(&drain(&mut requester, TIMEOUT_NS)), [2, 3, 4, 5], "it may be a new one");
}

#[test]
fn a_sequence_nak_counts_as_a_retry() {
    let mut requester = sent(RequesterConfig { retry_cnt: 0, ..CONFIG }, &[send(2 * MTU)]);
    requester.on_response(&nak(1, NakCode::PsnSequenceError), 0, 1);
    assert_eq!(completions(&mut requester), [(0, CompletionStatus::RetryExceeded)]);
}

#[test]
fn what_was_lost_need_not_be_sent_when_it_comes_late() {
    let mut requester = sent(CONFIG, &[send(1), send(1), send(1), send(1)]);
    requester.on_response(&nak(1, NakCode::PsnSequenceError), 0, 1);
    requester.on_response(&ack(2), 0, 1);
    assert_eq!(numbers(&drain(&mut requester, 1)), [3]);
}

#[test]
fn an_rnr_nak_is_waited_for() {
    let mut requester = sent(CONFIG, &[send(1), send(2 * MTU), send(1)]);
    requester.on_response(&rnr(1), 0, 100);
    assert_eq!(completions(&mut requester), [(0, CompletionStatus::Success)]);
    assert_eq!(requester.deadline_ns(), Some(20_100));
    for copy in [rnr(1), nak(1, NakCode::PsnSequenceError)] {
        requester.on_response(&copy, 0, 10_000);
        assert_eq!(requester.deadline_ns(), Some(20_100), "a copy");
    }
    requester.on_timer(20_099);
    assert_eq!(drain(&mut requester, 20_099), []);
    requester.on_timer(20_100);
    assert_eq!(numbers(&drain(&mut requester, 20_100)), [1, 2, 3]);
    assert_eq!(requester.window(), 16, "nothing was lost");
}

#[test]
fn an_rnr_nak_shows_that_the_peer_is_alive() {
    let mut requester = sent(RequesterConfig { retry_cnt: 1, ..CONFIG }, &[send(1)]);
    requester.on_timer(TIMEOUT_NS);
    drain(&mut requester, TIMEOUT_NS);
    requester.on_response(&rnr(0), 0, TIMEOUT_NS);
    requester.on_timer(TIMEOUT_NS + 20_000);
    drain(&mut requester, TIMEOUT_NS + 20_000);
    requester.on_timer(2 * TIMEOUT_NS + 20_000);
    assert_eq!(numbers(&drain(&mut requester, 2 * TIMEOUT_NS + 20_000)), [0], "one more");
    requester.on_timer(3 * TIMEOUT_NS + 20_000);
    assert_eq!(completions(&mut requester), [(0, CompletionStatus::RetryExceeded)]);
}

#[test]
fn rnr_retries_are_counted_by_themselves() {
    for (rnr_retry, waits) in [(0, 0), (2, 2), (6, 6), (RNR_RETRY_FOREVER, 1000)] {
        let mut requester = sent(RequesterConfig { rnr_retry, retry_cnt: 0, ..CONFIG }, &[send(1)]);
        for wait in 0..waits {
            let now_ns = wait * 20_000;
            requester.on_response(&rnr(0), 0, now_ns);
            requester.on_timer(now_ns + 20_000);
            assert_eq!(numbers(&drain(&mut requester, now_ns + 20_000)), [0], "wait {wait}");
        }
        requester.on_response(&rnr(0), 0, waits * 20_000);
        let is_over = rnr_retry != RNR_RETRY_FOREVER;
        let end = is_over.then_some((0, CompletionStatus::RnrRetryExceeded));
        assert_eq!(completions(&mut requester), end.into_iter().collect::<Vec<_>>());
    }
}

/// A round trip of 100 µs was measured, and packets were sent at 200 µs.
fn measured(requests: &[Request]) -> TestRequester {
    let mut requester = sent(CONFIG, &[send(1)]);
    requester.on_response(&ack(0), 0, 100_000);
    assert_eq!(requester.round_trip_ns(), Some(100_000));
    requests.iter().for_each(|request| _ = requester.post(*request).unwrap());
    drain(&mut requester, 200_000);
    requester
}

#[test]
fn after_two_round_trips_a_probe_goes() {
    let mut requester = measured(&[send(3 * MTU)]);
    assert_eq!(requester.deadline_ns(), Some(400_000));
    requester.on_timer(400_000);
    let probe = drain(&mut requester, 400_000);
    assert_eq!(numbers(&probe), [1], "one packet");
    assert!(probe[0].headers.bth.ack_req && probe[0].length == MTU);
    assert_eq!(requester.deadline_ns(), Some(800_000), "the next takes twice as long");
    requester.on_timer(800_000);
    assert_eq!(numbers(&drain(&mut requester, 800_000)), [1]);
    assert_eq!(requester.deadline_ns(), Some(1_600_000));
    assert_eq!(requester.window(), 16);
}

#[test]
fn after_progress_a_probe_goes_as_soon_as_the_first() {
    let mut requester = measured(&[send(1), send(1)]);
    requester.on_timer(400_000);
    drain(&mut requester, 400_000);
    requester.on_response(&ack(1), 0, 450_000);
    assert_eq!(numbers(&drain(&mut requester, 450_000)), [2]);
    assert_eq!(requester.deadline_ns(), Some(650_000));
}

/// Packets that are sent again are lost again, and no round trip was measured before.
#[test]
fn a_probe_follows_a_loss_without_a_measured_round_trip() {
    let mut requester = sent(CONFIG, &[send(3 * MTU)]);
    let timeout = requester.deadline_ns().unwrap();
    requester.on_response(&nak(0, NakCode::PsnSequenceError), 0, 1);
    assert_eq!(numbers(&drain(&mut requester, 1)), [0, 1, 2]);
    let probe = requester.deadline_ns().unwrap();
    assert!(probe < timeout, "{probe}");
    requester.on_timer(probe);
    assert_eq!(numbers(&drain(&mut requester, probe)), [0]);
}

#[test]
fn probes_are_no_retries() {
    let mut requester = measured(&[send(1)]);
    let (mut timeouts, mut probes, mut sent_ns) = (0, 0, 200_000);
    while let Some(due_ns) = requester.deadline_ns() {
        requester.on_timer(due_ns);
        let packets = drain(&mut requester, due_ns);
        if due_ns == sent_ns + TIMEOUT_NS {
            (timeouts, sent_ns) = (timeouts + 1, due_ns);
        } else {
            probes += 1;
            assert_eq!(numbers(&packets), [1]);
        }
    }
    assert_eq!(timeouts, 4, "all retries, and the end");
    assert!(probes >= 4, "{probes} probes");
    assert_eq!(
        completions(&mut requester),
        [(0, CompletionStatus::Success), (1, CompletionStatus::RetryExceeded)]
    );
}

#[test]
fn a_probe_acknowledged_alone_shows_that_the_rest_is_lost() {
    let mut requester = measured(&[send(4 * MTU)]);
    requester.on_timer(400_000);
    drain(&mut requester, 400_000);
    requester.on_response(&ack(1), 0, 500_000);
    assert_eq!(numbers(&drain(&mut requester, 500_000)), [2, 3, 4]);
    assert_eq!(requester.window(), 8);
    // Where more had arrived, the rest may be under way.
    let mut requester = measured(&[send(4 * MTU)]);
    requester.on_timer(400_000);
    drain(&mut requester, 400_000);
    requester.on_response(&ack(2), 0, 500_000);
    assert_eq!(drain(&mut requester, 500_000), []);
}

#[test]
fn a_round_trip_is_that_of_a_packet_that_asks_for_an_answer() {
    let mut requester = sent(CONFIG, &[send(6 * MTU)]);
    requester.on_response(&ack(0), 0, 50_000);
    assert_eq!(requester.round_trip_ns(), None, "the fourth asks");
    requester.on_response(&ack(3), 0, 80_000);
    assert_eq!(requester.round_trip_ns(), Some(80_000));
    // Later ones weigh an eighth.
    requester.post(send(1)).unwrap();
    drain(&mut requester, 100_000);
    requester.on_response(&ack(6), 0, 100_800);
    assert_eq!(requester.round_trip_ns(), Some(70_100));
}

#[test]
fn repeated_packets_are_not_measured() {
    let mut requester = measured(&[send(1)]);
    requester.on_timer(200_000 + TIMEOUT_NS);
    drain(&mut requester, 200_000 + TIMEOUT_NS);
    requester.on_response(&ack(1), 0, 900_000_000);
    assert_eq!(requester.round_trip_ns(), Some(100_000));
    let mut requester = measured(&[send(1)]);
    requester.on_timer(400_000);
    drain(&mut requester, 400_000);
    requester.on_response(&ack(1), 0, 900_000_000);
    assert_eq!(requester.round_trip_ns(), Some(100_000), "a probe is a repetition");
}
