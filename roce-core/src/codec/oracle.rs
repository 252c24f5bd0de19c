//! Conditions that hold for all bytes and for all headers: the specification's tables, written out
//! once more.

use std::{vec, vec::Vec};

use super::{Packet, ParseError, parse, peek, write};
use crate::headers::{Headers, Syndrome};
use crate::lengths::{ICRC, MAX_HEADERS, MAX_PACKET, MIN_PACKET};
use crate::opcode::Opcode;

/// The bytes of extended headers behind the base transport header of an opcode, and the bits of
/// them that are reserved (set here). `None` for unknown opcodes.
pub fn extended_headers(opcode: u8) -> Option<Vec<u8>> {
    let deth = [0, 0, 0, 0, 0xff, 0, 0, 0];
    let len = match (opcode >> 5, opcode & 0x1f) {
        (4, 1) => return Some(vec![0xff; 16]),
        (3, 4) => return Some(deth.to_vec()),
        (3, 5) => return Some([&deth[..], &[0; 4]].concat()),
        (0 | 1, 0..=2 | 4 | 7 | 8) | (0, 14) => 0,
        (0 | 1, 3 | 5 | 9) | (0, 13 | 15..=17 | 22 | 23) => 4,
        (0, 18) => 12,
        (0 | 1, 6 | 10) | (0, 12 | 29) => 16,
        (0 | 1, 11) => 20,
        (0, 19 | 20) => 28,
        _ => return None,
    };
    Some(vec![0; len])
}

/// Reports whether an opcode permits a payload of this length, at some path MTU.
fn permits(opcode: u8, len: usize) -> bool {
    match (opcode >> 5, opcode & 0x1f) {
        (0, 29) => len == 8,
        (0, 12 | 17..=20) | (4, _) => len == 0,
        (0 | 1, 0 | 1 | 6 | 7) | (0, 13 | 14) => {
            len.is_power_of_two() && (256..=4096).contains(&len)
        }
        (0 | 1, 2 | 3 | 8 | 9) | (0, 15 | 22) => (1..=4096).contains(&len),
        _ => len <= 4096,
    }
}

/// Parses arbitrary bytes. Panics when they are taken for a packet that they are not, when they
/// are refused for a wrong reason, or when writing does not give them back.
pub fn check_bytes(bytes: &[u8]) {
    assert_eq!(peek(bytes).is_some(), bytes.len() >= 12);
    match parse(bytes) {
        Ok(packet) => check_packet(&packet, bytes),
        Err(error) => {
            check_error(error, bytes);
            assert_eq!(Some(error), expected_error(bytes));
        }
    }
}

fn check_packet(packet: &Packet<'_>, bytes: &[u8]) {
    assert_eq!(expected_error(bytes), None);
    let opcode = packet.headers.bth.opcode;
    let peeked = peek(bytes).expect("a packet has a base transport header");
    assert_eq!(peeked.opcode, opcode.to_u8());
    assert_eq!(peeked.dest_qpn, packet.headers.bth.dest_qpn);
    assert_eq!((peeked.psn, peeked.pkey), (packet.headers.bth.psn, packet.headers.bth.pkey));

    let mut written = assemble(&packet.headers, packet.payload);
    let len = 12 + extended_headers(opcode.to_u8()).expect("known").len();
    assert_eq!(len, opcode.header_len());
    assert_eq!(packet.payload, &bytes[len..len + packet.payload.len()]);
    // What is not there again: reserved bits, padding, the ICRC.
    let end = len + packet.payload.len();
    written[end..].copy_from_slice(&bytes[end..]);
    let mut reserved = vec![0, 0, 0, 0, 0x3f, 0, 0, 0, 0x7f, 0, 0, 0];
    reserved.extend(extended_headers(opcode.to_u8()).expect("known"));
    for (at, mask) in reserved.into_iter().enumerate() {
        assert_eq!(written[at] & mask, 0, "reserved bits are sent as 0, byte {at}");
        written[at] |= bytes[at] & mask;
    }
    assert_eq!(written, bytes);
}

/// Returns the error that the parser has to find first, if there is one.
fn expected_error(bytes: &[u8]) -> Option<ParseError> {
    let len = bytes.len();
    if len > MAX_PACKET {
        return Some(ParseError::TooLong { len });
    }
    if !len.is_multiple_of(4) {
        return Some(ParseError::NotWords { len });
    }
    if len < MIN_PACKET {
        return Some(ParseError::Truncated { len });
    }
    if bytes[1] & 15 != 0 {
        return Some(ParseError::Version(bytes[1] & 15));
    }
    let Some(extended) = extended_headers(bytes[0]) else {
        return Some(ParseError::UnknownOpcode(bytes[0]));
    };
    let opcode = Opcode::from_u8(bytes[0]).expect("the tables have it");
    let Some(len_padded) = len.checked_sub(12 + extended.len() + ICRC) else {
        return Some(ParseError::HeadersTruncated { opcode, len });
    };
    if opcode.has_aeth() && Syndrome::from_u8(bytes[12]).is_none() {
        return Some(ParseError::UnknownSyndrome(bytes[12]));
    }
    let pad = bytes[1] >> 4 & 3;
    let Some(len) = len_padded.checked_sub(pad.into()) else {
        return Some(ParseError::Padding { pad, len: len_padded });
    };
    (!permits(bytes[0], len)).then_some(ParseError::PayloadLen { opcode, len })
}

/// A refused request is answered only if there is one, with a queue pair to answer for.
fn check_error(error: ParseError, bytes: &[u8]) {
    if error.is_invalid_request() {
        assert!(peek(bytes).is_some(), "{error}");
    }
}

/// A packet with padding of zeros and an ICRC of zeros. Panics if the headers are not those of
/// their opcode.
pub fn assemble(headers: &Headers, payload: &[u8]) -> Vec<u8> {
    let mut bytes = [0; MAX_HEADERS];
    let len = write(headers, &mut bytes).expect("the headers of the opcode");
    let padding = [0; 3];
    let padding = &padding[..usize::from(headers.bth.pad)];
    [&bytes[..len], payload, padding, &[0; ICRC]].concat()
}
