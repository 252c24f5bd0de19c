use std::{collections::BTreeSet, println, vec, vec::Vec};

use proptest::prelude::*;

use super::oracle::*;
use super::*;
use crate::exhaustive::{CheckedMachine, every_history};

/// Positions just before those where a wire, a u32 or its half turn over.
const EDGES: [u64; 4] = [0, (1 << 28) - 2, (1 << 31) - 2, (1 << 40) + (1 << 27) - 1];

#[test]
fn every_short_history_of_a_lender_agrees_with_the_model() {
    use LenderOp::*;
    let mut histories = 0;
    for (members, buffers) in [(1, 3), (1, 9), (2, 8), (2, 15), (3, 17)] {
        let mut alphabet = vec![Join(2), Join(9), Tick, NextDue];
        for m in 0..members.min(2) as u8 {
            alphabet.extend([Want(m), Home(m, 1), Home(m, 4), GiveBack(m, 2), Take(m)]);
            alphabet.extend([Leave(m, 0), Leave(m, 1), TakeShare(m)]);
        }
        let mut start = CheckedLender::new(members, buffers).unwrap();
        histories += every_history(&start, &alphabet, 4);
        (0..members).for_each(|_| start.apply(Join(9)));
        (0..members).for_each(|m| start.apply(Home(m as u8, 1)));
        histories += every_history(&start, &alphabet, 4);
        (0..members).for_each(|m| start.apply(Want(m as u8)));
        start.apply(Tick);
        histories += every_history(&start, &alphabet, 4);
    }
    println!("loan, lender: {histories} histories");
    assert!(histories > 1_000_000);
}

#[test]
fn every_short_history_of_a_sender_agrees_with_the_model() {
    use BorrowerOp::*;
    let mut histories = 0;
    for (max_loan, already) in [1, 3].into_iter().flat_map(|m| EDGES.map(|edge| (m, edge))) {
        let mut alphabet = vec![Consume(1), Consume(3), Ask, Recall, GiveBack];
        for by in [-1 << 26, -1, 0, 1, 3, 4, 1 << 27] {
            alphabet.extend([Loan(by), Credit(by)]);
        }
        let start = CheckedBorrower::new(max_loan, already).unwrap();
        histories += every_history(&start, &alphabet, 4);
    }
    println!("loan, sender: {histories} histories");
    assert!(histories > 1_000_000);
}

#[test]
fn every_short_history_of_a_receiver_agrees_with_the_model() {
    use LoanGrantorOp::*;
    let mut alphabet = vec![Receive(1), Receive(3), Want, Share, Send];
    alphabet.extend([-1 << 27, -1, 0, 1, 2, 5, 1 << 27].map(Return));
    for (heard, recall) in [(false, false), (true, false), (false, true)] {
        alphabet.extend([0, 3].map(|credits| Lend { credits, heard, recall }));
    }
    let mut histories = 0;
    for already in EDGES {
        histories += every_history(&CheckedLoanGrantor::new(already), &alphabet, 4);
    }
    histories += every_history(&CheckedLoanGrantor::new(EDGES[1]), &alphabet, 5);
    println!("loan, receiver: {histories} histories");
    assert!(histories > 1_000_000);
}

#[test]
fn every_short_pool_history_finds_buffers_and_makes_progress() {
    use BankOp::*;
    let mut alphabet = vec![Repost, Tick];
    for at in 0..2 {
        alphabet.extend([Send(at), GiveBack(at), Arrive(at), Free(at), Settle(at, true), Hear(at)]);
    }
    alphabet.extend([Settle(0, false), Finish(0), Die(0), Join(0)]);
    let mut histories = 0;
    for (buffers, max_loan) in [(6, 1), (8, 4), (11, 8)] {
        let mut start = Bank::new(2, buffers, max_loan).unwrap();
        histories += every_history(&start, &alphabet, 3);
        // Both have used their shares, and one has a loan.
        for op in [Send(0), Arrive(0), Free(0), Repost, Send(0), Arrive(0), Settle(0, true)] {
            start.apply(op);
        }
        for op in [Send(1), Send(1), Arrive(1), Hear(0)] {
            start.apply(op);
        }
        histories += every_history(&start, &alphabet, 3);
        [Tick, Tick, Settle(0, false)].into_iter().for_each(|op| start.apply(op));
        histories += every_history(&start, &alphabet, 3);
    }
    println!("loan, pool: {histories} histories");
    assert!(histories > 30_000);
}

