//! Offers that the ends of a ring connection make each other: rings, control blocks, keys.
//!
//! Ring connections (Buffered Read, Buffered Write) are set up with the
//! [`handshake`](crate::handshake). The application data of Hello and Accept begin with an
//! offer; all integers are little-endian:
//!
//! | bytes | offer |
//! |---|---|
//! | 1 | the directions that exist, as the flags of the frame have them |
//! | 3 | 0 |
//! | 36 | this end's memory for initiator to acceptor, if it exists |
//! | 36 | this end's memory for acceptor to initiator, if it exists |
//! | … | the user's data |
//!
//! | bytes | memory of a half |
//! |---|---|
//! | 8 | address of the control block; with its key, 0 where there is none |
//! | 4 | its key |
//! | 1 | layout of the ring: 0 there is none, and all below is 0; 1 mirrored; 2 plain |
//! | 1 | how the tail is told: 1 immediate, 2 written, 3 read |
//! | 2 | 0 |
//! | 8 | address of the ring |
//! | 4 | its key |
//! | 4 | capacity, in units of 8 bytes |
//! | 4 | longest message, in bytes |
//!
//! The end that exposes its ring to the peer chooses the ring's shape, and the peer makes a ring of
//! the same shape on its side. In Buffered Write that is the receiver, in Buffered Read the sender:
//!
//! | | the receiver offers | the sender offers |
//! |---|---|---|
//! | Buffered Write | ring, block (tail) | block (head) |
//! | Buffered Read | a block, or none | ring, block (tail, head) |
//!
//! # The control block
//!
//! [`CONTROL_BYTES`] bytes, aligned to a cache line. Each of its two lines is written by one end
//! only. All words are little-endian u64; tail, head and taken only rise. Words that are written
//! together are followed by their [checksum](crate::checksum):
//!
//! | byte | word | written by |
//! |---|---|---|
//! | [`TAIL_AT`] | the [tail](super::AdvertisedCursor); the last one is FIN | the sender |
//! | 8 | its checksum | the sender |
//! | 16 | Buffered Write: maybe a short record [inline](crate::buffered_write::inline_record) with the tail | the sender |
//! | [`HEAD_AT`] | the [head](super::AdvertisedCursor); the last one is STOP | the receiver |
//! | [`TAKEN_AT`] | Buffered Write: immediates taken, with their receives reposted. Buffered Read: the landed position | the receiver |
//! | 80 | the checksum of both | the receiver |
//! | [`WAKE_AT`] | Buffered Read: the [request](crate::buffered_read::wake) to be woken | the receiver |
//! | 96 | its checksum | the receiver |

#[cfg(any(test, feature = "oracle"))]
pub mod oracle;
#[cfg(test)]
mod tests;

use super::{Geometry, GeometryError};
use crate::handshake::{MAX_APPLICATION, Parameters, ProtocolId};
use crate::wire::{Wire, codes, fields};

/// Bytes of a control block.
pub const CONTROL_BYTES: u64 = 128;
/// Offset of the tail in a control block.
pub const TAIL_AT: u64 = 0;
/// Offset of the head in a control block: a cache line further.
pub const HEAD_AT: u64 = 64;
/// Offset of the receiver's count of taken immediates or landed bytes, right behind the head: one
/// write carries both.
pub const TAKEN_AT: u64 = 72;
/// Offset of the receiver's request to be woken.
pub const WAKE_AT: u64 = 88;

/// Bytes of the longest offer without the user's data.
pub const MAX_OFFER_LEN: usize = OFFER_LEN + 2 * HALF_LEN;
/// The longest user's data that always fits, in bytes.
pub const MAX_USER: usize = MAX_APPLICATION - MAX_OFFER_LEN;

/// The directions, and zeros.
type Head = (u8, [u8; 3]);
/// The control block; layout, tail and zeros; the ring, its capacity, the longest message.
type HalfFields = (Place, u8, u8, [u8; 2], Place, u32, u32);

