//! The set-up of rdma-core's `ibv_rc_pingpong`, so that the C program can be a peer.
//!
//! ```text
//!   client                     server
//!      | -- its destination ----> |   connects its queue pair
//!      | <- its destination ----- |
//!      | -- "done", NUL --------> |   and both close the stream
//!      | ===== messages ========> |   the client sends first, by SEND over RC
//! ```
//!
//! A destination is text, in hexadecimal: LID (4 digits), queue pair number (6), packet
//! sequence number (6) and GID (32), with colons in between and a NUL at the end. The
//! program reads it with one `read`, so it has to be written with one `write`.

#[cfg(any(test, feature = "oracle"))]
pub mod oracle;
#[cfg(test)]
mod tests;

/// Bytes of a destination with its NUL.
pub const MESSAGE_LEN: usize = 4 + 1 + 6 + 1 + 6 + 1 + 32 + 1;
/// Message that the client writes when it has read the server's destination.
pub const DONE: [u8; 5] = *b"done\0";
/// Default TCP port of the program.
pub const PORT: u16 = 18_515;

/// Offset of a field, and the number of its digits.
const LID: (usize, usize) = (0, 4);
const QP_NUM: (usize, usize) = (5, 6);
const PSN: (usize, usize) = (12, 6);
const GID: usize = 19;

/// Address of one end.
///
/// ```
/// use conn_core::rc_pingpong::{Destination, MESSAGE_LEN};
///
/// let text = b"0000:000011:7c5a01:00000000000000000000ffff0a090001\0";
/// let destination = Destination::decode(text)?;
/// assert_eq!((destination.qp_num, destination.psn), (0x11, 0x7c_5a01));
/// assert_eq!(destination.gid[12..], [10, 9, 0, 1]);
/// assert_eq!(destination.encode()?, *text);
/// assert!(Destination::decode(b"GET / HTTP/1.1").is_err());
/// # Ok::<(), conn_core::rc_pingpong::DecodeError>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Destination {
    /// LID of the port; 0 on Ethernet.
    pub lid: u16,
    /// Queue pair number, 24 bits.
    pub qp_num: u32,
    /// First packet sequence number, 24 bits.
    pub psn: u32,
    /// GID, in network order; all 0 where none is used.
    pub gid: [u8; 16],
}

/// Bytes that are no destination, or numbers that none has.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum DecodeError {
    /// The beginning of one: read on until there are [`MESSAGE_LEN`] bytes. The only
    /// variant that is no error of the peer.
    #[error("a destination has {len} bytes", len = MESSAGE_LEN)]
    Incomplete,
    /// A byte that no destination has there: something else has connected.
    #[error("the other end is no ibv_rc_pingpong (byte {at} of its message)")]
    NotAPeer {
        /// The position of the byte.
        at: usize,
    },
    /// A queue pair number or packet sequence number has more than 24 bits.
    #[error("{value:#x} is no 24-bit queue pair number or sequence number")]
    MoreThan24Bits {
        /// The number.
        value: u32,
    },
}

impl Destination {
    /// The message that tells it.
    ///
    /// # Errors
    /// [`DecodeError::MoreThan24Bits`]: the program's fields are that wide.
    pub fn encode(&self) -> Result<[u8; MESSAGE_LEN], DecodeError> {
        if let Some(&value) = [self.qp_num, self.psn].iter().find(|n| **n >= 1 << 24) {
            return Err(DecodeError::MoreThan24Bits { value });
        }
        let mut out = [b':'; MESSAGE_LEN];
        put(&mut out, LID, self.lid.into());
        put(&mut out, QP_NUM, self.qp_num);
        put(&mut out, PSN, self.psn);
        for (i, byte) in self.gid.iter().enumerate() {
            put(&mut out, (GID + 2 * i, 2), (*byte).into());
        }
        out[MESSAGE_LEN - 1] = 0;
        Ok(out)
    }

    /// Decodes the message at the beginning of `input`. The bytes received are checked even if
    /// the rest has not arrived yet.
    ///
    /// # Errors
    /// [`DecodeError::Incomplete`] or [`DecodeError::NotAPeer`].
    pub fn decode(input: &[u8]) -> Result<Destination, DecodeError> {
        if let Some(at) = input.iter().zip(0..MESSAGE_LEN).position(|(b, at)| !fits(*b, at)) {
            return Err(DecodeError::NotAPeer { at });
        }
        let message: &[u8; MESSAGE_LEN] = input.first_chunk().ok_or(DecodeError::Incomplete)?;
        let mut gid = [0; 16];
        for (i, byte) in gid.iter_mut().enumerate() {
            *byte = number(message, (GID + 2 * i, 2)) as u8;
        }
        Ok(Destination {
            lid: number(message, LID) as u16,
            qp_num: number(message, QP_NUM),
            psn: number(message, PSN),
            gid,
        })
    }
}

/// Reports whether a destination can have this byte at this position.
fn fits(byte: u8, at: usize) -> bool {
    match at {
        4 | 11 | 18 => byte == b':',
        _ if at == MESSAGE_LEN - 1 => byte == 0,
        _ => byte.is_ascii_hexdigit(),
    }
}

fn put(out: &mut [u8; MESSAGE_LEN], (at, digits): (usize, usize), value: u32) {
    for (i, byte) in out[at..at + digits].iter_mut().enumerate() {
        *byte = b"0123456789abcdef"[(value >> (4 * (digits - 1 - i)) & 15) as usize];
    }
}

/// The value of digits that were checked to be some.
fn number(message: &[u8; MESSAGE_LEN], (at, digits): (usize, usize)) -> u32 {
    let digit = |byte: &u8| char::from(*byte).to_digit(16).unwrap_or(0);
    message[at..at + digits].iter().fold(0, |value, byte| value << 4 | digit(byte))
}
