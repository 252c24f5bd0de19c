use super::*;

const A: IpAddr = IpAddr::V4(core::net::Ipv4Addr::new(192, 0, 2, 1));
const B: IpAddr = IpAddr::V4(core::net::Ipv4Addr::new(192, 0, 2, 2));

/// Sends full packets without end; counts those of each, by its number.
fn look(answers: &mut Answers, sent: &mut [u32]) {
    answers.take_turns(&mut Allowance::of_look(), |qpn, allowance| {
        let mut turn = allowance.turn();
        while turn.has_another() {
            turn.take(4_096);
            sent[qpn as usize] += 1;
        }
        AnswersSent::Some
    });
}

#[test]
fn a_look_says_no_more_for_many_than_for_one() {
    for owing in [1, 3, 256] {
        let (mut answers, mut sent) = (Answers::default(), vec![0; owing]);
        (0..owing).for_each(|qpn| answers.note(A, qpn as u32));
        look(&mut answers, &mut sent);
        assert_eq!(sent.iter().sum::<u32>(), 64, "{owing} owe");
    }
}

#[test]
fn peers_take_turns_and_so_do_the_queue_pairs_of_one() {
    let (mut answers, mut sent) = (Answers::default(), [0; 9]);
    (0..8).for_each(|qpn| answers.note(A, qpn));
    answers.note(B, 8);
    (0..8).for_each(|_| look(&mut answers, &mut sent));
    assert_eq!(sent, [32, 32, 32, 32, 32, 32, 32, 32, 256]);
}

#[test]
fn what_is_said_is_over_and_what_was_noted_twice_has_one_turn() {
    let (mut answers, mut turns) = (Answers::default(), Vec::new());
    for qpn in [1, 2, 1] {
        answers.note(A, qpn);
    }
    let mut all = |qpn, _: &mut Allowance| {
        turns.push(qpn);
        AnswersSent::All
    };
    answers.take_turns(&mut Allowance::none(), &mut all);
    assert!(!answers.is_empty());
    answers.take_turns(&mut Allowance::of_look(), &mut all);
    assert!(answers.is_empty());
    assert_eq!(turns, [1, 2]);
}

#[test]
fn a_look_ends_when_none_can_say_anything() {
    let (mut answers, mut turns) = (Answers::default(), 0);
    (0..3).for_each(|qpn| answers.note(A, qpn));
    answers.take_turns(&mut Allowance::of_look(), |_, _| {
        turns += 1;
        AnswersSent::Nothing
    });
    assert_eq!(turns, 3);
    assert!(!answers.is_empty());
}