const OFFER_LEN: usize = Head::LEN;
const HALF_LEN: usize = HalfFields::LEN;
/// Positions are multiples of 8, and addresses of words, too.
const ALIGN: u64 = super::ALIGN;

/// Method by which the receiver learns the sender's tail.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum Tail {
    /// The last write of a batch has an immediate, which can wake the receiver
    /// ([`AdvertisedCursor::to_imm`](super::AdvertisedCursor::to_imm)).
    Immediate = 1,
    /// It is written behind the data, and the receiver polls it.
    Written = 2,
    /// The receiver reads it over the network.
    Read = 3,
}

codes! { Tail { Immediate, Written, Read } }

/// Beginning of one end's memory, for the other one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Place {
    /// The address, in the address space of the end that offers it: a multiple of 8 in all offers
    /// and terms of rings and buffers.
    pub addr: u64,
    /// The remote key.
    pub rkey: u32,
}

fields! { Place { addr: u64, rkey: u32 } }

/// A ring that the peer may reach.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RingOffer {
    /// Its memory: `capacity` bytes, or twice as many where it is mirrored.
    pub place: Place,
    /// Its shape.
    pub geometry: Geometry,
    /// Method of advertising its tail.
    pub tail: Tail,
}

/// Offer of an end for one half.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HalfOffer {
    /// The control block: [`CONTROL_BYTES`] bytes.
    pub control: Option<Place>,
    /// The ring.
    pub ring: Option<RingOffer>,
}

/// Offer of one end of a ring connection to the other.
///
/// ```
/// use conn_core::ring::{Geometry, offer::*};
///
/// let ring = RingOffer {
///     place: Place { addr: 0x7f00_0000_0000, rkey: 7 },
///     geometry: Geometry::mirrored(1 << 16, 4096)?,
///     tail: Tail::Written,
/// };
/// let half = HalfOffer { control: Some(Place { addr: 0x7f00_0010_0000, rkey: 8 }), ring: Some(ring) };
/// let offer = Offer { initiator_to_acceptor: Some(half), acceptor_to_initiator: None, user: b"hi" };
/// let mut buf = [0; 64];
/// let len = offer.encode(&mut buf)?;
/// assert_eq!(Offer::decode(&buf[..len])?, offer);
/// assert!(Offer::decode(b"junk").is_err());
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Offer<'a> {
    /// This end's memory for the direction initiator → acceptor, if that exists.
    pub initiator_to_acceptor: Option<HalfOffer>,
    /// This end's memory for the direction acceptor → initiator, if that exists.
    pub acceptor_to_initiator: Option<HalfOffer>,
    /// Data of the user, up to [`MAX_USER`] bytes.
    pub user: &'a [u8],
}

/// Bytes that are no offer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum DecodeError {
    /// It ends before its last half does.
    #[error("an offer of {len} bytes is not whole")]
    TooShort {
        /// Bytes given.
        len: usize,
    },
    /// No direction exists, or one that this version does not know.
    #[error("unknown set of directions {0:#04x}")]
    Directions(u8),
    /// A field that must be 0 is not: a reserved byte, or something of a ring or block that does
    /// not exist.
    #[error("something in the offer that must be 0 is not")]
    NotZero,
    /// An unknown layout.
    #[error("unknown layout of a ring {0}")]
    Layout(u8),
    /// An unknown way to tell the tail.
    #[error("unknown way to tell a ring's tail {0}")]
    Tail(u8),
    /// The ring cannot be.
    #[error("{0}")]
    Geometry(GeometryError),
    /// Memory at a place that is not aligned to 8 bytes, or at 0, or that would reach beyond
    /// the end of the address space.
    #[error("memory at an address that cannot be")]
    Memory,
}

/// An offer that cannot be encoded.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum EncodeError {
    /// The output has too little room.
    #[error("the offer needs {need} bytes")]
    BufferTooSmall {
        /// Bytes that the offer has.
        need: usize,
    },
    /// Neither direction exists.
    #[error("a connection without a direction")]
    NoDirection,
    /// More than [`MAX_USER`] bytes of user's data.
    #[error("{len} bytes of user's data; at most {max} fit", max = MAX_USER)]
    UserTooLong {
        /// Bytes given.
        len: usize,
    },
    /// Memory at an address that cannot be.
    #[error("memory at an address that cannot be")]
    Memory,
}

