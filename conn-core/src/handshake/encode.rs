//! Frames to bytes.

use super::*;

/// A frame that cannot be encoded.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum EncodeError {
    /// The output has too little room.
    #[error("the frame needs {need} bytes")]
    BufferTooSmall {
        /// Bytes that the frame has.
        need: usize,
    },
    /// Neither direction exists.
    #[error("a connection without a direction")]
    NoDirection,
    /// A queue pair number or packet sequence number has more than 24 bits.
    #[error("{value:#x} is no 24-bit queue pair number or sequence number")]
    MoreThan24Bits {
        /// The number.
        value: u32,
    },
    /// More than [`MAX_APPLICATION`] bytes of application data.
    #[error("{len} bytes of application data; at most {max} fit", max = MAX_APPLICATION)]
    ApplicationTooLong {
        /// Bytes given.
        len: usize,
    },
    /// A text of more than [`MAX_TEXT`] bytes.
    #[error("a refusal of {len} bytes; at most {max} fit", max = MAX_TEXT)]
    TextTooLong {
        /// Bytes given.
        len: usize,
    },
}

impl Frame<'_> {
    /// Writes the frame to the beginning of `out` and returns its length.
    /// [`MAX_FRAME`] bytes are always enough.
    ///
    /// # Errors
    /// [`EncodeError`]; `out` is then as it was.
    pub fn encode(&self, out: &mut [u8]) -> Result<usize, EncodeError> {
        let body = self.body_len()?;
        let need = HEADER_LEN + body;
        let mut out = out.get_mut(..need).ok_or(EncodeError::BufferTooSmall { need })?;
        let header: Header = (MAGIC, VERSION, self.kind(), 0, body as u32);
        header.put(&mut out);
        match self {
            Self::Hello(parameters) | Self::Accept(parameters) => put_parameters(parameters, out),
            Self::Refuse(refusal) => put_refusal(refusal, out),
            Self::Ready => {}
        }
        Ok(need)
    }

    /// The length of the body, when everything in it can be encoded.
    fn body_len(&self) -> Result<usize, EncodeError> {
        match self {
            Self::Hello(parameters) | Self::Accept(parameters) => parameters_len(parameters),
            Self::Refuse(Refusal { text, .. }) if text.len() > MAX_TEXT => {
                Err(EncodeError::TextTooLong { len: text.len() })
            }
            Self::Refuse(refusal) => Ok(REFUSAL_LEN + refusal.text.len()),
            Self::Ready => Ok(0),
        }
    }
}

fn endpoints<'a>(parameters: &'a Parameters<'_>) -> impl Iterator<Item = &'a Endpoint> {
    parameters.initiator_to_acceptor.iter().chain(&parameters.acceptor_to_initiator)
}

fn parameters_len(parameters: &Parameters<'_>) -> Result<usize, EncodeError> {
    let (directions, len) = (endpoints(parameters).count(), parameters.application.len());
    if directions == 0 {
        return Err(EncodeError::NoDirection);
    }
    if let Some(value) = endpoints(parameters).find_map(Endpoint::more_than_24_bits) {
        return Err(EncodeError::MoreThan24Bits { value });
    }
    if len > MAX_APPLICATION {
        return Err(EncodeError::ApplicationTooLong { len });
    }
    Ok(PARAMETERS_LEN + directions * ENDPOINT_LEN + len)
}

/// Fills `out`, the body of Hello or Accept.
fn put_parameters(parameters: &Parameters<'_>, mut out: &mut [u8]) {
    let Parameters { protocol, options, mtu, lid, gid, application, .. } = *parameters;
    let (flags, len) = (parameters.flags(), application.len() as u16);
    let fields: ParameterFields = (protocol.0, flags, mtu.code(), options.0, lid, len, gid);
    fields.put(&mut out);
    endpoints(parameters).for_each(|end| end.put(&mut out));
    out.copy_from_slice(application);
}

/// Fills `out`, the body of Refuse.
fn put_refusal(refusal: &Refusal<'_>, mut out: &mut [u8]) {
    let fields: RefusalFields = (refusal.reason.0, refusal.text.len() as u8, 0);
    fields.put(&mut out);
    out.copy_from_slice(refusal.text.as_bytes());
}
