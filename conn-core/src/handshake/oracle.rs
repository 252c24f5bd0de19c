//! Frames that own their contents, a naive encoder, and the properties of all byte strings.

use std::{string::String, vec, vec::Vec};

use arbitrary::Arbitrary;

use super::*;

/// One end of a direction: queue pair number, sequence number, window, longest message.
pub type EndpointNumbers = (u32, u32, u32, u32);

/// A frame, right or wrong, as a test makes it up.
#[derive(Arbitrary, Clone, Debug)]
pub enum FrameSample {
    /// Hello or Accept.
    Parameters {
        /// Accept, not Hello.
        accept: bool,
        /// Protocol number.
        protocol: u8,
        /// Option bits.
        options: u8,
        /// Initiator to acceptor, acceptor to initiator.
        ends: [Option<EndpointNumbers>; 2],
        /// LID.
        lid: u16,
        /// GID.
        gid: [u8; 16],
        /// Number of the path MTU; taken modulo 5.
        mtu: u8,
        /// Application data.
        application: Vec<u8>,
    },
    /// Refuse.
    Refuse(u16, String),
    /// Ready.
    Ready,
}

impl FrameSample {
    /// The frame.
    pub fn frame(&self) -> Frame<'_> {
        match self {
            Self::Parameters { accept, protocol, options, ends, lid, gid, mtu, application } => {
                let parameters = Parameters {
                    protocol: ProtocolId(*protocol),
                    options: Options(*options),
                    initiator_to_acceptor: ends[0].map(endpoint),
                    acceptor_to_initiator: ends[1].map(endpoint),
                    lid: *lid,
                    gid: *gid,
                    mtu: Mtu::from_code(mtu % 5 + 1).expect("1 to 5"),
                    application,
                };
                if *accept { Frame::Accept(parameters) } else { Frame::Hello(parameters) }
            }
            Self::Refuse(reason, text) => Frame::Refuse(Refusal { reason: Reason(*reason), text }),
            Self::Ready => Frame::Ready,
        }
    }

    /// The bytes, as the tables of the module's docs have them; `None` when some field
    /// exceeds its bounds.
    fn naive(&self) -> Option<Vec<u8>> {
        let (kind, body) = match self {
            Self::Parameters { accept, protocol, options, ends, lid, gid, mtu, application } => {
                let given = ends.iter().flatten().flat_map(|e| [e.0, e.1]);
                let flags = ends[0].is_some() as u8 + 2 * ends[1].is_some() as u8;
                if flags == 0 || application.len() > 512 || given.max() >= Some(1 << 24) {
                    return None;
                }
                let mut body = vec![*protocol, flags, mtu % 5 + 1, *options];
                body.extend(lid.to_le_bytes());
                body.extend((application.len() as u16).to_le_bytes());
                body.extend(gid);
                for e in ends.iter().flatten() {
                    body.extend([e.0, e.1, e.2, e.3].iter().flat_map(|n| n.to_le_bytes()));
                }
                body.extend(application);
                (1 + *accept as u8, body)
            }
            Self::Refuse(_, text) if text.len() > 255 => return None,
            Self::Refuse(reason, text) => {
                let mut body = reason.to_le_bytes().to_vec();
                body.extend([text.len() as u8, 0]);
                body.extend(text.as_bytes());
                (3, body)
            }
            Self::Ready => (4, Vec::new()),
        };
        let mut bytes = b"RDMACONN\x01\x00".to_vec();
        bytes.extend([kind, 0]);
        bytes.extend((body.len() as u32).to_le_bytes());
        bytes.extend(body);
        Some(bytes)
    }
}

fn endpoint((qp_num, psn, recv_depth, max_message): EndpointNumbers) -> Endpoint {
    Endpoint { qp_num, psn, recv_depth, max_message }
}

/// Encodes a frame with the machine and naively, and decodes it again, whole and in
/// parts. Panics when anything differs.
pub fn check_sample(sample: &FrameSample) {
    let mut out = vec![0xa5; MAX_FRAME];
    let (result, expected) = (sample.frame().encode(&mut out), sample.naive());
    let Some(expected) = expected else {
        assert!(result.is_err() && out.iter().all(|&b| b == 0xa5), "{result:?}");
        return;
    };
    assert_eq!(result, Ok(expected.len()));
    assert_eq!(out[..expected.len()], expected);
    let decoded = Decoded { frame: sample.frame(), consumed: expected.len() };
    assert_eq!(decode(&out), Ok(decoded), "bytes behind the frame are left alone");
    check_bytes(&expected);
    let (small, need) = (expected.len() - 1, expected.len());
    out.fill(0xa5);
    let refused = sample.frame().encode(&mut out[..small]);
    assert_eq!(refused, Err(EncodeError::BufferTooSmall { need }));
    assert!(out.iter().all(|&b| b == 0xa5), "a refused encode wrote something");
}

/// Decodes arbitrary bytes. Panics when the frame does not encode to the same bytes, when more
/// bytes would repair an error other than `Incomplete`, or when a part of a frame is refused.
pub fn check_bytes(bytes: &[u8]) {
    let whole = decode(bytes);
    match whole {
        Ok(Decoded { frame, consumed }) => {
            let mut again = [0; MAX_FRAME];
            assert_eq!(frame.encode(&mut again), Ok(consumed));
            assert_eq!(bytes[..consumed], again[..consumed], "two encodings of one frame");
        }
        Err(DecodeError::Incomplete { need }) => {
            assert!(need > bytes.len() && need <= MAX_FRAME, "{need}");
        }
        Err(_) => {}
    }
    check_parts(bytes, whole);
}

/// A reader that gets the bytes one by one reaches the same result: a shorter input is
/// incomplete, or has that result already.
fn check_parts(bytes: &[u8], whole: Result<Decoded<'_>, DecodeError>) {
    let mut asked = 0;
    for len in 0..bytes.len().min(MAX_FRAME) {
        match decode(&bytes[..len]) {
            Err(DecodeError::Incomplete { need }) => {
                assert!(need > len && need >= asked);
                asked = need;
            }
            verdict => return assert_eq!(verdict, whole, "after {len} bytes"),
        }
    }
}