/// Offers of two ends that do not make a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum FitError {
    /// The offer has other directions than the frame that brought it.
    #[error("the offer has other directions than its frame")]
    Directions,
    /// The protocol is none of the ring connections.
    #[error("protocol {0} has no rings")]
    Protocol(u8),
    /// There is no ring where the protocol wants one.
    #[error("a half lacks its ring")]
    NoRing,
    /// There is a ring where the protocol has none.
    #[error("a half has a ring that the protocol does not use")]
    UnwantedRing,
    /// There is no control block where the protocol wants one.
    #[error("a half lacks its control block")]
    NoControl,
    /// The protocol does not tell its tail so.
    #[error("this protocol's tail cannot be told so ({0:?})")]
    Tail(Tail),
}

impl Place {
    const NOWHERE: Self = Self { addr: 0, rkey: 0 };

    /// Reports whether memory of `bytes` bytes can be here.
    pub(crate) const fn holds(&self, bytes: u64) -> bool {
        self.addr > 0 && self.addr.is_multiple_of(ALIGN) && self.addr.checked_add(bytes).is_some()
    }
}

impl RingOffer {
    /// Bytes of its memory that the peer may reach.
    pub const fn bytes(&self) -> u64 {
        let capacity = self.geometry.capacity();
        if self.geometry.is_mirrored() { 2 * capacity } else { capacity }
    }
}

impl HalfOffer {
    fn is_possible(&self) -> bool {
        self.control.is_none_or(|control| control.holds(CONTROL_BYTES))
            && self.ring.is_none_or(|ring| ring.place.holds(ring.bytes()))
    }

    /// Checks that this is the offer of an end for a half of `protocol` on which it sends
    /// (`sends`), or else receives.
    ///
    /// # Errors
    /// [`FitError`] names the missing or superfluous memory.
    pub fn fits(&self, protocol: ProtocolId, sends: bool) -> Result<(), FitError> {
        let (has_ring, needs_control) = match protocol {
            ProtocolId::BUFFERED_WRITE => (!sends, true),
            ProtocolId::BUFFERED_READ => (sends, sends),
            ProtocolId(other) => return Err(FitError::Protocol(other)),
        };
        if needs_control && self.control.is_none() {
            return Err(FitError::NoControl);
        }
        match self.ring {
            None if has_ring => Err(FitError::NoRing),
            Some(_) if !has_ring => Err(FitError::UnwantedRing),
            Some(ring) if (ring.tail == Tail::Read) != (protocol == ProtocolId::BUFFERED_READ) => {
                Err(FitError::Tail(ring.tail))
            }
            _ => Ok(()),
        }
    }
}

impl<'a> Offer<'a> {
    const fn flags(&self) -> u8 {
        self.initiator_to_acceptor.is_some() as u8
            | (self.acceptor_to_initiator.is_some() as u8) << 1
    }

    fn halves(&self) -> impl Iterator<Item = &HalfOffer> {
        self.initiator_to_acceptor.iter().chain(&self.acceptor_to_initiator)
    }

    /// Writes the offer to the beginning of `out` and returns its length.
    /// [`MAX_APPLICATION`] bytes are always enough.
    ///
    /// # Errors
    /// [`EncodeError`]; `out` is then as it was.
    pub fn encode(&self, out: &mut [u8]) -> Result<usize, EncodeError> {
        let (halves, len) = (self.halves().count(), self.user.len());
        if halves == 0 {
            return Err(EncodeError::NoDirection);
        }
        if len > MAX_USER {
            return Err(EncodeError::UserTooLong { len });
        }
        if !self.halves().all(HalfOffer::is_possible) {
            return Err(EncodeError::Memory);
        }
        let need = OFFER_LEN + halves * HALF_LEN + len;
        let mut out = out.get_mut(..need).ok_or(EncodeError::BufferTooSmall { need })?;
        let head: Head = (self.flags(), [0; 3]);
        head.put(&mut out);
        self.halves().for_each(|half| half.to_fields().put(&mut out));
        out.copy_from_slice(self.user);
        Ok(need)
    }

