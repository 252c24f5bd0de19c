//! Leader and followers: of the threads that wait on a shared source of events, one
//! takes the events, for all.
//!
//! A source hands each event out once, in the order of arrival, to any thread that asks: so a
//! thread gets events that others wait for. The protocol, each step under one lock, with a way to
//! wake each follower:
//!
//! 1. A thread that wants to wait takes a [seat](Followers::join). If no thread leads,
//!    it [leads](Followers::leads).
//! 2. The leader takes events and counts each for the object that it is for; it wakes
//!    the followers that [`event`](Followers::event) names.
//! 3. Each thread checks whether an event that it waits for was counted. If not, the leader
//!    sleeps on the source, and a follower until it is woken. A woken follower may lead now.
//! 4. A thread that is done [leaves](Followers::leave), and wakes the next leader, if there
//!    is one.
//!
//! So while threads wait, one of them leads or was woken to lead, and an event that arrives
//! wakes those that it is for. A single thread is the leader and never needs to be woken.

#[cfg(any(test, feature = "oracle"))]
pub mod oracle;
#[cfg(test)]
mod tests;

use crate::sync::is_mutant;

/// Events that a thread waits for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Interest {
    /// Those for one object, by its number.
    One(u64),
    /// Those for several objects: the thread is woken by each event.
    Any,
}

impl Interest {
    fn is_in(self, object: u64) -> bool {
        self == Interest::Any || self == Interest::One(object)
    }
}

/// The seat of a thread that waits.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Seat(Option<Interest>);

/// The threads that wait, in as many seats as the storage has. See the [module](self).
///
/// ```
/// use conn_core::leader::{Followers, Interest, Seat};
///
/// let mut waiting = Followers::new([Seat::default(); 2]);
/// let first = waiting.join(Interest::One(7)).unwrap();
/// let second = waiting.join(Interest::One(8)).unwrap();
/// assert!(waiting.leads(first) && !waiting.leads(second));
/// assert_eq!(waiting.join(Interest::Any), None, "there is no third seat");
/// assert_eq!(waiting.event(8).collect::<Vec<_>>(), [second], "it is to be woken");
/// assert_eq!(waiting.leave(first), Some(second), "it leads now, and is to be woken");
/// ```
#[derive(Debug, Clone, Default)]
pub struct Followers<S> {
    seats: S,
    leader: Option<u32>,
}

impl<S: AsRef<[Seat]> + AsMut<[Seat]>> Followers<S> {
    /// No thread waits.
    pub const fn new(seats: S) -> Self {
        Self { seats, leader: None }
    }

    /// The storage, to which seats may be added.
    pub fn seats(&mut self) -> &mut S {
        &mut self.seats
    }

    /// Takes a free seat; `None` if there is none.
    pub fn join(&mut self, interest: Interest) -> Option<u32> {
        let seats = self.seats.as_mut();
        let free = seats.iter().position(|seat| seat.0.is_none())?;
        seats[free].0 = Some(interest);
        let seat = u32::try_from(free).ok()?;
        self.leader.get_or_insert(seat);
        Some(seat)
    }

    /// Reports whether the thread of a seat leads.
    #[must_use]
    pub fn leads(&self, seat: u32) -> bool {
        self.leader == Some(seat)
    }

    /// The leader has taken an event for an object: the followers to be woken.
    pub fn event(&self, object: u64) -> impl Iterator<Item = u32> + '_ {
        let is_for = move |seat: &Seat| seat.0.is_some_and(|interest| interest.is_in(object));
        let seats = self.seats.as_ref().iter();
        let called = (0..)
            .zip(seats)
            .filter(move |(_, seat)| is_for(seat) && !is_mutant!("leader-event-keep"));
        called.map(|(seat, _)| seat).filter(|seat| !self.leads(*seat))
    }

    /// Gives a seat back: the follower that leads from now on, to be woken.
    #[must_use = "the next leader sleeps until it is woken"]
    pub fn leave(&mut self, seat: u32) -> Option<u32> {
        if let Some(left) = self.seats.as_mut().get_mut(seat as usize) {
            left.0 = None;
        }
        if !self.leads(seat) {
            return None;
        }
        let next = self.seats.as_ref().iter().position(|seat| seat.0.is_some());
        self.leader = next
            .and_then(|next| u32::try_from(next).ok())
            .filter(|_| !is_mutant!("leader-leave-alone"));
        self.leader
    }
}
