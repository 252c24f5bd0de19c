//! Queue pairs that have ended, whose peers may not have had the last acknowledgement, or response.
//!
//! A network may lose it, and the peer then sends its request again. Without an answer, the peer
//! would report a message as lost that this program has received, because the program destroyed its
//! queue pair first. (TCP has its TIME-WAIT for that.) Of READs, the bytes are kept if there are
//! few of them, as of those that look at a counter: the memory may go as soon as the queue pair
//! has.

use core::convert::Infallible;
use std::sync::Arc;

use roce_core::codec;
use roce_core::codec::Packet;
use roce_core::icrc::Flow;
use roce_core::responder::{AccessError, Refusal, Target};

use super::responder::RequestBuffers;
use crate::clock;
use crate::copy::summed_bytes;
use crate::objects::deferred_work::DeferredWork;
use crate::objects::state::{Qp, ResponderState};
use crate::peers::wire::state::{Departed, KeptRead, ReceivingMachine, RoceWire, WireRq};
use crate::udp::ReceivedDatagram;

/// Queue pairs that are remembered, at most: the oldest ones are forgotten first.
const MOST: usize = 256;
/// Time in nanoseconds for which they are remembered: a peer has given up by then, or will soon.
pub(super) const LONGEST_NS: u64 = 4_000_000_000;
/// Bytes of READs that are kept of each.
pub(super) const KEPT: usize = 1 << 10;

impl Qp {
    /// The queue pair ends; its lock is held.
    pub(crate) fn depart(self: &Arc<Qp>, responder: &mut ResponderState) {
        let Some(wire) = self.pd.context.device.wire() else { return };
        let kept = self.read_again(responder);
        wire.remember(self.num, responder.wire.take(), kept);
    }

    /// Returns the READs that its peer may still ask for.
    fn read_again(self: &Arc<Qp>, responder: &mut ResponderState) -> Vec<KeptRead> {
        let (mut buffers, mut deferred) = (RequestBuffers::new(), DeferredWork::default());
        let (mut all, mut left) = (Vec::new(), KEPT);
        let Some((ReceivingMachine::Reliable(machine), mut here)) =
            self.here(responder, &mut buffers, &mut deferred)
        else {
            return all;
        };
        for (rkey, va, length) in machine.answered_reads() {
            if length as usize <= left && here.read(rkey, va, length).is_ok() {
                left -= length as usize;
                all.push(KeptRead { rkey, va, bytes: here.payload.clone() });
            }
        }
        all
    }
}

impl RoceWire {
    /// A queue pair has ended, with what it has received by.
    pub(super) fn remember(
        &self,
        number: u32,
        received: Option<Box<WireRq>>,
        reads: Vec<KeptRead>,
    ) {
        let Some(WireRq { machine, path, is_established: true, .. }) = received.map(|rq| *rq)
        else {
            return;
        };
        let (ReceivingMachine::Reliable(machine), Some(path)) = (machine, path) else { return };
        let mut all = self.departed.lock();
        let now = clock::now();
        while all.front().is_some_and(|oldest| all.len() >= MOST || oldest.until_ns < now) {
            all.pop_front();
        }
        all.push_back(Departed { number, machine, path, reads, until_ns: now + LONGEST_NS });
    }

    /// A packet has arrived for no queue pair; returns true if it was for one that has ended, and
    /// is answered.
    #[cold]
    pub(super) fn answer_departed(&self, datagram: &ReceivedDatagram<'_>, number: u32) -> bool {
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
        if let Some(answer) = departed.machine.answer_late(&packet.headers) {
            self.say(&departed.path, &answer);
            return true;
        }
        self.read_for(departed, &packet)
    }

    /// A READ is asked for again, whose bytes may have been kept.
    fn read_for(&self, departed: &mut Departed, packet: &Packet<'_>) -> bool {
        let Departed { machine, path, reads, .. } = departed;
        let Some(reth) = packet.headers.reth.filter(|_| {
            packet.headers.bth.opcode.is_read_request() && machine.is_repetition(&packet.headers)
        }) else {
            return false;
        };
        let mut kept = DepartedReads { reads, found: &[] };
        if kept.read(reth.rkey, reth.va, reth.len).is_err() {
            return false;
        }
        machine.on_request(&packet.headers, packet.payload, &mut kept);
        let mut tx = self.tx.lock();
        while let Some(response) = machine.next_response(&mut kept) {
            let len = response.length as usize;
            let Ok(()) = self.put(&mut tx, path, (&response.headers, len), |to, crc| {
                Ok::<u32, Infallible>(summed_bytes(to, &kept.found[..len], crc))
            });
        }
        self.flush(&mut tx);
        true
    }
}

/// The READs that were kept of a queue pair that has ended: it can still be asked for them.
struct DepartedReads<'k> {
    reads: &'k [KeptRead],
    found: &'k [u8],
}

impl Target for DepartedReads<'_> {
    fn read(&mut self, rkey: u32, va: u64, length: u32) -> Result<(), AccessError> {
        let found = self.reads.iter().find_map(|read| read.part(rkey, va, length));
        self.found = found.ok_or(Refusal::Access)?;
        Ok(())
    }
}
