use super::*;

const SEND: Exposure = Exposure { is_sent: true, is_reliable: true, takes_receive: true };

fn queue(plan: &str, seed: u64, ordinal: u32) -> QueueFaults {
    let plan = plan.parse().unwrap();
    QueueFaults::new(Arc::new(SeededPlan::new(plan, seed)), ordinal)
}

/// All faults of the first `n` requests, each until it is let go or ends.
fn all(queue: &mut QueueFaults, n: u32, exposure: Exposure) -> Vec<(u32, InjectedFault)> {
    let mut struck = Vec::new();
    for position in 1..=n {
        // More than any draws for one request, where each try is drawn for anew.
        for _ in 0..64 {
            let Some(fault) = queue.next(position, exposure) else { break };
            struck.push((position, fault));
            queue.strike(fault);
            if matches!(fault, InjectedFault::Flush | InjectedFault::Loss) {
                break;
            }
        }
    }
    struck
}

const PLAN: &str = "rnr=0.2,retry=0.2,delay=0.2:1us,flush=0.01";

#[test]
fn faults_follow_from_seed_ordinal_and_number() {
    let of = |seed, ordinal| all(&mut queue(PLAN, seed, ordinal), 300, SEND);
    assert_eq!(of(7, 1), of(7, 1));
    assert_ne!(of(7, 1), of(8, 1));
    assert_ne!(of(7, 1), of(7, 2));
    // The numbers of seeds and ordinals do not add up to the same faults.
    assert_ne!(of(7, 2), of(8, 1));
    let kinds =
        [InjectedFault::Delay, InjectedFault::Flush, InjectedFault::Rnr, InjectedFault::Retry];
    for kind in kinds {
        assert!(of(7, 1).iter().any(|(_, fault)| *fault == kind), "{kind:?}");
    }
}

/// Faults of one kind are not changed by another kind, nor by the other requests.
#[test]
fn kinds_and_requests_are_drawn_apart() {
    let only = |plan| {
        let all = all(&mut queue(plan, 7, 1), 500, SEND);
        all.into_iter().filter(|(_, fault)| *fault == InjectedFault::Rnr).collect::<Vec<_>>()
    };
    assert_eq!(only("rnr=0.2"), only("rnr=0.2,retry=0.3,delay=0.1:1us"));
    let (mut every, mut second) = (queue("rnr=0.2", 7, 1), queue("rnr=0.2", 7, 1));
    for position in 1..500 {
        let fault = every.next(position, SEND);
        if position % 2 == 0 {
            assert_eq!(fault, second.next(position, SEND), "{position}");
        }
    }
}

#[test]
fn probabilities_are_kept() {
    let mut queue = queue("rnr=0.1", 1, 1);
    let n = all(&mut queue, 100_000, SEND).len();
    // 1/9 for each: every try draws again. Five deviations.
    assert!((10_500..11_700).contains(&n), "{n}");
}

#[test]
fn a_request_past_its_faults_meets_none_when_sent_again() {
    let mut queue = queue("rnr=0.5", 3, 1);
    let first = (1..).find(|position| queue.next(*position, SEND).is_some()).unwrap();
    assert!(first > 1 && !queue.is_struck());
    queue.strike(InjectedFault::Rnr);
    assert!(queue.is_struck());
    for position in 1..first {
        assert_eq!(queue.next(position, SEND), None);
    }
    all(&mut queue, first, SEND);
    assert!(!queue.is_struck());
    assert_eq!(queue.next(first, SEND), None);
}

#[test]
fn requests_meet_only_what_they_are_exposed_to() {
    let plan = "rnr=1,retry=1,loss=1";
    let write = Exposure { takes_receive: false, ..SEND };
    let datagram = Exposure { is_reliable: false, ..SEND };
    let local = Exposure { is_sent: false, ..write };
    assert_eq!(queue(plan, 1, 1).next(1, SEND), Some(InjectedFault::Rnr));
    assert_eq!(queue(plan, 1, 1).next(1, write), Some(InjectedFault::Retry));
    assert_eq!(queue(plan, 1, 1).next(1, datagram), Some(InjectedFault::Loss));
    assert_eq!(queue(plan, 1, 1).next(1, local), None);
    assert_eq!(queue("flush=1", 1, 1).next(1, local), Some(InjectedFault::Flush));
    // Once, and then it proceeds.
    let mut queue = queue("delay=1us", 1, 1);
    assert_eq!(all(&mut queue, 2, local), [(1, InjectedFault::Delay), (2, InjectedFault::Delay)]);
}

/// A request counts once, however often it is struck; it has failed if it was not let go.
#[test]
fn what_is_struck_and_fails_is_counted() {
    let mut queue = queue("rnr=1,delay=1us", 1, 1);
    for _ in 0..3 {
        let fault = queue.next(1, SEND).unwrap();
        queue.strike(fault);
    }
    (0..2).for_each(|_| queue.fail());
    let local = Exposure { is_sent: false, takes_receive: false, ..SEND };
    all(&mut queue, 2, local);
    // It fails without a fault.
    queue.fail();
    assert_eq!(queue.of.tally.line(false), "2 of 2 requests struck, 1 failed");
}

#[test]
fn the_count_goes_on_over_a_reset() {
    let (mut through, mut reset) = (queue(PLAN, 9, 1), queue(PLAN, 9, 1));
    let expected = all(&mut through, 200, SEND);
    let mut found = all(&mut reset, 80, SEND);
    reset.reset(80);
    found.extend(all(&mut reset, 120, SEND).into_iter().map(|(n, fault)| (n + 80, fault)));
    assert_eq!(found, expected);
}
