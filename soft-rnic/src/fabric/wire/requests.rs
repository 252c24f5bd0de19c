//! Requests as the protocol has them, and pieces of their memory.

use roce_core::request::{Operation, Outgoing, Request};

use crate::copy::sum;
use crate::engine::responder::place::behind;
use crate::memory::on_demand;
use crate::memory::span::{MemSpan, Spans, copy_summed};
use crate::queues::wqe::{SqOp, Wqe, WqeRef};
use crate::reason::WcReason;

/// A request, as the protocol has it, if it has such ones.
pub(super) fn request_of(request: &WqeRef<'_>) -> Option<Request> {
    let (wqe, len) = (request.wqe, request.len() as u32);
    let mut asked = Request::new(kind_of(wqe)?, len, wqe.remote_addr, wqe.rkey);
    asked.is_signaled = wqe.signaled;
    (asked.is_solicited, asked.is_fenced) = (wqe.solicited, wqe.fence);
    Some(asked)
}

fn kind_of(wqe: &Wqe) -> Option<Operation> {
    let imm = wqe.imm.map(u32::from_be);
    Some(match (wqe.op, imm) {
        (SqOp::Send, _) if wqe.invalidates => Operation::SendInv(wqe.imm.unwrap_or(0)),
        (SqOp::Send, None) => Operation::Send,
        (SqOp::Send, Some(imm)) => Operation::SendImm(imm),
        (SqOp::Write, None) => Operation::Write,
        (SqOp::Write, Some(imm)) => Operation::WriteImm(imm),
        (SqOp::Read, _) => Operation::Read,
        (SqOp::CompareSwap, _) => Operation::CmpSwap { compare: wqe.compare_add, swap: wqe.swap },
        (SqOp::FetchAdd, _) => Operation::FetchAdd { add: wqe.compare_add },
        (SqOp::AtomicWrite, _) => Operation::AtomicWrite,
        (SqOp::BindMw | SqOp::LocalInv, _) => return None,
    })
}

/// A payload, which is only read.
pub(super) fn span_of(payload: &[u8]) -> MemSpan<'_> {
    // SAFETY: it is borrowed as long, and nothing writes to it.
    unsafe { MemSpan::private(payload.as_ptr().cast_mut(), payload.len()) }
}

/// Copies the payload of a packet out of the memory of its request, if that is still there. The
/// CRC-32 behind it.
///
/// # Safety
/// The list was checked, and the lock of the send queue is held since; programs access it
/// atomically only.
pub(super) unsafe fn copy_payload(
    local: &Spans<'_>,
    packet: &Outgoing,
    (to, crc): (&mut [u8], u32),
) -> Result<u32, WcReason> {
    let from = behind(local.as_slice(), packet.offset as usize);
    if local.on_demand {
        // SAFETY: `local` was checked, and the lock of the send queue is held since: this
        // function's contract (see # Safety), as that programs access it atomically only. `to` is
        // borrowed.
        unsafe { on_demand::copy_pieces(core::iter::once(MemSpan::from_slice(to)), from) }
            .map_err(|_gone| WcReason::LocalGone)?;
        return Ok(sum(to, crc));
    }
    // SAFETY: `local` was checked, and the lock of the send queue, for which deregistration waits,
    // is held since: this function's contract (see # Safety). Programs access it atomically only.
    Ok(unsafe { copy_summed(to, from, crc) })
}
