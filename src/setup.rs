//! The set-up of a connection: joins the halves of one end to those of its peer.
//!
//! ```text
//!  initiator                                  acceptor
//!      | Hello: queue pairs, its memory ------> |  makes its halves, and what belongs to
//!      |                                        |  the initiator's; connects them
//!      | <---- Accept: queue pairs, its memory  |
//!      |  makes what belongs to the acceptor's; |
//!      |  connects its halves                   |
//!      | Ready -------------------------------> |  messages may flow both ways
//! ```
//!
//! A protocol makes its halves ([`NewSender`], [`NewLink`]) and describes their memory to the peer
//! ([`FixedTerms`]); the exchange is the same for all. Programs that only use connections do not
//! need this module. It is public for [protocols](crate::Protocol) of other crates, as
//! `examples/own_protocol.rs`.

use conn_core::handshake::{Endpoint, MAX_APPLICATION, Options, Parameters};

use crate::error::ConnectError;
use crate::handshake::HandshakeError;
use crate::peer::Peer;

pub use crate::wire::{ConnectedQp, Wire};

/// Terms that an end states for its memory, for one direction, in front of the user's data: in a
/// form that depends on both directions. Most protocols have [`FixedTerms`] instead.
pub trait HalfTerms: Copy {
    /// Writes the terms of both directions and the user's data; returns the number of bytes.
    ///
    /// # Errors
    /// [`unfit`] when there is no room for the user's data.
    fn encode(
        terms: &ByDirection<Option<Self>>,
        user: &[u8],
        out: &mut [u8; MAX_APPLICATION],
    ) -> Result<usize, ConnectError>;

    /// The terms of a peer, if they fit the directions that its frame has.
    ///
    /// # Errors
    /// [`unfit`], with the reason.
    fn decode(
        peer: &Parameters<'_>,
        from_initiator: bool,
    ) -> Result<ByDirection<Option<Self>>, ConnectError>;

    /// The user's data of a Hello that has this number of `directions`. Nothing of it was checked.
    fn user_data(said: &[u8], directions: usize) -> &[u8];
}

/// Terms that an end states for its memory, for one direction: always the same number of bytes.
pub trait FixedTerms: Copy {
    /// Number of bytes: those of both directions go with the user's data into 512 bytes.
    const BYTES: usize;

    /// Writes them to `out`, which has [`BYTES`](FixedTerms::BYTES).
    fn write(&self, out: &mut [u8]);

    /// Reads those of a peer out of `said`, which has [`BYTES`](FixedTerms::BYTES). The peer has
    /// this `end` of the direction, which it sends on if `sends`.
    ///
    /// # Errors
    /// [`unfit`], with the reason.
    fn read(said: &[u8], end: &Endpoint, sends: bool) -> Result<Self, ConnectError>;
}

impl<T: FixedTerms> HalfTerms for T {
    fn encode(
        terms: &ByDirection<Option<T>>,
        user: &[u8],
        out: &mut [u8; MAX_APPLICATION],
    ) -> Result<usize, ConnectError> {
        let terms = [terms.to_acceptor, terms.to_initiator].into_iter().flatten();
        let bytes = terms.clone().count() * T::BYTES;
        let split = out.split_at_mut_checked(bytes);
        let (said, rest) = split.ok_or_else(|| unfit("its own terms have too many bytes"))?;
        let limit = rest.len();
        let too_long =
            || unfit(format!("{} bytes of application data; at most {limit}", user.len()));
        rest.get_mut(..user.len()).ok_or_else(too_long)?.copy_from_slice(user);
        for (terms, out) in terms.zip(said.chunks_exact_mut(T::BYTES.max(1))) {
            terms.write(out);
        }
        Ok(bytes + user.len())
    }

    fn decode(
        peer: &Parameters<'_>,
        from_initiator: bool,
    ) -> Result<ByDirection<Option<T>>, ConnectError> {
        let mut said = peer.application;
        let mut next = |end: Option<Endpoint>, sends: bool| {
            let Some(end) = end else { return Ok(None) };
            let short = || unfit("its application data end within its terms");
            let (terms, rest) = said.split_at_checked(T::BYTES).ok_or_else(short)?;
            said = rest;
            T::read(terms, &end, sends).map(Some)
        };
        let to_acceptor = next(peer.initiator_to_acceptor, from_initiator)?;
        let to_initiator = next(peer.acceptor_to_initiator, !from_initiator)?;
        Ok(ByDirection { to_acceptor, to_initiator })
    }

