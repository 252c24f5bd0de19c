//! Bytes to frames. For any bytes: no panic, no allocation, no trust.

use super::*;

/// Bytes that are no frame, or not yet.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum DecodeError {
    /// The beginning of a frame: read on until there are `need` bytes in all, then
    /// decode again. The only variant that is no error of the peer.
    #[error("the frame has {need} bytes, not all are here")]
    Incomplete {
        /// Bytes from the start of the frame. First the header's, then the frame's.
        need: usize,
    },
    /// The magic is wrong: something else has connected.
    #[error("the other end does not speak this handshake")]
    NotAPeer,
    /// The peer speaks another version.
    #[error("the peer speaks version {theirs} of the handshake, this is {ours}", ours = VERSION)]
    Version {
        /// The peer's.
        theirs: u16,
    },
    /// An unknown kind of frame.
    #[error("unknown handshake frame {0}")]
    Kind(u8),
    /// A byte that must be 0 is not.
    #[error("a reserved byte of the handshake is not 0")]
    Reserved,
    /// The body's length does not fit the kind and its contents, or exceeds [`MAX_BODY`].
    #[error("a handshake body of {len} bytes is wrong")]
    BodyLength {
        /// Length in the header.
        len: u32,
    },
    /// No direction exists, or one that this version does not know.
    #[error("unknown set of directions {0:#04x}")]
    Flags(u8),
    /// An unknown path MTU.
    #[error("unknown path MTU {0}")]
    Mtu(u8),
    /// A queue pair number or packet sequence number has more than 24 bits.
    #[error("{value:#x} is no 24-bit queue pair number or sequence number")]
    MoreThan24Bits {
        /// The number.
        value: u32,
    },
    /// More than [`MAX_APPLICATION`] bytes of application data.
    #[error("{len} bytes of application data; at most {max} may be", max = MAX_APPLICATION)]
    ApplicationTooLong {
        /// Length in the frame.
        len: u16,
    },
    /// The text of a refusal is not UTF-8.
    #[error("the text of the refusal is not UTF-8")]
    Text,
}

impl DecodeError {
    /// Reports whether more bytes may complete the frame.
    pub const fn is_incomplete(&self) -> bool {
        matches!(self, Self::Incomplete { .. })
    }
}

/// A frame, and how many bytes it took.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Decoded<'a> {
    /// The frame; its texts lie in the input.
    pub frame: Frame<'a>,
    /// The bytes of the input that it took; the next frame follows.
    pub consumed: usize,
}

/// Decodes the frame at the beginning of `input`. Bytes behind it are left alone.
///
/// # Errors
/// [`DecodeError::Incomplete`] when the frame is longer than the input. Any other error stays with
/// more bytes.
pub fn decode(input: &[u8]) -> Result<Decoded<'_>, DecodeError> {
    let (kind, len) = header(input)?;
    let consumed = HEADER_LEN + len as usize;
    let Some(bytes) = input.get(HEADER_LEN..consumed) else {
        return Err(DecodeError::Incomplete { need: consumed });
    };
    let mut body = BodyReader { bytes, len };
    let frame = match kind {
        HELLO => Frame::Hello(body.parameters()?),
        ACCEPT => Frame::Accept(body.parameters()?),
        REFUSE => Frame::Refuse(body.refusal()?),
        _ => Frame::Ready,
    };
    body.end()?;
    Ok(Decoded { frame, consumed })
}

