//! An ideal connection: each request is executed when it is posted.

use std::collections::VecDeque;
use std::{vec, vec::Vec};

use super::MEMORY;
use super::host::BASE;
use crate::request::{Operation, Request};
use crate::responder::ReceiveDone;

/// Bytes that a request has stored.
#[derive(Clone, Debug)]
struct StoredBytes {
    by: u64,
    at: usize,
    bytes: Vec<u8>,
}

#[derive(Clone, Debug)]
pub(super) struct ConnectionModel {
    /// The memory now.
    pub(super) memory: Vec<u8>,
    /// All that was stored, the oldest first.
    stores: Vec<StoredBytes>,
    /// Receive requests that are to complete.
    receives: VecDeque<(ReceiveDone, Vec<u8>)>,
    /// Requests that were fenced.
    fences: Vec<u64>,
    /// Bytes of WRITEs and SENDs, and how many atomics are executed.
    pub(super) stored: u64,
    pub(super) atomics: u64,
}

/// Returns the offset in the memory at which a request begins.
fn place(request: &Request) -> usize {
    request.remote_addr.wrapping_sub(BASE) as usize
}

impl ConnectionModel {
    pub(super) fn new() -> Self {
        Self {
            memory: vec![0; MEMORY],
            stores: Vec::new(),
            receives: VecDeque::new(),
            fences: Vec::new(),
            stored: 0,
            atomics: 0,
        }
    }

    /// Executes a request with its data, and returns what an atomic finds.
    pub(super) fn execute(&mut self, index: u64, request: &Request, data: &[u8]) -> Option<u64> {
        if request.is_fenced {
            self.fences.push(index);
        }
        if request.kind.takes_receive() {
            self.receive(request, data);
        }
        match request.kind {
            Operation::Write | Operation::WriteImm(_) | Operation::AtomicWrite => {
                self.store(index, place(request), data);
            }
            Operation::CmpSwap { .. } | Operation::FetchAdd { .. } => {
                return Some(self.atomic(index, place(request), request.kind));
            }
            Operation::Send | Operation::SendImm(_) | Operation::SendInv(_) | Operation::Read => {}
        }
        if request.kind != Operation::Read {
            self.stored += data.len() as u64;
        }
        None
    }

    fn store(&mut self, by: u64, at: usize, bytes: &[u8]) {
        self.memory[at..at + bytes.len()].copy_from_slice(bytes);
        self.stores.push(StoredBytes { by, at, bytes: bytes.to_vec() });
    }

    fn atomic(&mut self, index: u64, at: usize, kind: Operation) -> u64 {
        let word = self.memory[at..at + 8].try_into().expect("eight bytes");
        let before = u64::from_le_bytes(word);
        let after = match kind {
            Operation::CmpSwap { compare, swap } if compare == before => swap,
            Operation::FetchAdd { add } => before.wrapping_add(add),
            _ => before,
        };
        self.store(index, at, &after.to_le_bytes());
        self.atomics += 1;
        before
    }

    fn receive(&mut self, request: &Request, data: &[u8]) {
        let is_write = matches!(request.kind, Operation::WriteImm(_));
        let imm = match request.kind {
            Operation::SendImm(imm) | Operation::WriteImm(imm) => Some(imm),
            _ => None,
        };
        let invalidated = match request.kind {
            Operation::SendInv(rkey) => Some(rkey),
            _ => None,
        };
        let (length, is_solicited) = (request.length, request.is_solicited);
        let done = ReceiveDone { length, imm, invalidated, is_solicited, is_write };
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

    /// Returns the bytes that a READ would read now.
    pub(super) fn snapshot(&self, request: &Request) -> Vec<u8> {
        self.memory[place(request)..][..request.length as usize].to_vec()
    }

    /// Reports whether a READ may have found these bytes: each is the one of its `snapshot`, or one
    /// that was stored between it and the next request that is fenced.
    pub(super) fn may_read(
        &self,
        index: u64,
        request: &Request,
        snapshot: &[u8],
        found: &[u8],
    ) -> bool {
        let fence = self.fences.iter().copied().find(|fence| *fence > index).unwrap_or(u64::MAX);
        let later: Vec<_> =
            self.stores.iter().filter(|store| store.by > index && store.by < fence).collect();
        found.iter().zip(snapshot).enumerate().all(|(offset, (found, before))| {
            let at = place(request) + offset;
            let stored = |store: &&StoredBytes| {
                at.checked_sub(store.at).and_then(|at| store.bytes.get(at)) == Some(found)
            };
            found == before || later.iter().any(stored)
        })
    }
}
