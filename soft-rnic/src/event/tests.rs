use super::*;

#[test]
fn the_oldest_of_a_kind_makes_room_and_its_token_is_used() {
    let queue = EventQueue::new().unwrap();
    let is_even = |event: &u32| event.is_multiple_of(2);
    queue.push(1);
    for event in [2, 4, 6, 8] {
        queue.push_latest(event, 2, is_even);
    }
    assert_eq!([(); 3].map(|()| queue.take(|_| {})), [Ok(1), Ok(6), Ok(8)]);
    assert!(queue.is_empty());
    assert!(!has_input(&queue));
}

fn has_input(queue: &EventQueue<u32>) -> bool {
    let mut input = [PollFd::new(&queue.fd, PollFlags::IN)];
    poll_at_once(&mut input) == Ok(1)
}

#[test]
fn try_take_does_not_wait_for_a_token_that_was_read() {
    let queue = EventQueue::new().unwrap();
    assert_eq!(queue.try_take(|_: &u32| ()), None);
    queue.push(1);
    queue.push(2);
    rustix::io::read(&queue.fd, &mut [0_u8; 8]).unwrap();
    assert_eq!([(); 3].map(|()| queue.try_take(|_| ())), [Some(1), Some(2), None]);
    queue.push(3);
    queue.remove(|_| true);
    assert_eq!(queue.try_take(|_| ()), None);
    queue.push(4);
    assert_eq!(queue.take(|_| ()), Ok(4));
}

fn is_odd(event: &u32) -> bool {
    !event.is_multiple_of(2)
}

#[test]
fn a_token_goes_with_its_event() {
    for queue in [EventQueue::new(), EventQueue::extensible()].map(Result::unwrap) {
        for events in [&[1][..], &[1, 3], &[1, 2, 3], &[2, 1]] {
            events.iter().for_each(|event| queue.push(*event));
            queue.remove(is_odd);
            assert_eq!(has_input(&queue), events.contains(&2), "{events:?}");
            if events.contains(&2) {
                assert_eq!(queue.take(|_| {}), Ok(2));
            }
            assert!(!has_input(&queue), "{events:?}");
        }
        queue.push_if(1, || false);
        assert!(queue.is_empty() && !has_input(&queue));
    }
}

/// Threads that take, append and withdraw, in an order that a seed decides: each event that
/// stays wakes one that takes it, and in the end the descriptor has no input.
#[cfg(feature = "simulation")]
#[test]
fn a_token_goes_with_its_event_in_any_order() {
    use core::sync::atomic::{AtomicU32, Ordering};
    use host::world::{Limits, Nature, run};
    const TAKERS: u32 = 2;
    /// It ends a thread that takes events.
    const END: u32 = 0;
    fn taker(queue: &EventQueue<u32>, left: &AtomicU32) {
        loop {
            match queue.take_or(|_| {}, |_| None::<OwnedFd>).unwrap() {
                END => return,
                event if is_odd(&event) => {}
                // Relaxed: a count that guards no memory.
                _ if left.fetch_sub(1, Ordering::Relaxed) > 1 => {}
                _ => (0..TAKERS).for_each(|_| queue.push(END)),
            }
        }
    }
    let program = |queue: EventQueue<u32>| {
        let shared = Arc::new((queue, AtomicU32::new(4)));
        let mut threads = Vec::new();
        for _ in 0..TAKERS {
            let shared = Arc::clone(&shared);
            let take = move || taker(&shared.0, &shared.1);
            threads.push(host::thread::spawn("taker", take).unwrap());
        }
        let withdraws = Arc::clone(&shared);
        let withdraw = move || (0..6).for_each(|_| withdraws.0.remove(is_odd));
        threads.push(host::thread::spawn("withdrawer", withdraw).unwrap());
        (1..=8).for_each(|event| shared.0.push(event));
        threads.into_iter().for_each(|thread| thread.join().unwrap());
        shared.0.remove(is_odd);
        assert!(shared.0.is_empty() && !has_input(&shared.0));
    };
    for seed in 0..400 {
        for make in [EventQueue::new, EventQueue::extensible] {
            let in_world = move || program(make().unwrap());
            let (_, ended) = run(seed, Nature::default(), Limits::default(), in_world);
            ended.unwrap_or_else(|failure| panic!("seed {seed}: {failure}"));
        }
    }
}
