//! Effects of a congestion notification on the window, and changes that it does not cause.

use super::*;
use crate::congestion::cnp;

/// A requester with the window full of packets, and its clock.
fn busy() -> TestRequester {
    let mut requester = machine(RequesterConfig { max_window: 64, ..CONFIG });
    requester.post(send(100_000 * MTU)).expect("room");
    drain(&mut requester, 0);
    requester
}

fn notify(requester: &mut TestRequester) -> Received {
    requester.on_response(&cnp(1, DEFAULT_PKEY), 0, 1)
}

/// The packets before the one with this number are acknowledged, and others go.
fn acknowledge(requester: &mut TestRequester, next: u32) {
    requester.on_response(&ack(next - 1), 0, 1);
    drain(requester, 1);
    requester.assert_invariants();
}

/// Acknowledges all that is under way in steps of a quarter; returns the number of packets.
fn round_trip(requester: &mut TestRequester, from: u32) -> u32 {
    let end = (requester.sent - u64::from(FIRST)) as u32;
    let mut at = from;
    while at < end {
        at = end.min(at + requester.window.quarter());
        acknowledge(requester, at);
    }
    at
}

#[test]
fn notifications_halve_the_window_once_in_a_round_trip() {
    let mut requester = busy();
    for _ in 0..10 {
        assert_eq!(notify(&mut requester), Received::Noted);
        assert_eq!(requester.window(), 32);
    }
    assert_eq!(drain(&mut requester, 1), [], "nothing is sent again, and nothing more");
    acknowledge(&mut requester, 32);
    notify(&mut requester);
    assert!((32..=40).contains(&requester.window()), "of the same round trip");
    acknowledge(&mut requester, 64);
    let before = requester.window();
    notify(&mut requester);
    assert!(requester.window() <= before / 2 + 2, "{before}, of the next round trip");
    assert_eq!(requester.counts(), RetryCounts::default());
}

#[test]
fn a_path_that_is_rarely_congested_costs_a_little_of_the_window() {
    let mut requester = busy();
    let mut at = 0;
    for _ in 0..100 {
        at = round_trip(&mut requester, at);
    }
    assert_eq!(requester.window(), 64);
    notify(&mut requester);
    // 1/16 of a period in 16: half of that.
    assert_eq!(requester.window(), 61);
    for _ in 0..100 {
        at = round_trip(&mut requester, at);
        notify(&mut requester);
        requester.assert_invariants();
    }
    assert!(requester.window() <= 20, "{}: congested in all periods", requester.window());
    for _ in 0..20 {
        at = round_trip(&mut requester, at);
    }
    assert_eq!(requester.window(), 64, "it grows again");
}

#[test]
fn however_many_notifications_come_one_packet_may_go() {
    let mut requester = busy();
    for at in 64..264 {
        (0..5).for_each(|_| _ = notify(&mut requester));
        acknowledge(&mut requester, at);
    }
    (0..5).for_each(|_| _ = notify(&mut requester));
    assert!((1..=20).contains(&requester.window()), "{}", requester.window());
    let end = (requester.sent - u64::from(FIRST)) as u32;
    acknowledge(&mut requester, end);
    assert!(requester.sent > u64::from(FIRST + end), "it keeps sending");
}

#[test]
fn a_loss_and_a_notification_together_halve_the_window_once() {
    let mut requester = busy();
    requester.on_response(&nak(0, NakCode::PsnSequenceError), 0, 1);
    assert_eq!(requester.window(), 32);
    notify(&mut requester);
    assert_eq!(requester.window(), 32);
}

#[test]
fn a_notification_without_packets_under_way_changes_nothing() {
    let mut requester = sent(CONFIG, &[send(1)]);
    requester.on_response(&ack(0), 0, 1);
    let before = requester.clone();
    assert_eq!(notify(&mut requester), Received::Noted);
    assert_eq!(requester, before);
}

#[test]
fn a_response_marked_becn_counts_as_a_notification() {
    let mut requester = busy();
    let told = ack(0);
    let told = Headers { bth: Bth { becn: true, ..told.bth }, ..told };
    requester.on_response(&told, 0, 1);
    assert_eq!(requester.window(), 32);
    // Only of a response: the requester has no others.
    let mut requester = busy();
    let before = requester.clone();
    let bth = Bth { becn: true, ..Bth::new(Opcode::RcSendOnly, 1, Psn::new(FIRST)) };
    assert_eq!(requester.on_response(&Headers::new(bth), 0, 1), Received::Ignored);
    assert_eq!(requester, before);
}

#[test]
fn a_failed_requester_ignores_notifications() {
    let mut requester = busy();
    requester.on_response(&nak(0, NakCode::RemoteAccessError), 0, 1);
    let before = requester.clone();
    assert_eq!(notify(&mut requester), Received::Ignored);
    assert_eq!(requester, before);
}