/// Kind and body length. Each field is judged as soon as its bytes are there.
fn header(input: &[u8]) -> Result<(u8, u32), DecodeError> {
    if !input.iter().zip(&MAGIC).all(|(a, b)| a == b) {
        return Err(DecodeError::NotAPeer);
    }
    if let Some(theirs) = bytes_at(input, 8).map(u16::from_le_bytes)
        && theirs != VERSION
    {
        return Err(DecodeError::Version { theirs });
    }
    if let Some(&kind) = input.get(10)
        && !(HELLO..=READY).contains(&kind)
    {
        return Err(DecodeError::Kind(kind));
    }
    if input.get(11).is_some_and(|&zero| zero != 0) {
        return Err(DecodeError::Reserved);
    }
    let Some(len) = bytes_at(input, 12).map(u32::from_le_bytes) else {
        return Err(DecodeError::Incomplete { need: HEADER_LEN });
    };
    if !possible_lengths(input[10]).contains(&len) {
        return Err(DecodeError::BodyLength { len });
    }
    Ok((input[10], len))
}

fn bytes_at<const N: usize>(input: &[u8], at: usize) -> Option<[u8; N]> {
    input.get(at..)?.first_chunk().copied()
}

/// The body lengths that a kind of frame can have: the reader waits for no more bytes.
fn possible_lengths(kind: u8) -> core::ops::RangeInclusive<u32> {
    let (least, most) = match kind {
        HELLO | ACCEPT => {
            (PARAMETERS_LEN + ENDPOINT_LEN, PARAMETERS_LEN + 2 * ENDPOINT_LEN + MAX_APPLICATION)
        }
        REFUSE => (REFUSAL_LEN, REFUSAL_LEN + MAX_TEXT),
        _ => (0, 0),
    };
    least as u32..=most as u32
}

const _: () = assert!(PARAMETERS_LEN + 2 * ENDPOINT_LEN + MAX_APPLICATION <= MAX_BODY);

/// The rest of a body, and the length that its header gave.
struct BodyReader<'a> {
    bytes: &'a [u8],
    len: u32,
}

impl<'a> BodyReader<'a> {
    fn slice(&mut self, len: usize) -> Result<&'a [u8], DecodeError> {
        let wrong = DecodeError::BodyLength { len: self.len };
        let (head, tail) = self.bytes.split_at_checked(len).ok_or(wrong)?;
        self.bytes = tail;
        Ok(head)
    }

    fn take<T: Wire>(&mut self) -> Result<T, DecodeError> {
        T::take(&mut self.bytes).ok_or(DecodeError::BodyLength { len: self.len })
    }

    fn end(&self) -> Result<(), DecodeError> {
        if self.bytes.is_empty() { Ok(()) } else { Err(DecodeError::BodyLength { len: self.len }) }
    }

    fn parameters(&mut self) -> Result<Parameters<'a>, DecodeError> {
        let fields: ParameterFields = self.take()?;
        let (protocol, flags, mtu, options, lid, len, gid) = fields;
        if !(1..=3).contains(&flags) {
            return Err(DecodeError::Flags(flags));
        }
        let mtu = Mtu::from_code(mtu).ok_or(DecodeError::Mtu(mtu))?;
        if usize::from(len) > MAX_APPLICATION {
            return Err(DecodeError::ApplicationTooLong { len });
        }
        Ok(Parameters {
            protocol: ProtocolId(protocol),
            options: Options(options),
            lid,
            gid,
            mtu,
            initiator_to_acceptor: self.endpoint(flags & 1 != 0)?,
            acceptor_to_initiator: self.endpoint(flags & 2 != 0)?,
            application: self.slice(len.into())?,
        })
    }

    fn endpoint(&mut self, exists: bool) -> Result<Option<Endpoint>, DecodeError> {
        if !exists {
            return Ok(None);
        }
        let end: Endpoint = self.take()?;
        end.more_than_24_bits()
            .map_or(Ok(Some(end)), |value| Err(DecodeError::MoreThan24Bits { value }))
    }

    fn refusal(&mut self) -> Result<Refusal<'a>, DecodeError> {
        let (reason, len, zero): RefusalFields = self.take()?;
        if zero != 0 {
            return Err(DecodeError::Reserved);
        }
        let text = core::str::from_utf8(self.slice(len.into())?);
        Ok(Refusal { reason: Reason(reason), text: text.map_err(|_| DecodeError::Text)? })
    }
}
