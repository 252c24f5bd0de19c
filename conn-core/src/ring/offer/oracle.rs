//! Offers that own their contents, a naive encoder, and the properties of all byte strings.

use std::{vec, vec::Vec};

use arbitrary::Arbitrary;

use super::*;

/// A ring: address, key, logarithm of the capacity, longest message, mirrored, tail.
pub type RingNumbers = (u64, u32, u8, u32, bool, u8);
/// Memory of a half: address and key of the control block; ring.
pub type HalfNumbers = (Option<(u64, u32)>, Option<RingNumbers>);

/// An offer, right or wrong, as a test makes it up.
#[derive(Arbitrary, Clone, Debug)]
pub struct RingOfferSample {
    /// Initiator to acceptor, acceptor to initiator.
    pub halves: [Option<HalfNumbers>; 2],
    /// The user's data.
    pub user: Vec<u8>,
}

impl RingOfferSample {
    /// The offer, if its rings can be.
    pub fn offer(&self) -> Option<Offer<'_>> {
        let [there, back] = self.halves.map(|half| half.map(half_offer));
        let (there, back) =
            (there.map_or(Some(None), |h| h.map(Some)), back.map_or(Some(None), |h| h.map(Some)));
        Some(Offer {
            initiator_to_acceptor: there?,
            acceptor_to_initiator: back?,
            user: &self.user,
        })
    }

    /// The bytes, as the tables of the module's docs have them; `None` when something
    /// exceeds its bounds.
    fn naive(&self) -> Option<Vec<u8>> {
        let flags = self.halves[0].is_some() as u8 + 2 * self.halves[1].is_some() as u8;
        if flags == 0 || self.user.len() > 512 - 76 {
            return None;
        }
        let mut bytes = vec![flags, 0, 0, 0];
        for (control, ring) in self.halves.iter().flatten() {
            let (addr, key) = control.unwrap_or_default();
            let (at, ring_key, log, longest, mirrored, tail) = ring.unwrap_or_default();
            let capacity = 1u128 << (log % 33);
            let whole = capacity << u32::from(mirrored);
            if control.is_some() && !is_memory(addr, 128) || ring.is_some() && !is_memory(at, whole)
            {
                return None;
            }
            bytes.extend(addr.to_le_bytes());
            bytes.extend(key.to_le_bytes());
            bytes.extend(match ring {
                None => [0; 4],
                Some(_) => [if mirrored { 1 } else { 2 }, tail % 3 + 1, 0, 0],
            });
            bytes.extend(at.to_le_bytes());
            bytes.extend(ring_key.to_le_bytes());
            let units = if ring.is_some() { (capacity / 8) as u32 } else { 0 };
            bytes.extend(units.to_le_bytes());
            bytes.extend(longest.to_le_bytes());
        }
        bytes.extend(&self.user);
        Some(bytes)
    }
}

fn is_memory(addr: u64, len: u128) -> bool {
    addr > 0 && addr.is_multiple_of(8) && u128::from(addr) + len <= u128::from(u64::MAX)
}

fn half_offer((control, ring): HalfNumbers) -> Option<HalfOffer> {
    let control = control.map(|(addr, rkey)| Place { addr, rkey });
    let ring = match ring {
        None => None,
        Some((addr, rkey, log, longest, mirrored, tail)) => {
            let capacity = 1 << (log % 33);
            let make = if mirrored { Geometry::mirrored } else { Geometry::plain };
            let tail = Tail::from_code(tail % 3 + 1).expect("1 to 3");
            let geometry = make(capacity, longest).ok()?;
            Some(RingOffer { place: Place { addr, rkey }, geometry, tail })
        }
    };
    Some(HalfOffer { control, ring })
}

/// Encodes an offer with the codec and naively, and decodes it again. Panics when
/// anything differs.
pub fn check_sample(sample: &RingOfferSample) {
    let Some(offer) = sample.offer() else { return };
    let mut out = vec![0xa5; 600];
    let (result, expected) = (offer.encode(&mut out), sample.naive());
    let Some(expected) = expected else {
        assert!(result.is_err() && out.iter().all(|&b| b == 0xa5), "{result:?}");
        return;
    };
    assert_eq!(result, Ok(expected.len()));
    assert_eq!(out[..expected.len()], expected);
    assert_eq!(Offer::decode(&expected), Ok(offer));
    let (small, need) = (expected.len() - 1, expected.len());
    out.fill(0xa5);
    let refused = offer.encode(&mut out[..small]);
    assert_eq!(refused, Err(EncodeError::BufferTooSmall { need }));
    assert!(out.iter().all(|&b| b == 0xa5), "a refused encode wrote something");
}

/// Decodes arbitrary bytes. Panics when the offer does not encode to the same bytes, or has
/// impossible memory.
pub fn check_bytes(bytes: &[u8]) {
    if let Ok(offer) = Offer::decode(bytes)
        && offer.user.len() <= MAX_USER
    {
        let mut again = [0; MAX_APPLICATION];
        assert_eq!(offer.encode(&mut again), Ok(bytes.len()));
        assert_eq!(bytes, &again[..bytes.len()], "two encodings of one offer");
    }
}
