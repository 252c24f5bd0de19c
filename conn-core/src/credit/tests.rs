use std::{println, vec::Vec};

use proptest::prelude::*;

use super::oracle::*;
use super::*;
use crate::exhaustive::{CheckedMachine, every_history};

/// Positions just before those where the wire, a u32 or its half turn over.
const EDGES: [u64; 4] = [0, (1 << 31) - 2, (1 << 32) - 3, (1 << 40) + (1 << 30) - 1];

#[test]
fn every_short_history_of_the_sender_agrees_with_the_model() {
    let mut histories = 0;
    for (window, already) in (1..=3).flat_map(|w| EDGES.map(|edge| (w, edge))) {
        let steps =
            (0..=window + 1).flat_map(|n| [CreditWindowOp::Consume(n), CreditWindowOp::Refund(n)]);
        let credits =
            [-(1 << 30), -4, -1, 0, 1, 2, 3, 4, 1 << 20, 1 << 30].map(CreditWindowOp::Credit);
        let alphabet: Vec<_> = steps.chain(credits).collect();
        histories +=
            every_history(&CheckedCreditWindow::new(window, already).unwrap(), &alphabet, 4);
    }
    println!("credit, sender: {histories} histories");
    assert!(histories > 1_000_000);
}

#[test]
fn every_short_history_of_the_receiver_agrees_with_the_model() {
    use CreditGrantorOp::*;
    let alphabet = [
        Receive,
        ReceiveMany(2),
        Repost(0),
        Repost(1),
        Repost(2),
        Repost(4),
        Grant,
        Flush,
        Mark(-1),
        Mark(0),
        Mark(1),
        Mark(2),
    ];
    let mut histories = 0;
    for (window, threshold) in (1..=3).flat_map(|w| (1..=w + 1).map(move |t| (w, t))) {
        for already in [EDGES[1], EDGES[2]] {
            let start = CheckedCreditGrantor::new(window, threshold, already).unwrap();
            histories += every_history(&start, &alphabet, 5);
        }
    }
    println!("credit, receiver: {histories} histories");
    assert!(histories > 1_000_000);
}

#[test]
fn every_short_credit_history_finds_buffers_and_new_credit() {
    use CreditLinkOp::*;
    let alphabet = [Send, Arrive, Free, Repost, Grant, Credit];
    let mut histories = 0;
    for (threshold, batch) in (1..=5).flat_map(|t| (1..=5).map(move |b| (t, b))) {
        let mut start = CheckedCreditLink::new(threshold, batch, EDGES[1]);
        histories += every_history(&start, &alphabet, 5);
        for op in [Send, Send, Send, Send, Arrive, Arrive, Free] {
            start.apply(op);
        }
        histories += every_history(&start, &alphabet, 5);
    }
    println!("credit, both ends: {histories} histories");
    assert!(histories > 100_000);
}

#[test]
fn credits_are_exact_at_the_largest_window() {
    for already in EDGES {
        let mut pair = CheckedCreditWindow::new(MAX_WINDOW, already).unwrap();
        pair.apply(CreditWindowOp::Consume(MAX_WINDOW));
        for by in [MAX_WINDOW + 1, u32::MAX >> 2, 1 << 30] {
            pair.apply(CreditWindowOp::Credit(by as i32));
            pair.apply(CreditWindowOp::Credit(-(by as i32)));
        }
        pair.apply(CreditWindowOp::Credit(MAX_WINDOW as i32));
        pair.apply(CreditWindowOp::Credit(0));
    }
}

/// All messages have arrived and their buffers are posted again one by one: that sends
/// the most credits, and exactly as many as receives are set aside for them.
#[test]
fn the_bound_on_credits_under_way_is_reached() {
    for (window, threshold) in (1..=40).flat_map(|w| (1..=45).map(move |t| (w, t))) {
        let (mut grantor, mut grants) = (CreditGrantor::new(window, threshold).unwrap(), 0);
        (0..window).for_each(|_| grantor.on_receive().unwrap());
        for _ in 0..window {
            grantor.on_reposted(1).unwrap();
            if let Some(credit) = grantor.due() {
                grantor.mark_granted(credit).unwrap();
                grants += 1;
            }
        }
        assert_eq!(grants, CreditGrantor::max_grants_in_flight(window, threshold));
    }
}

#[test]
fn what_makes_no_end_is_refused() {
    for window in [0, MAX_WINDOW + 1] {
        let error = WindowError { window };
        assert_eq!(CreditWindow::new(window), Err(error));
        assert_eq!(CreditGrantor::new(window, 1), Err(GrantorConfigError::Window(error)));
    }
    assert_eq!(CreditGrantor::new(1, 0), Err(GrantorConfigError::EmptyThreshold));
    assert_eq!(CreditWire::new(1 << 31), None);
}

fn link_op() -> impl Strategy<Value = CreditLinkOp> {
    use CreditLinkOp::*;
    proptest::sample::select(&[Send, Send, Arrive, Free, Repost, Grant, Credit][..])
}

fn window_op() -> impl Strategy<Value = CreditWindowOp> {
    prop_oneof![
        (0..2000u32).prop_map(CreditWindowOp::Consume),
        (0..50u32).prop_map(CreditWindowOp::Refund),
        (0..1000i32).prop_map(CreditWindowOp::Credit),
        any::<i32>().prop_map(CreditWindowOp::Credit),
    ]
}

fn grantor_op() -> impl Strategy<Value = CreditGrantorOp> {
    prop_oneof![
        8 => Just(CreditGrantorOp::Receive),
        2 => (0..9u8).prop_map(CreditGrantorOp::ReceiveMany),
        4 => (0..9u8).prop_map(CreditGrantorOp::Repost),
        2 => Just(CreditGrantorOp::Grant),
        1 => Just(CreditGrantorOp::Flush),
        1 => any::<i8>().prop_map(CreditGrantorOp::Mark),
    ]
}

proptest! {
    #[test]
    fn a_lying_receiver_is_always_seen(
        window in 1..=MAX_WINDOW, already in 0..1u64 << 40,
        ops in proptest::collection::vec(window_op(), 0..100),
    ) {
        let mut pair = CheckedCreditWindow::new(window, already).unwrap();
        ops.into_iter().for_each(|op| pair.apply(op));
    }

    #[test]
    fn a_lying_sender_is_always_seen(
        window in 1..300u32, threshold in 1..300u32, already in 0..1u64 << 40,
        ops in proptest::collection::vec(grantor_op(), 0..300),
    ) {
        let mut pair = CheckedCreditGrantor::new(window, threshold, already).unwrap();
        ops.into_iter().for_each(|op| pair.apply(op));
    }

    #[test]
    fn honest_ends_never_stall(
        threshold in 1..6u32, batch in 1..6u32,
        ops in proptest::collection::vec(link_op(), 0..200),
    ) {
        let mut link = CheckedCreditLink::new(threshold, batch, (1 << 31) - 20);
        ops.into_iter().for_each(|op| link.apply(op));
    }
}