    fn user_data(said: &[u8], directions: usize) -> &[u8] {
        said.get(directions * T::BYTES..).unwrap_or_default()
    }
}

/// The ends say nothing of their memory.
impl FixedTerms for () {
    const BYTES: usize = 0;

    fn write(&self, _: &mut [u8]) {}

    fn read(_: &[u8], _: &Endpoint, _: bool) -> Result<(), ConnectError> {
        Ok(())
    }
}

/// Nothing, or that the `terms` are those of the other direction.
pub(crate) fn check_direction(is_sender: bool, sends: bool) -> Result<(), ConnectError> {
    if is_sender == sends { Ok(()) } else { Err(unfit("the terms of the other direction")) }
}

/// Settings that a connection's protocol and configuration have the set-up agree on.
#[derive(Debug, Clone, Copy)]
pub struct Agreement {
    /// Options that the peer has to understand.
    pub options: Options,
    /// READs and atomics in flight, of either end; at least 1: some devices refuse 0.
    pub rd_atomic: u8,
}

impl Default for Agreement {
    fn default() -> Agreement {
        Agreement { options: Options::NONE, rd_atomic: 1 }
    }
}

/// Something for each direction.
#[derive(Debug, Clone, Copy)]
pub struct ByDirection<T> {
    /// From the initiator to the acceptor.
    pub to_acceptor: T,
    /// From the acceptor to the initiator.
    pub to_initiator: T,
}

impl<T> ByDirection<T> {
    pub(crate) fn new(out: T, back: T, is_initiator: bool) -> ByDirection<T> {
        match is_initiator {
            true => ByDirection { to_acceptor: out, to_initiator: back },
            false => ByDirection { to_acceptor: back, to_initiator: out },
        }
    }

    /// Returns the part that this end sends on, and the part that it receives on.
    pub(crate) fn out_and_back(self, is_initiator: bool) -> (T, T) {
        match is_initiator {
            true => (self.to_acceptor, self.to_initiator),
            false => (self.to_initiator, self.to_acceptor),
        }
    }
}

/// One half in the making: a queue pair in INIT, and this end's memory for it.
pub trait NewHalf: Sized {
    /// Terms that the peer has to know of this end's memory.
    type Terms: HalfTerms;
    /// The half, when it is connected.
    type Done;

    /// Returns the endpoint of the queue pair, for the peer.
    fn endpoint(&self) -> Endpoint;

    /// Returns the terms of this end's memory, for the peer.
    fn terms(&self) -> Self::Terms;
}

/// A sender in the making.
pub trait NewSender: NewHalf {
    /// Makes the resources that fit the peer's memory, and [connects](Wire::connect) the queue
    /// pair.
    ///
    /// # Errors
    /// [`unfit`] when the peer's half does not match this one, [`ConnectError::Device`].
    fn connect(
        self,
        peer: &PeerHalf<Self::Terms>,
        wire: &Wire<'_>,
    ) -> Result<Self::Done, ConnectError>;

    /// The handshake has failed after all: ends the half without a goodbye.
    fn abandon(done: Self::Done);
}

/// A receiver's link in the making.
pub trait NewLink: NewHalf {
    /// Receiver that the link belongs to.
    type Receiver;

    /// Makes the resources that fit the peer's memory, and [connects](Wire::connect) the queue
    /// pair.
    ///
    /// # Errors
    /// As [`NewSender::connect`].
    fn connect(
        self,
        peer: &PeerHalf<Self::Terms>,
        wire: &Wire<'_>,
        receiver: &mut Self::Receiver,
    ) -> Result<Self::Done, ConnectError>;

    /// Its peer is ready: the link gets its place. Not before: a peer that never gets so far
    /// takes no place.
    fn join(done: Self::Done, receiver: &mut Self::Receiver) -> Peer;

    /// The handshake has failed after all. The peer may have sent already: buffers that the
    /// receiver's links share must not go with this one.
    fn abandon(done: Self::Done, receiver: &mut Self::Receiver);
}

/// The peer's end of a half.
#[derive(Debug, Clone, Copy)]
pub struct PeerHalf<T> {
    /// Its queue pair.
    pub endpoint: Endpoint,
    /// The terms of its memory.
    pub terms: T,
    /// The options that it wants of the whole connection.
    pub options: Options,
}

/// The error of a peer that does not fit, with the reason, which is sent to the peer.
#[must_use]
pub fn unfit(why: impl std::fmt::Display) -> ConnectError {
    HandshakeError::Unfit(why.to_string()).into()
}
