//! Queue pairs that have ended, whose peers may not have had the last acknowledgement.
//!
//! A network may lose it, and the peer then sends its request again. Nobody would answer that: the peer
//! would take a message for lost that the program has seen, because the program was done with it
//! first. (TCP has its TIME-WAIT for that.)

use roce_core::codec;
use roce_core::icrc::Flow;

use super::state::{Departed, Machine, Wire, WireRq};
use crate::clock;
use crate::udp::Datagram;

/// Queue pairs that are remembered, at most: the oldest ones are forgotten first.
const MOST: usize = 256;
/// How long: a peer has given up by then, or will soon.
const LONGEST_NS: u64 = 4_000_000_000;

impl Wire {
    /// A queue pair ends, with what it has received by.
    pub(crate) fn remember(&self, number: u32, received: Option<Box<WireRq>>) {
        let Some(WireRq { machine, path, is_established: true, .. }) = received.map(|rq| *rq)
        else {
            return;
        };
        let (Machine::Reliable(machine), Some(path)) = (machine, path) else { return };
        let mut all = self.departed.lock();
        let now = clock::now();
        while all.front().is_some_and(|oldest| all.len() >= MOST || oldest.until_ns < now) {
            all.pop_front();
        }
        all.push_back(Departed { number, machine, path, until_ns: now + LONGEST_NS });
    }

    /// A packet has come for no queue pair: whether it was for one that has ended, and is acknowledged.
    #[cold]
    pub(super) fn answer_departed(&self, datagram: &Datagram<'_>, number: u32) -> bool {
        let mut all = self.departed.lock();
        let now = clock::now();
        let is_it = |departed: &&mut Departed| {
            let from = datagram.from.ip().to_canonical();
            departed.number == number && departed.path.peer.ip() == from && departed.until_ns > now
        };
        let Some(departed) = all.iter_mut().find(is_it) else { return false };
        let flow = Flow::new(datagram.from, self.port.local());
        if flow.is_none_or(|flow| flow.check(datagram.nth, datagram.bytes).is_err()) {
            return false;
        }
        let Ok(packet) = codec::parse(datagram.bytes) else { return false };
        let Some(answer) = departed.machine.answer_late(&packet.headers) else { return false };
        self.say(&departed.path, &answer);
        true
    }
}
