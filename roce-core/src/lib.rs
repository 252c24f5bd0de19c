//! RoCE v2 without I/O: the packets of RDMA over UDP, as values.
#![no_std]
#![forbid(unsafe_code)]

#[cfg(any(test, feature = "oracle"))]
extern crate std;

pub mod codec;
pub mod headers;
pub mod opcode;
#[cfg(any(test, feature = "oracle"))]
pub mod oracle;
pub mod psn;
pub mod request;
pub mod requester;
pub mod responder;
