//! Both ends of an unreliable connection: nothing is acknowledged, and nothing is sent again.
//!
//! The sender cuts one request after the other into packets:
//!
//! 1. [`begin`](Sender::begin) a request.
//! 2. Send what [`next_packet`](Sender::next_packet) gives, until it gives nothing: the request is
//!    complete. Go to step 1.
//!
//! The receiver calls [`on_request`](Receiver::on_request) for each packet. A message of which a
//! packet is missing is dropped: the rest of it is ignored, and its receive request serves the next
//! one. The same happens to a message that is refused.
//!
//! **The contract: one target for the whole life of a receiver, which may hold a receive request of
//! it.**

mod receiver;
#[cfg(test)]
mod tests;

pub use receiver::Receiver;

use crate::headers::{Bth, Headers};
use crate::psn::Psn;
use crate::request::{
    MAX_MESSAGE, Outgoing, PacketPosition, Request, WqeIndex, extend, packets, uc_opcode,
};

/// The attributes of the queue pair that both ends obey.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Config {
    /// The path MTU: 256, 512, 1024, 2048 or 4096 bytes.
    pub mtu: u32,
    /// The peer's queue pair.
    pub dest_qpn: u32,
    /// Partition key of all packets.
    pub pkey: u16,
    /// The number of the first packet.
    pub first_psn: Psn,
}

/// A request that was not begun. Nothing has changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum BeginError {
    /// The one before has packets left.
    #[error("the request before has packets that are not sent")]
    Busy,
    /// A READ, an atomic, or a SEND with invalidate.
    #[error("an unreliable connection has SENDs and WRITEs, without invalidate")]
    Unsupported,
    /// It is longer than [`MAX_MESSAGE`].
    #[error("length ({0}) must be at most {MAX_MESSAGE} bytes")]
    TooLong(u32),
}

/// The request that is being sent, and how many of its packets are.
// Invariant: sent < packets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Current {
    index: WqeIndex,
    request: Request,
    sent: u32,
    packets: u32,
}

/// The sending end. See the [module](self).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Sender {
    config: Config,
    next: Psn,
    current: Option<Current>,
}

impl Sender {
    /// A sender that has sent nothing.
    pub const fn new(config: Config) -> Self {
        Self { config, next: config.first_psn, current: None }
    }

    /// Begins a request.
    ///
    /// # Errors
    /// [`BeginError`]
    pub fn begin(&mut self, index: WqeIndex, request: Request) -> Result<(), BeginError> {
        if self.current.is_some() {
            return Err(BeginError::Busy);
        }
        if uc_opcode(request.kind, PacketPosition::Only).is_none() {
            return Err(BeginError::Unsupported);
        }
        if request.length > MAX_MESSAGE {
            return Err(BeginError::TooLong(request.length));
        }
        let packets = packets(request.length, self.config.mtu);
        self.current = Some(Current { index, request, sent: 0, packets });
        Ok(())
    }

    /// The next packet of the request.
    pub fn next_packet(&mut self) -> Option<Outgoing> {
        let current = self.current?;
        let Current { index, request, sent, packets } = current;
        let part = PacketPosition::from_ends(sent == 0, sent + 1 == packets);
        let opcode = uc_opcode(request.kind, part)?;
        let offset = sent * self.config.mtu;
        let length = (request.length - offset).min(self.config.mtu);
        let bth = Bth::new(opcode, self.config.dest_qpn, self.next);
        let mut headers = Headers::new(Bth { pkey: self.config.pkey, ..bth });
        extend(&mut headers, &request, part, (offset, length));
        self.next = self.next.wrapping_add(1);
        self.current = (sent + 1 < packets).then_some(Current { sent: sent + 1, ..current });
        Some(Outgoing { headers, index, offset, length })
    }
}
