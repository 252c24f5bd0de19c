//! Leader and followers: threads that wait on one channel, each for its own queue. What
//! the kernel does is modelled: events of the channel, and wake-ups, are kept until they
//! are taken, and a thread that finds none sleeps until there is one.
//!
//! Only on soft0: a model has no device.
#![cfg(rdma_conn_loom)]
#![forbid(unsafe_code)]

use std::collections::VecDeque;

use conn_core::leader::{Followers, Interest, Seat};
use loom::sync::{Arc, Condvar, Mutex};
use loom::thread;

/// Descriptors: what can be read from each, and the threads that sleep until something can.
struct Kernel<const N: usize> {
    ready: Mutex<Ready<N>>,
    readable: Condvar,
}

struct Ready<const N: usize> {
    /// Events of the channel, by queue.
    events: VecDeque<usize>,
    /// Wake-ups, by the follower's seat.
    wake_ups: [bool; N],
}

/// State that the threads share: the source, the leader and followers, and each queue's events so
/// far.
struct SharedFollowers<const N: usize> {
    kernel: Kernel<N>,
    waiting: Mutex<(Followers<[Seat; N]>, [u32; 2])>,
}

impl<const N: usize> SharedFollowers<N> {
    fn new() -> Arc<Self> {
        let ready = Ready { events: VecDeque::new(), wake_ups: [false; N] };
        let kernel = Kernel { ready: Mutex::new(ready), readable: Condvar::new() };
        let waiting = Mutex::new((Followers::new([Seat::default(); N]), [0; 2]));
        Arc::new(Self { kernel, waiting })
    }

    /// The device: an armed queue has had a completion.
    fn complete(&self, queue: usize) {
        self.kernel.ready.lock().unwrap().events.push_back(queue);
        self.kernel.readable.notify_all();
    }

    fn wake(&self, seat: u32) {
        self.kernel.ready.lock().unwrap().wake_ups[seat as usize] = true;
        self.kernel.readable.notify_all();
    }

    /// Waits for a queue that was armed before it had an event.
    fn wait(&self, queue: usize) {
        let interest = Interest::One(queue as u64);
        let seat = self.waiting.lock().unwrap().0.join(interest).expect("a seat");
        while !self.has_fired(seat, queue) {
            self.sleep(seat);
        }
        let next = self.waiting.lock().unwrap().0.leave(seat);
        next.into_iter().for_each(|next| self.wake(next));
    }

    /// The leader takes events first.
    fn has_fired(&self, seat: u32, queue: usize) -> bool {
        let mut waiting = self.waiting.lock().unwrap();
        let (followers, counts) = &mut *waiting;
        while followers.leads(seat) {
            let Some(event) = self.kernel.ready.lock().unwrap().events.pop_front() else { break };
            counts[event] += 1;
            followers.event(event as u64).for_each(|seat| self.wake(seat));
        }
        counts[queue] > 0
    }

    /// As `poll` does: the leader on the channel, a follower on its own descriptor.
    fn sleep(&self, seat: u32) {
        let leads = self.waiting.lock().unwrap().0.leads(seat);
        let mut ready = self.kernel.ready.lock().unwrap();
        loop {
            let woken = std::mem::take(&mut ready.wake_ups[seat as usize]);
            if woken || (leads && !ready.events.is_empty()) {
                return;
            }
            ready = self.kernel.readable.wait(ready).unwrap();
        }
    }
}

/// Each thread returns, or loom reports that all threads sleep. There is an event for the
/// second queue first; one for the first queue only when all that wait for the second have
/// returned, so that nothing else wakes them.
fn every_event_reaches_its_queue<const N: usize>(queues: [usize; N]) {
    let mut model = loom::model::Builder::new();
    model.preemption_bound = Some(if N > 2 { 2 } else { 3 });
    model.check(move || {
        let shared = SharedFollowers::<N>::new();
        let wait = |queue| {
            let shared = shared.clone();
            (queue, thread::spawn(move || shared.wait(queue)))
        };
        let (first, second): (Vec<_>, Vec<_>) =
            queues.into_iter().map(wait).partition(|(queue, _)| *queue == 0);
        for (queue, threads) in [(1, second), (0, first)] {
            shared.complete(queue);
            threads.into_iter().for_each(|(_, thread)| thread.join().expect("a wait"));
        }
    });
}

#[test]
fn two_threads_with_a_queue_each() {
    every_event_reaches_its_queue([0, 1]);
}

#[test]
fn a_queue_that_two_threads_share_beside_another() {
    every_event_reaches_its_queue([0, 1, 1]);
}