    /// Decodes the application data of a handshake, all of it.
    ///
    /// # Errors
    /// [`DecodeError`]: what is wrong with it.
    pub fn decode(bytes: &'a [u8]) -> Result<Offer<'a>, DecodeError> {
        let short = DecodeError::TooShort { len: bytes.len() };
        let ((flags, zeros), mut rest) = Head::split(bytes).ok_or(short)?;
        if !(1..=3).contains(&flags) {
            return Err(DecodeError::Directions(flags));
        }
        if zeros != [0; 3] {
            return Err(DecodeError::NotZero);
        }
        let mut half = |exists: bool| {
            if !exists {
                return Ok(None);
            }
            HalfOffer::from_fields(HalfFields::take(&mut rest).ok_or(short)?).map(Some)
        };
        let (initiator_to_acceptor, acceptor_to_initiator) =
            (half(flags & 1 != 0)?, half(flags & 2 != 0)?);
        Ok(Offer { initiator_to_acceptor, acceptor_to_initiator, user: rest })
    }

    /// Checks that this offer, received with `frame`, is one of the frame's protocol, from its
    /// initiator or else its acceptor.
    ///
    /// # Errors
    /// [`FitError`]: what does not fit.
    pub fn fits(&self, frame: &Parameters<'_>, from_initiator: bool) -> Result<(), FitError> {
        let there = self.initiator_to_acceptor.is_some() == frame.initiator_to_acceptor.is_some();
        let back = self.acceptor_to_initiator.is_some() == frame.acceptor_to_initiator.is_some();
        if !there || !back {
            return Err(FitError::Directions);
        }
        for (half, sends) in [
            (self.initiator_to_acceptor, from_initiator),
            (self.acceptor_to_initiator, !from_initiator),
        ] {
            half.map_or(Ok(()), |half| half.fits(frame.protocol, sends))?;
        }
        Ok(())
    }
}

impl HalfOffer {
    fn to_fields(self) -> HalfFields {
        let control = self.control.unwrap_or(Place::NOWHERE);
        let Some(RingOffer { place, geometry, tail }) = self.ring else {
            return (control, 0, 0, [0; 2], Place::NOWHERE, 0, 0);
        };
        let layout = if geometry.is_mirrored() { 1 } else { 2 };
        let units = (geometry.capacity() / ALIGN) as u32;
        (control, layout, tail.code(), [0; 2], place, units, geometry.max_payload())
    }

    fn from_fields(fields: HalfFields) -> Result<HalfOffer, DecodeError> {
        let (control, layout, tail, zeros, place, units, longest) = fields;
        let control = match control {
            Place { addr: 0, rkey: 0 } => None,
            Place { addr: 0, .. } => return Err(DecodeError::NotZero),
            place => Some(place),
        };
        let is_empty = tail == 0 && place == Place::NOWHERE && units == 0 && longest == 0;
        let ring = match layout {
            0..=2 if zeros != [0; 2] => return Err(DecodeError::NotZero),
            0 if !is_empty => return Err(DecodeError::NotZero),
            0 => None,
            1 | 2 => {
                let tail = Tail::from_code(tail).ok_or(DecodeError::Tail(tail))?;
                let new = if layout == 1 { Geometry::mirrored } else { Geometry::plain };
                let geometry = new(u64::from(units) * ALIGN, longest);
                Some(RingOffer { place, geometry: geometry.map_err(DecodeError::Geometry)?, tail })
            }
            other => return Err(DecodeError::Layout(other)),
        };
        let half = HalfOffer { control, ring };
        if half.is_possible() { Ok(half) } else { Err(DecodeError::Memory) }
    }
}
