//! Every state of a small ring between two honest ends: after the pending steps, the longest
//! message fits.

use std::{collections::HashSet, println, vec, vec::Vec};

use super::*;

/// Both ends, and the headers between them. Published records land at once, and an advertised head
/// arrives at once: states with a delay are the same ones.
#[derive(Clone, Debug)]
struct RingEnds {
    sender: Producer,
    receiver: Consumer,
    /// Headers of records that were sent and not taken.
    headers: Vec<Header>,
    /// Ends of records that were taken and not freed.
    held: Vec<u64>,
}

/// State of a ring without its count of laps.
type RingState = (u64, u64, Vec<u64>, Vec<u64>);

impl RingEnds {
    fn new(geometry: Geometry, head_threshold: u64) -> Self {
        Self {
            sender: Producer::new(geometry),
            receiver: Consumer::new(geometry, ConsumerConfig { head_threshold }),
            headers: vec![],
            held: vec![],
        }
    }

    fn state(&self) -> RingState {
        let told = self.sender.head();
        let geometry = self.sender.geometry();
        let ahead = |header: &Header| {
            let at = geometry.offset(header.offset.wrapping_sub(geometry.offset(told)));
            at << 32 | header.word & 0xffff_ffff
        };
        (
            geometry.offset(told),
            self.receiver.head() - told,
            self.headers.iter().map(ahead).collect(),
            self.held.iter().map(|end| end - told).collect(),
        )
    }

    fn send(&mut self, len: u32) -> bool {
        let Ok((payload, Committed { header, skip })) = self.sender.push(len) else {
            return false;
        };
        let geometry = *self.sender.geometry();
        let views = if geometry.is_mirrored() { 2 } else { 1 };
        assert!(payload.offset + u64::from(len) <= views * geometry.capacity());
        self.headers.extend(skip.into_iter().chain([header]));
        self.receiver.on_tail_landed(self.sender.tail()).expect("an honest sender");
        true
    }

    /// Takes the next message, past skip records.
    fn take(&mut self) -> bool {
        while let Some(offset) = self.receiver.next_header() {
            let header = self.headers.remove(0);
            assert_eq!(header.offset, offset);
            match self.receiver.take(header.word).expect("an honest sender") {
                Taken::Record(record) => {
                    self.held.push(record.end);
                    return true;
                }
                Taken::Skipped => assert!(!self.sender.geometry().is_mirrored()),
                Taken::Partial => panic!("all has landed"),
            }
        }
        false
    }

    /// The oldest message.
    fn free(&mut self) -> bool {
        if self.held.is_empty() {
            return false;
        }
        self.receiver.on_freed(self.held.remove(0));
        true
    }

    fn tell(&mut self) -> bool {
        let Some(head) = self.receiver.head_due() else { return false };
        self.receiver.mark_told(head);
        self.sender.on_head(head).expect("an honest receiver");
        true
    }

    fn check(mut self) {
        while self.take() || self.free() || self.tell() {}
        let most = self.sender.geometry().max_payload();
        assert!(self.sender.reserve(most).is_ok(), "the ring is stuck: {self:?}");
    }

    fn next(&self) -> Vec<Self> {
        let mut next = vec![];
        let mut add = |step: &dyn Fn(&mut Self) -> bool| {
            let mut ring = self.clone();
            if step(&mut ring) {
                next.push(ring);
            }
        };
        // Lengths that take the same number of words behave alike.
        let most = self.sender.geometry().max_payload();
        for len in (0..most).step_by(8).chain([most]) {
            add(&|ring| ring.send(len));
        }
        add(&Self::take);
        add(&Self::free);
        add(&Self::tell);
        next
    }
}

/// Visits each state once. Returns how many there are.
fn every_state(geometry: Geometry, head_threshold: u64) -> usize {
    let (mut seen, mut left) = (HashSet::new(), vec![RingEnds::new(geometry, head_threshold)]);
    while let Some(ring) = left.pop() {
        if seen.insert(ring.state()) {
            left.extend(ring.next());
            ring.check();
        }
    }
    let heads: HashSet<u64> = seen.iter().map(|state| state.0).collect();
    let is_everywhere = heads.len() as u64 == geometry.capacity() / ALIGN;
    assert!(is_everywhere, "some heads are not reached: {heads:?}");
    seen.len()
}

#[test]
fn in_every_state_the_longest_message_fits_once_all_is_done() {
    let mut states = 0;
    for capacity in [16, 32, 64] {
        for is_mirrored in [true, false] {
            for most in (0..=capacity as u32).step_by(8) {
                let Ok(geometry) = Geometry::new(capacity, most, is_mirrored) else { continue };
                for head_threshold in [0, 24, u64::MAX] {
                    states += every_state(geometry, head_threshold);
                }
            }
        }
    }
    println!("ring: {states} states");
    assert!(states > 10_000);
}
