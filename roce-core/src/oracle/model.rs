//! What an ideal connection does: each request is executed when it is posted.

use std::collections::VecDeque;
use std::{vec, vec::Vec};

use super::MEMORY;
use super::host::BASE;
use crate::request::{Kind, Request};
use crate::responder::ReceiveDone;

/// A byte's value, and the request that has stored it.
type Version = (u64, u8);

#[derive(Clone, Debug)]
pub(super) struct Model {
    /// All values of each byte, the oldest first.
    memory: Vec<Vec<Version>>,
    /// Receive requests that are to complete.
    receives: VecDeque<(ReceiveDone, Vec<u8>)>,
    /// Requests that were fenced.
    fences: Vec<u64>,
    /// What is stored, and how many atomics are executed.
    pub(super) stored: u64,
    pub(super) atomics: u64,
}

impl Model {
    pub(super) fn new() -> Self {
        Self {
            memory: vec![vec![(0, 0)]; MEMORY],
            receives: VecDeque::new(),
            fences: Vec::new(),
            stored: 0,
            atomics: 0,
        }
    }

    /// The value of a byte now.
    fn now(&self, at: usize) -> u8 {
        self.memory[at].last().expect("the first value").1
    }

    pub(super) fn memory(&self) -> Vec<u8> {
        (0..MEMORY).map(|at| self.now(at)).collect()
    }

    /// Executes a request with its data, and returns what an atomic finds.
    pub(super) fn execute(&mut self, index: u64, request: &Request, data: &[u8]) -> Option<u64> {
        let at = request.remote_addr.wrapping_sub(BASE) as usize;
        if request.is_fenced {
            self.fences.push(index);
        }
        if request.kind.takes_receive() {
            self.receive(request, data);
        }
        match request.kind {
            Kind::Write | Kind::WriteImm(_) => self.store(index, at, data),
            Kind::CmpSwap { .. } | Kind::FetchAdd { .. } => {
                return Some(self.atomic(index, at, request.kind));
            }
            Kind::Send | Kind::SendImm(_) | Kind::SendInv(_) => self.stored += data.len() as u64,
            Kind::Read => {}
        }
        None
    }

    fn store(&mut self, index: u64, at: usize, data: &[u8]) {
        self.stored += data.len() as u64;
        for (byte, value) in self.memory[at..].iter_mut().zip(data) {
            byte.push((index, *value));
        }
    }

    fn atomic(&mut self, index: u64, at: usize, kind: Kind) -> u64 {
        let bytes: [u8; 8] = core::array::from_fn(|byte| self.now(at + byte));
        let before = u64::from_le_bytes(bytes);
        let after = match kind {
            Kind::CmpSwap { compare, swap } if compare == before => swap,
            Kind::FetchAdd { add } => before.wrapping_add(add),
            _ => before,
        };
        let values = after.to_le_bytes();
        for (byte, value) in self.memory[at..].iter_mut().zip(values) {
            byte.push((index, value));
        }
        self.atomics += 1;
        before
    }

    fn receive(&mut self, request: &Request, data: &[u8]) {
        let is_write = matches!(request.kind, Kind::WriteImm(_));
        let done = ReceiveDone {
            length: request.length,
            imm: match request.kind {
                Kind::SendImm(imm) | Kind::WriteImm(imm) => Some(imm),
                _ => None,
            },
            invalidated: match request.kind {
                Kind::SendInv(rkey) => Some(rkey),
                _ => None,
            },
            is_solicited: request.is_solicited,
            is_write,
        };
        let bytes = if is_write { Vec::new() } else { data.to_vec() };
        self.receives.push_back((done, bytes));
    }

    /// The next receive request that completes.
    pub(super) fn next_receive(&mut self) -> Option<(ReceiveDone, Vec<u8>)> {
        self.receives.pop_front()
    }

    pub(super) fn has_receives(&self) -> bool {
        !self.receives.is_empty()
    }

    /// Whether a READ may have found these bytes: each is the value before it, or one of a request
    /// between it and the next one that is fenced.
    pub(super) fn may_read(&self, index: u64, request: &Request, found: &[u8]) -> bool {
        let at = request.remote_addr.wrapping_sub(BASE) as usize;
        let fence = self.fences.iter().copied().find(|fence| *fence > index).unwrap_or(u64::MAX);
        self.memory[at..].iter().zip(found).all(|(versions, found)| {
            let newest = versions.iter().rposition(|(by, _)| *by < index).unwrap_or(0);
            let possible = versions[newest..].iter().take_while(|(by, _)| *by < fence);
            possible.into_iter().any(|(_, value)| value == found)
        })
    }
}
