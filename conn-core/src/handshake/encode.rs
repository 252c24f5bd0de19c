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
        let Some(out) = out.get_mut(..need) else {
            return Err(EncodeError::BufferTooSmall { need });
        };
        let mut writer = BodyWriter(out);
        writer.put(MAGIC);
        writer.put(VERSION.to_le_bytes());
        writer.put([self.kind(), 0]);
        writer.put((body as u32).to_le_bytes());
        match self {
            Self::Hello(parameters) | Self::Accept(parameters) => writer.parameters(parameters),
            Self::Refuse(refusal) => writer.refusal(refusal),
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
    for value in endpoints(parameters).flat_map(|end| [end.qp_num, end.psn]) {
        if value > BITS_24 {
            return Err(EncodeError::MoreThan24Bits { value });
        }
    }
    if len > MAX_APPLICATION {
        return Err(EncodeError::ApplicationTooLong { len });
    }
    Ok(PARAMETERS_LEN + directions * ENDPOINT_LEN + len)
}

/// Appends to a buffer whose length has been checked.
struct BodyWriter<'a>(&'a mut [u8]);

impl BodyWriter<'_> {
    fn put<const N: usize>(&mut self, bytes: [u8; N]) {
        self.slice(&bytes);
    }

    fn slice(&mut self, bytes: &[u8]) {
        let (head, tail) = core::mem::take(&mut self.0).split_at_mut(bytes.len());
        head.copy_from_slice(bytes);
        self.0 = tail;
    }

    fn parameters(&mut self, parameters: &Parameters<'_>) {
        let Parameters { protocol, options, mtu, .. } = parameters;
        self.put([protocol.0, parameters.flags(), mtu.code(), options.0]);
        self.put(parameters.lid.to_le_bytes());
        self.put((parameters.application.len() as u16).to_le_bytes());
        self.put(parameters.gid);
        for end in endpoints(parameters) {
            for field in [end.qp_num, end.psn, end.recv_depth, end.max_message] {
                self.put(field.to_le_bytes());
            }
        }
        self.slice(parameters.application);
    }

    fn refusal(&mut self, refusal: &Refusal<'_>) {
        self.put(refusal.reason.0.to_le_bytes());
        self.put([refusal.text.len() as u8, 0]);
        self.slice(refusal.text.as_bytes());
    }
}
