//! Offers that own their contents, a naive encoder, and the properties of all byte strings.

use std::{vec, vec::Vec};

use arbitrary::Arbitrary;

use super::*;

/// An offer, right or wrong, as a test makes it up.
#[derive(Arbitrary, Clone, Debug)]
pub struct RawOfferSample {
    /// Taken modulo 3.
    pub transport: u8,
    /// Q_Key.
    pub qkey: u32,
    /// Address, length, key.
    pub memory: Option<(u64, u64, u32)>,
    /// The user's data.
    pub user: Vec<u8>,
}

impl RawOfferSample {
    /// The offer.
    pub fn offer(&self) -> Offer<'_> {
        Offer {
            transport: Transport::from_code(self.transport % 3 + 1).expect("1 to 3"),
            qkey: self.qkey,
            memory: self.memory.map(|(addr, len, rkey)| Memory { addr, len, rkey }),
            user: &self.user,
        }
    }

    /// The bytes, as the table of the module's docs has them; `None` when something
    /// exceeds its bounds.
    fn naive(&self) -> Option<Vec<u8>> {
        let transport = self.transport % 3 + 1;
        let possible = |(addr, len, _): (u64, u64, u32)| {
            len > 0 && u128::from(addr) + u128::from(len) <= u128::from(u64::MAX)
        };
        let fits = self.user.len() <= 484 && self.memory.is_none_or(possible);
        if !fits || (transport != 3 && self.qkey != 0) {
            return None;
        }
        let (addr, len, rkey) = self.memory.unwrap_or_default();
        let mut bytes = vec![transport, 0, 0, 0];
        bytes.extend(self.qkey.to_le_bytes());
        bytes.extend(rkey.to_le_bytes());
        bytes.extend(addr.to_le_bytes());
        bytes.extend(len.to_le_bytes());
        bytes.extend(&self.user);
        Some(bytes)
    }
}

/// Encodes an offer with the codec and naively, and decodes it again. Panics when
/// anything differs.
pub fn check_sample(sample: &RawOfferSample) {
    let mut out = vec![0xa5; 600];
    let (result, expected) = (sample.offer().encode(&mut out), sample.naive());
    let Some(expected) = expected else {
        assert!(result.is_err() && out.iter().all(|&b| b == 0xa5), "{result:?}");
        return;
    };
    assert_eq!(result, Ok(expected.len()));
    assert_eq!(out[..expected.len()], expected);
    assert_eq!(Offer::decode(&expected), Ok(sample.offer()));
    let (small, need) = (expected.len() - 1, expected.len());
    out.fill(0xa5);
    let refused = sample.offer().encode(&mut out[..small]);
    assert_eq!(refused, Err(EncodeError::BufferTooSmall { need }));
    assert!(out.iter().all(|&b| b == 0xa5), "a refused encode wrote something");
}

/// Decodes arbitrary bytes. Panics when the offer does not encode to the same bytes.
pub fn check_bytes(bytes: &[u8]) {
    if let Ok(offer) = Offer::decode(bytes)
        && bytes.len() <= MAX_APPLICATION
    {
        let mut again = [0; MAX_APPLICATION];
        assert_eq!(offer.encode(&mut again), Ok(bytes.len()));
        assert_eq!(bytes, &again[..bytes.len()], "two encodings of one offer");
    }
}
