//! RoCE v2 without I/O: the packets of RDMA over UDP, and the protocol of its queue pairs.
//!
//! | module | what |
//! |---|---|
//! | [`psn`] | packet sequence numbers, which wrap |
//! | [`opcode`] | what a packet is, and which headers and payload it has |
//! | [`headers`] | everything before the payload, as `Copy` values |
//! | [`codec`] | headers from bytes and to bytes |
//! | [`icrc`] | the CRC over packet, addresses and ports |
//! | [`lengths`] | how many bytes each part has, and the most |
//! | [`request`] | what a program asks of a send queue, and how it is cut into packets |
//! | [`requester`] | reliable connection: which packet goes next, which requests are complete |
//! | [`responder`] | reliable connection: what a request does, and what answers it |
//! | [`congestion`] | marks of the network, and the notifications that answer them |
//! | [`uc`] | both ends of an unreliable connection |
//! | [`ud`] | datagrams |
//!
//! Memory, keys, receive requests, sockets and the clock are the caller's. Nothing here does I/O,
//! allocates or sees a clock, and nothing panics, whatever the bytes are.
//!
//! # The drive loop
//!
//! At the receiver of UDP datagrams to port [`UDP_PORT`]:
//!
//! 1. [`codec::peek`] says for which queue pair a packet is: drop it if there is none.
//! 2. [`icrc::Flow::check`] with the flow of that queue pair's peer. Drop what fails.
//! 3. [`codec::parse`]; an error that [is an invalid
//!    request](codec::ParseError::is_invalid_request) is answered by a NAK, other packets are
//!    dropped.
//! 4. Headers and payload are for the [`requester`] if the opcode is a response or a
//!    [congestion notification](congestion), else for the [`responder`].
//! 5. If the IP header says that the packet met congestion, and it is no notification itself, ask the queue
//!    pair's [`NotificationPoint`](congestion::NotificationPoint) whether to answer with one.
//!
//! At the sender:
//!
//! 1. Take [`headers::Headers`] from a machine, or fill them in, with [`lengths::padding_of`] the
//!    payload in [`Bth::pad`](headers::Bth::pad).
//! 2. [`codec::write`] them into a buffer of [`lengths::MAX_HEADERS`].
//! 3. Compute the ICRC over the headers, each piece of the payload, and the padding
//!    ([`icrc::Icrc`]); or over the whole packet, if it lies in one buffer
//!    ([`icrc::Flow::seal`]).
//! 4. Send headers, payload, padding and ICRC as one datagram.
//!
//! **The contract: check the ICRC before you believe a packet, and believe it no further than
//! that: RoCE v2 has no authentication.**
//!
//! ```
//! use roce_core::{codec, headers::*, icrc::Flow, lengths::*, opcode::Opcode, psn::Psn};
//!
//! let flow = Flow::new("10.0.0.1:4791".parse()?, "10.0.0.2:4791".parse()?).ok_or("families")?;
//! let payload = b"hello";
//! let mut bth = Bth::new(Opcode::UcSendOnly, 17, Psn::new(0));
//! bth.pad = padding_of(payload.len());
//!
//! let mut packet = [0; BTH + 5 + 3 + ICRC];
//! let (start, rest) = packet.split_at_mut(BTH);
//! let mut headers = [0; MAX_HEADERS];
//! let len = codec::write(&Headers::new(bth), &mut headers)?;
//! start.copy_from_slice(&headers[..len]);
//! rest[..5].copy_from_slice(payload);
//! flow.seal(0, &mut packet)?;
//!
//! flow.check(0, &packet)?;
//! let received = codec::parse(&packet)?;
//! assert_eq!((received.headers.bth, received.payload), (bth, &payload[..]));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # What is not spoken
//!
//! Reliable datagrams, XRC, and FLUSH: their opcodes are unknown. IPv4 headers with options, and
//! IPv6 headers with extensions: the ICRC is computed as if there were none. It has been compared
//! with scapy's over IPv4; no card has been tried.
//!
//! # Features
//!
//! `std`: the CRC uses the processor's instructions if it finds them when the program runs.
//! Without, it uses those that the program is compiled for.
//!
//! `oracle` adds, with std, what the property tests and the fuzz targets compare with.
#![no_std]
#![forbid(unsafe_code)]
#![cfg_attr(not(test), deny(clippy::disallowed_methods, clippy::disallowed_types))]

#[cfg(any(test, feature = "oracle"))]
extern crate std;

pub mod codec;
pub mod congestion;
pub mod headers;
pub mod icrc;
pub mod lengths;
mod message;
pub mod opcode;
#[cfg(any(test, feature = "oracle"))]
pub mod oracle;
pub mod psn;
pub mod request;
pub mod requester;
pub mod responder;
pub mod uc;
pub mod ud;

/// The UDP port that RoCE v2 packets go to.
pub const UDP_PORT: u16 = 4791;
