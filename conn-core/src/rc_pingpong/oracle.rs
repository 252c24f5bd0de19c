//! Checks for all destinations, and for all bytes: the codec formats and parses as the standard
//! library does.

use std::{format, string::String};

use super::*;

/// Encodes a destination by the codec and by formatting, and decodes it again. Panics
/// when anything differs.
pub fn check_numbers(lid: u16, qp_num: u32, psn: u32, gid: [u8; 16]) {
    let destination = Destination { lid, qp_num, psn, gid };
    let Ok(message) = destination.encode() else {
        assert!(qp_num.max(psn) >= 1 << 24, "{destination:?}");
        return;
    };
    let gid: String = gid.iter().map(|byte| format!("{byte:02x}")).collect();
    let text = format!("{lid:04x}:{qp_num:06x}:{psn:06x}:{gid}\0");
    assert_eq!(message, text.as_bytes());
    assert_eq!(Destination::decode(&message), Ok(destination));
    let capitals = text.to_ascii_uppercase();
    assert_eq!(Destination::decode(capitals.as_bytes()), Ok(destination));
    check_bytes(&message);
}

/// Decodes arbitrary bytes, whole and in parts. Panics when they are taken for a
/// destination that they do not spell, or when a part is judged otherwise than the whole.
pub fn check_bytes(bytes: &[u8]) {
    let whole = Destination::decode(bytes);
    if let Ok(destination) = whole {
        let spelt = destination.encode().expect("decoded numbers have 24 bits");
        assert!(bytes[..MESSAGE_LEN].eq_ignore_ascii_case(&spelt), "{destination:?}");
    }
    for len in 0..bytes.len().min(MESSAGE_LEN) {
        match Destination::decode(&bytes[..len]) {
            Err(DecodeError::Incomplete) => {}
            verdict => return assert_eq!(verdict, whole, "after {len} bytes"),
        }
    }
    assert!(whole != Err(DecodeError::Incomplete) || bytes.len() < MESSAGE_LEN);
}
