//! The steps of threads that wait for events of a shared source, in any order, and the invariants
//! between them: one thread leads, and none sleeps through an event.

use arbitrary::Arbitrary;

use super::*;
use crate::exhaustive::CheckedMachine;

/// Threads of a history, and objects that there are events for.
const THREADS: usize = 3;
const OBJECTS: usize = 2;

/// One step. A step that the thread cannot take now is skipped.
#[derive(Arbitrary, Clone, Copy, Debug)]
pub enum FollowersOp {
    /// A thread begins to wait for an object.
    Join(u8, u8),
    /// A thread begins to wait for any object.
    JoinAny(u8),
    /// An event for an object arrives at the source.
    Arrive(u8),
    /// The leader looks: takes all events there are, and leaves if one is for it.
    Lead,
    /// A follower that was woken looks: it leads, leaves, or sleeps again.
    Wake(u8),
    /// A thread gives up, awake or asleep.
    GiveUp(u8),
}

/// A waiting thread: its seat, its interest, the counts that it has seen, and whether it was woken
/// since its last look.
#[derive(Clone, Copy, Debug)]
struct WaitingThread {
    seat: u32,
    interest: Interest,
    seen: [u32; OBJECTS],
    woken: bool,
    /// It sleeps on the source, or is about to.
    knows_that_it_leads: bool,
}

/// The machine, the source, and the threads around it.
#[derive(Clone, Debug)]
pub struct CheckedFollowers {
    machine: Followers<[Seat; THREADS]>,
    threads: [Option<WaitingThread>; THREADS],
    source: std::vec::Vec<usize>,
    counts: [u32; OBJECTS],
}

impl CheckedFollowers {
    /// No thread waits, and no event has arrived.
    #[must_use]
    #[allow(clippy::new_without_default, reason = "as the other oracles")]
    pub fn new() -> Self {
        let machine = Followers::new([Seat::default(); THREADS]);
        Self { machine, threads: [None; THREADS], source: std::vec![], counts: [0; OBJECTS] }
    }

    fn join(&mut self, thread: usize, interest: Interest) {
        if self.threads[thread].is_some() {
            return;
        }
        let seat = self.machine.join(interest).expect("as many seats as threads");
        let knows_that_it_leads = self.machine.leads(seat);
        assert_eq!(knows_that_it_leads, self.threads.iter().all(Option::is_none));
        let seen = self.counts;
        let waiting = WaitingThread { seat, interest, seen, woken: false, knows_that_it_leads };
        self.threads[thread] = Some(waiting);
    }

    fn has_come(&self, waiting: &WaitingThread) -> bool {
        let is_new = |object: usize| {
            waiting.interest.is_in(object as u64) && self.counts[object] != waiting.seen[object]
        };
        (0..OBJECTS).any(is_new)
    }

    fn lead(&mut self) {
        let leads = |waiting: &&WaitingThread| waiting.knows_that_it_leads;
        let Some(leader) = self.threads.iter().flatten().find(leads).copied() else { return };
        for object in core::mem::take(&mut self.source) {
            self.counts[object] += 1;
            let called: std::vec::Vec<u32> = self.machine.event(object as u64).collect();
            called.into_iter().for_each(|seat| self.wake(seat));
        }
        if self.has_come(&leader) {
            self.leave(leader.seat);
        }
    }

    fn wake(&mut self, seat: u32) {
        let is_it = |waiting: &&mut WaitingThread| waiting.seat == seat;
        let woken = self.threads.iter_mut().flatten().find(is_it).expect("it has that seat");
        assert!(!woken.knows_that_it_leads, "a leader needs no waking");
        woken.woken = true;
    }

    fn look(&mut self, thread: usize) {
        let Some(waiting) = self.threads[thread].as_mut().filter(|w| w.woken) else { return };
        waiting.woken = false;
        waiting.knows_that_it_leads = self.machine.leads(waiting.seat);
        let waiting = *waiting;
        if self.has_come(&waiting) {
            self.leave(waiting.seat);
        }
    }

    fn leave(&mut self, seat: u32) {
        let next = self.machine.leave(seat);
        let is_its = |thread: &&mut Option<WaitingThread>| thread.is_some_and(|w| w.seat == seat);
        *self.threads.iter_mut().find(is_its).expect("it has that seat") = None;
        next.into_iter().for_each(|next| self.wake(next));
    }

    fn check(&self) {
        let waiting = || self.threads.iter().flatten();
        let leaders = waiting().filter(|w| self.machine.leads(w.seat)).count();
        assert_eq!(leaders, usize::from(waiting().count() > 0), "one leads");
        for waiting in waiting() {
            let leads = self.machine.leads(waiting.seat);
            assert!(leads || !waiting.knows_that_it_leads, "two would take events");
            let looks = waiting.woken || waiting.knows_that_it_leads;
            assert!(looks || !leads, "the leader does not know that it leads");
            assert!(looks || !self.has_come(waiting), "it sleeps through an event");
        }
    }
}

impl CheckedMachine for CheckedFollowers {
    type Op = FollowersOp;

    fn apply(&mut self, op: FollowersOp) {
        let (thread_of, object_of) = (|t: u8| t as usize % THREADS, |o: u8| o as usize % OBJECTS);
        match op {
            FollowersOp::Join(t, o) => self.join(thread_of(t), Interest::One(object_of(o) as u64)),
            FollowersOp::JoinAny(t) => self.join(thread_of(t), Interest::Any),
            FollowersOp::Arrive(o) => self.source.push(object_of(o)),
            FollowersOp::Lead => self.lead(),
            FollowersOp::Wake(t) => self.look(thread_of(t)),
            FollowersOp::GiveUp(t) => {
                if let Some(waiting) = self.threads[thread_of(t)] {
                    self.leave(waiting.seat);
                }
            }
        }
        self.check();
    }
}