/// The one that asked first is served first: between two loans to one member, every other
/// one that waits gets one. All of them want more all the time.
#[test]
fn between_two_loans_to_one_member_all_that_wait_get_one() {
    const MEMBERS: u32 = 12;
    let mut lender = Lender::new([LenderSlot::new(); MEMBERS as usize], 72).unwrap();
    let mut has = [0; MEMBERS as usize];
    let (mut waiting, mut loans) = (BTreeSet::new(), 0);
    // Those that waited at a member's last loan, and have got none since.
    let mut before: Vec<BTreeSet<u32>> = vec![BTreeSet::new(); MEMBERS as usize];
    for member in 0..MEMBERS {
        assert_eq!(lender.join(16), Ok(member));
        lender.home(member, 1).unwrap();
        lender.want(member).unwrap();
        waiting.insert(member);
    }
    for turn in 0..20_000u32 {
        while let Some(member) = lender.next_due() {
            let credits = lender.take(member).unwrap().credits;
            has[member as usize] += credits;
            if credits > 0 {
                loans += 1;
                waiting.remove(&member);
                assert_eq!(before[member as usize], BTreeSet::new(), "to {member} again");
                before.iter_mut().for_each(|others| others.retain(|other| *other != member));
                before[member as usize] = waiting.clone();
            }
        }
        // One that has a loan uses some of it, and asks again when it has used it up.
        let member = turn * 7 % MEMBERS;
        let used = has[member as usize].min(3);
        if used > 0 {
            has[member as usize] -= used;
            lender.home(member, used).unwrap();
            if has[member as usize] == 0 {
                lender.want(member).unwrap();
                waiting.insert(member);
            }
        }
    }
    assert!(loans > 200, "{loans} loans");
}

/// Senders that take what they can get and stop leave a quarter of the pool to the others, and a
/// loan of one each time.
#[test]
fn silent_members_leave_a_quarter_and_the_others_go_on() {
    const SILENT: u32 = 24;
    let mut lender = Lender::new([LenderSlot::new(); 32], 32 * KEPT + 400).unwrap();
    for member in 0..32 {
        assert_eq!(lender.join(64), Ok(member));
    }
    // Each uses its loans up until it has a large one, and keeps that.
    for member in 0..SILENT {
        let mut lent = 1;
        for _ in 0..20 {
            lender.home(member, lent).unwrap();
            lender.want(member).unwrap();
            if lender.waiting() > 0 {
                lender.tick();
                lender.tick();
            }
            lent = lender.take(member).unwrap().credits;
            assert!(lent > 0, "member {member} got nothing");
        }
    }
    assert!(lender.lendable() - lender.free() <= 300 + SILENT, "{}", lender.free());
    lender.tick();
    lender.tick();
    for turn in 0..1000 {
        let member = SILENT + turn % 8;
        let used = lender.used(member).unwrap();
        lender.home(member, used).unwrap();
        lender.want(member).unwrap();
        let due = lender.take(member).unwrap();
        assert!(due.credits > 0, "{turn}: it waits for those that are silent");
    }
}

#[test]
fn what_makes_no_pool_and_no_loan_is_refused() {
    let new = |members: usize, buffers| {
        Lender::new(vec![LenderSlot::new(); members], buffers).map(|_| ()).unwrap_err()
    };
    assert_eq!(new(0, 9), LenderConfigError::Members);
    assert_eq!(new(5, 14), LenderConfigError::TooFewBuffers { kept: 15 });
    let mut lender = Lender::new([LenderSlot::new(); 1], 3).unwrap();
    assert_eq!(lender.join(0), Err(JoinError::EmptyLoan));
    assert_eq!(lender.join(1), Ok(0));
    assert_eq!(lender.join(1), Err(JoinError::Full));
    assert!(Borrower::new(0).is_err());
    assert!(Borrower::new(crate::credit::MAX_WINDOW).is_err());
    assert!(Borrower::new(crate::credit::MAX_WINDOW - 1).is_ok());
    assert_eq!(LoanWire::new(1 << 28), None);
}

