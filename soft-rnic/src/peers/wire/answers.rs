//! Peers that are to be answered: the order of their turns, and the most that one look sends.
//!
//! A READ of a few bytes asks for gigabytes, and a peer may have many queue pairs. So a look sends no more than an
//! [`Allowance`], whatever is owed, and the rest is left to the looks that follow; peers take turns, and so do the
//! queue pairs of one peer.

use core::net::IpAddr;
use std::collections::VecDeque;

/// Answers of one look: as many bytes as the longest run of full packets has.
const LOOK: u32 = 64 * (4_096 + PACKET);
/// Bytes that a packet counts besides its payload: it takes time, too.
const PACKET: u32 = 512;
/// Packets of one turn.
const TURN: u32 = 16;

/// Bytes that may still be sent in answer to peers.
#[derive(Debug)]
pub(crate) struct Allowance(u32);

impl Allowance {
    /// That of one look.
    pub(crate) fn of_look() -> Allowance {
        Allowance(LOOK)
    }

    /// Nothing: what is owed is left to others.
    pub(crate) fn none() -> Allowance {
        Allowance(0)
    }

    fn is_used_up(&self) -> bool {
        self.0 == 0
    }

    /// The packets that a queue pair may send in its turn: as long as it says yes.
    pub(crate) fn turn(&mut self) -> AnswerTurn<'_> {
        AnswerTurn { allowance: self, packets: 0 }
    }
}

/// The turn of one queue pair.
#[derive(Debug)]
pub(crate) struct AnswerTurn<'a> {
    allowance: &'a mut Allowance,
    packets: u32,
}

impl AnswerTurn<'_> {
    /// True while it may send another packet.
    pub(crate) fn has_another(&self) -> bool {
        self.packets < TURN && !self.allowance.is_used_up()
    }

    /// A packet with `length` bytes of payload is sent.
    pub(crate) fn take(&mut self, length: usize) {
        self.packets += 1;
        let cost = u32::try_from(length).unwrap_or(LOOK).saturating_add(PACKET);
        self.allowance.0 = self.allowance.0.saturating_sub(cost);
    }

    /// True once it has sent a packet.
    pub(crate) fn has_sent(&self) -> bool {
        self.packets > 0
    }
}

/// Outcome of a turn.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum AnswersSent {
    /// All there was to say.
    All,
    /// A part of it.
    Some,
    /// Nothing yet: there is no room, or nothing is allowed.
    Nothing,
}

/// The queue pairs that owe answers, by peer.
#[derive(Debug, Default)]
pub(crate) struct Answers {
    /// The first has the next turn. None is without a queue pair.
    peers: VecDeque<OfPeer>,
}

#[derive(Debug)]
struct OfPeer {
    peer: IpAddr,
    /// The first has the next turn.
    qpns: VecDeque<u32>,
}

impl Answers {
    pub(crate) fn is_empty(&self) -> bool {
        self.peers.is_empty()
    }

    /// This queue pair of ours is to answer its peer.
    pub(crate) fn note(&mut self, peer: IpAddr, qpn: u32) {
        match self.peers.iter_mut().find(|of| of.peer == peer) {
            // There are few in a batch.
            Some(OfPeer { qpns, .. }) if qpns.contains(&qpn) => {}
            Some(OfPeer { qpns, .. }) => qpns.push_back(qpn),
            None => self.peers.push_back(OfPeer { peer, qpns: VecDeque::from([qpn]) }),
        }
    }

    /// Has queue pairs answer in turns, until all is said, or no more is allowed, or none can say anything.
    pub(crate) fn take_turns(
        &mut self,
        allowance: &mut Allowance,
        mut answer: impl FnMut(u32, &mut Allowance) -> AnswersSent,
    ) {
        let mut owing: usize = self.peers.iter().map(|of| of.qpns.len()).sum();
        let mut silent = 0;
        while !allowance.is_used_up() && silent < owing {
            let Some(OfPeer { peer, mut qpns }) = self.peers.pop_front() else { return };
            if let Some(qpn) = qpns.pop_front() {
                let said = answer(qpn, allowance);
                silent = if said == AnswersSent::Nothing { silent + 1 } else { 0 };
                match said {
                    AnswersSent::All => owing -= 1,
                    AnswersSent::Some | AnswersSent::Nothing => qpns.push_back(qpn),
                }
            }
            if !qpns.is_empty() {
                self.peers.push_back(OfPeer { peer, qpns });
            }
        }
    }
}

#[cfg(test)]
mod tests;
