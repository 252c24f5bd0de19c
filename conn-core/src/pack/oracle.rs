//! The operations of a [`Packer`], a naive model of it, and a naive parser beside
//! [`Unpacker`].

use std::{vec, vec::Vec};

use arbitrary::Arbitrary;

use super::*;
use crate::exhaustive::CheckedMachine;

/// An operation on a packer.
#[derive(Arbitrary, Clone, Copy, Debug)]
pub enum PackerOp {
    /// A payload of this number of bytes is copied in.
    Push(u8),
    /// A payload of this number of bytes is filled in place.
    Reserve(u8),
    /// The message is sent and a new one begun.
    Reset,
}

/// The packer, its buffer, and the payloads that it should hold.
#[derive(Clone, Debug)]
pub struct CheckedPacker {
    machine: Packer,
    buf: Vec<u8>,
    model: Vec<Vec<u8>>,
    pushes: u8,
}

impl CheckedPacker {
    /// Both, at the start, with a buffer that is not clean.
    pub fn new(capacity: u32) -> Self {
        let buf = vec![0xa5; capacity as usize];
        Self { machine: Packer::new(capacity), buf, model: Vec::new(), pushes: 0 }
    }

    /// The message as the format's description has it.
    fn naive(payloads: &[Vec<u8>]) -> Vec<u8> {
        let mut bytes = Vec::new();
        for payload in payloads {
            while bytes.len() % 4 != 0 {
                bytes.push(0);
            }
            bytes.extend((payload.len() as u32).to_le_bytes());
            bytes.extend(payload);
        }
        bytes
    }

    fn add(&mut self, len: u8, in_place: bool) {
        self.pushes = self.pushes.wrapping_add(1);
        let payload = vec![self.pushes; len.into()];
        let mut wanted = self.model.clone();
        wanted.push(payload.clone());
        let fits = Self::naive(&wanted).len() <= self.buf.len();
        assert_eq!(self.machine.fits(payload.len()), fits);
        let (before, bytes) = (self.machine.clone(), self.buf.clone());
        let result = if in_place {
            self.machine
                .reserve(&mut self.buf, payload.len())
                .map(|to| to.copy_from_slice(&payload))
        } else {
            self.machine.push(&mut self.buf, &payload)
        };
        assert_eq!(result.is_ok(), fits);
        match result {
            Ok(()) => self.model = wanted,
            Err(full) => {
                assert_eq!(full.largest, before.largest());
                assert!(full.largest.is_none_or(|largest| largest < len.into()));
                assert_eq!((&self.machine, &self.buf), (&before, &bytes), "a refused push");
            }
        }
    }
}

impl CheckedMachine for CheckedPacker {
    type Op = PackerOp;

    fn apply(&mut self, op: PackerOp) {
        match op {
            PackerOp::Push(len) => self.add(len, false),
            PackerOp::Reserve(len) => self.add(len, true),
            PackerOp::Reset => {
                self.machine.reset();
                self.model.clear();
            }
        }
        assert_eq!(self.machine.count() as usize, self.model.len());
        assert_eq!(self.machine.is_empty(), self.model.is_empty());
        let sent = &self.buf[..self.machine.len() as usize];
        assert_eq!(sent, Self::naive(&self.model));
        if sent.is_empty() {
            return;
        }
        let found = check_unpack(sent).expect("what was packed unpacks");
        assert!(found.iter().map(|span| &sent[span.range()]).eq(&self.model));
    }
}

/// Unpacks `message` with the machine and naively, panics when they differ, and
/// returns the records, or the error after the good ones.
///
/// # Errors
/// As [`Unpacker::next`].
pub fn check_unpack(message: &[u8]) -> Result<Vec<Span>, UnpackError> {
    let mut unpacker = Unpacker::new(message.len() as u32);
    let (mut found, expected) = (Vec::new(), naive_unpack(message));
    let end = loop {
        match unpacker.next(message) {
            Ok(Some(span)) => found.push(span),
            Ok(None) => break None,
            Err(error) => {
                assert_eq!(unpacker.next(message), Err(error), "an error stays");
                break Some(error);
            }
        }
    };
    assert_eq!((&found, end), (&expected.0, expected.1));
    end.map_or(Ok(found), Err)
}

fn naive_unpack(message: &[u8]) -> (Vec<Span>, Option<UnpackError>) {
    let (mut spans, mut at) = (Vec::new(), 0);
    if message.is_empty() {
        return (spans, Some(UnpackError::Empty));
    }
    while at < message.len() {
        while at % 4 != 0 {
            at += 1;
        }
        if at + 4 > message.len() {
            return (spans, Some(UnpackError::Truncated { offset: at as u32 }));
        }
        let length = |i: usize| u64::from(message[at + i]) << (8 * i);
        let claimed = (0..4).map(length).sum::<u64>();
        let left = (message.len() - at - 4) as u64;
        if claimed > left {
            let (claimed, left) = (claimed as u32, left as u32);
            return (spans, Some(UnpackError::TooLong { claimed, left }));
        }
        spans.push(Span { offset: at as u32 + 4, len: claimed as u32 });
        at += 4 + claimed as usize;
    }
    (spans, None)
}