fn lender_op() -> impl Strategy<Value = LenderOp> {
    use LenderOp::*;
    let member = 0..6u8;
    prop_oneof![
        2 => (0..40u8).prop_map(Join),
        1 => (member.clone(), 0..9u8).prop_map(|(m, n)| Leave(m, n)),
        4 => member.clone().prop_map(Want),
        6 => (member.clone(), 0..9u8).prop_map(|(m, n)| Home(m, n)),
        2 => (member.clone(), 0..9u8).prop_map(|(m, n)| GiveBack(m, n)),
        1 => Just(Tick),
        2 => Just(NextDue),
        3 => member.clone().prop_map(Take),
        1 => member.prop_map(TakeShare),
    ]
}

fn bank_op() -> impl Strategy<Value = BankOp> {
    use BankOp::*;
    let at = 0..5u8;
    prop_oneof![
        8 => at.clone().prop_map(Send),
        1 => at.clone().prop_map(GiveBack),
        8 => at.clone().prop_map(Arrive),
        6 => at.clone().prop_map(Free),
        3 => Just(Repost),
        4 => (at.clone(), any::<bool>()).prop_map(|(at, idle)| Settle(at, idle)),
        6 => at.clone().prop_map(Hear),
        1 => Just(Tick),
        1 => at.clone().prop_map(Finish),
        1 => at.clone().prop_map(Die),
        1 => at.prop_map(Join),
    ]
}

fn borrower_op() -> impl Strategy<Value = BorrowerOp> {
    use BorrowerOp::*;
    prop_oneof![
        4 => (0..40u32).prop_map(Consume),
        4 => Just(Ask),
        4 => (0..50i32).prop_map(Loan),
        1 => any::<i32>().prop_map(Loan),
        2 => (0..50i32).prop_map(Credit),
        1 => any::<i32>().prop_map(Credit),
        1 => Just(Recall),
        1 => Just(GiveBack),
    ]
}

fn grantor_op() -> impl Strategy<Value = LoanGrantorOp> {
    use LoanGrantorOp::*;
    prop_oneof![
        4 => (0..5u8).prop_map(Receive),
        2 => Just(Want),
        2 => (0..9i32).prop_map(Return),
        1 => any::<i32>().prop_map(Return),
        3 => (0..9u8, any::<bool>(), any::<bool>())
            .prop_map(|(credits, heard, recall)| Lend { credits, heard, recall }),
        1 => Just(Share),
        3 => Just(Send),
    ]
}

proptest! {
    #[test]
    fn long_histories_of_a_lender_agree_with_the_model(
        members in 1..6u32, more in 0..120u32,
        ops in proptest::collection::vec(lender_op(), 0..300),
    ) {
        let mut pair = CheckedLender::new(members, KEPT * members + more).unwrap();
        ops.into_iter().for_each(|op| pair.apply(op));
    }

    #[test]
    fn a_receiver_that_lies_is_always_seen(
        max_loan in 1..300u32, already in 0..1u64 << 40,
        ops in proptest::collection::vec(borrower_op(), 0..200),
    ) {
        let mut pair = CheckedBorrower::new(max_loan, already).unwrap();
        ops.into_iter().for_each(|op| pair.apply(op));
    }

    #[test]
    fn a_sender_that_lies_is_always_seen(
        already in 0..1u64 << 40, ops in proptest::collection::vec(grantor_op(), 0..200),
    ) {
        let mut pair = CheckedLoanGrantor::new(already);
        ops.into_iter().for_each(|op| pair.apply(op));
    }

    #[test]
    fn honest_senders_find_buffers_and_go_on(
        places in 1..5u32, more in 0..60u32, max_loan in 1..40u32, active in 0..32u32,
        ops in proptest::collection::vec(bank_op(), 0..250),
    ) {
        let mut bank = Bank::new(places, KEPT * places + more, max_loan).unwrap();
        for (number, op) in ops.into_iter().enumerate() {
            bank.apply_only(op);
            if number % 50 == 0 {
                bank.look_ahead(active);
            }
        }
        bank.look_ahead(active);
    }
}
