//! The newer send interface: `ibv_wr_start`, a call for each request and one for its data, and
//! `ibv_wr_complete`, which posts all of them or none.
//!
//! As the manual page asks, a thread has the batch to itself from start to complete or abort:
//! others wait in their start. (A thread domain changes nothing about that: a lock that nobody
//! else wants costs one exchange for a batch.) What is wrong with a request is reported by
//! `ibv_wr_complete`; until then the calls have no result. Every function is there: those of
//! operations that the device or the queue pair does not have make the batch fail.

use core::ffi::{c_int, c_void};
use core::mem::ManuallyDrop;

use verbs_sys::*;

use crate::errno;
use crate::lock::Guard;
use crate::objects::in_arc::InArc;
use crate::objects::state::Qp;
use crate::queues::batch::WrBatch;
use crate::queues::qp_state::QpTransport;
use crate::verbs::post;

type Ops = ibv_qp_create_send_ops_flags;
type Ud = ibv_send_wr__bindgen_ty_2__bindgen_ty_3;
type Atomic = ibv_send_wr__bindgen_ty_2__bindgen_ty_2;
type Rdma = ibv_send_wr__bindgen_ty_2__bindgen_ty_1;
type Bind = ibv_send_wr__bindgen_ty_4__bindgen_ty_1;

/// Bytes of the data of `ibv_wr_atomic_write`.
pub(crate) const ATOMIC_WRITE_BYTES: u32 = 8;

/// Operations that queue pairs of a transport can be created for.
pub(crate) fn operations(transport: QpTransport) -> u64 {
    let sends = Ops::IBV_QP_EX_WITH_SEND | Ops::IBV_QP_EX_WITH_SEND_WITH_IMM;
    let writes = Ops::IBV_QP_EX_WITH_RDMA_WRITE | Ops::IBV_QP_EX_WITH_RDMA_WRITE_WITH_IMM;
    let responses = Ops::IBV_QP_EX_WITH_RDMA_READ
        | Ops::IBV_QP_EX_WITH_ATOMIC_CMP_AND_SWP
        | Ops::IBV_QP_EX_WITH_ATOMIC_FETCH_AND_ADD;
    let stores = Ops::IBV_QP_EX_WITH_ATOMIC_WRITE;
    let binds = Ops::IBV_QP_EX_WITH_BIND_MW | Ops::IBV_QP_EX_WITH_LOCAL_INV;
    let all = match transport {
        QpTransport::Rc => {
            sends | writes | responses | stores | binds | Ops::IBV_QP_EX_WITH_SEND_WITH_INV
        }
        QpTransport::XrcSend => sends | writes | responses | stores,
        QpTransport::Uc => sends | writes | binds,
        QpTransport::Ud => sends,
        QpTransport::XrcRecv => return 0,
    };
    all.0.into()
}

/// Fills in the functions.
pub(crate) fn fill(qp: &mut ibv_qp_ex) {
    fill! { qp;
        wr_start wr_complete wr_abort wr_send wr_send_imm wr_rdma_write wr_rdma_write_imm
        wr_rdma_read wr_atomic_cmp_swp wr_atomic_fetch_add wr_set_ud_addr wr_set_sge
        wr_set_sge_list wr_set_inline_data wr_set_inline_data_list wr_bind_mw wr_local_inv
        wr_send_inv wr_set_xrc_srqn wr_send_tso wr_atomic_write
    }
}

/// The queue pair and its batch, which the calling thread has started.
///
/// # Safety
/// `qp` is NULL or a live queue pair of ours. If its batch is started, the calling thread has
/// started it, and has no guard of it.
unsafe fn started<'a>(qp: *mut ibv_qp_ex) -> Option<(InArc<'a, Qp>, Guard<'a, WrBatch>)> {
    // SAFETY: `qp` is NULL or a live queue pair of ours (see # Safety).
    let qp = unsafe { Qp::from_abi(qp.cast()) }.ok()?;
    // SAFETY: the calling thread has started the batch, and `change` drops no guard of it (see #
    // Safety).
    let batch = unsafe { qp.object().batch.as_ref()?.resume() }?;
    Some((qp, batch))
}

/// Does something with the batch, which stays started.
///
/// # Safety
/// As [`started`].
unsafe fn change(qp: *mut ibv_qp_ex, change: impl FnOnce(&Qp, &mut WrBatch)) {
    // SAFETY: `qp` is NULL or a live queue pair of ours (see # Safety).
    if let Some((qp, batch)) = unsafe { started(qp) } {
        change(qp.object(), &mut ManuallyDrop::new(batch));
    }
}

unsafe extern "C" fn wr_start(qp: *mut ibv_qp_ex) {
    // SAFETY: NULL, or a queue pair of ours.
    let Ok(qp) = (unsafe { Qp::from_abi(qp.cast()) }) else { return };
    if let Some(batch) = &qp.object().batch {
        let mut batch = batch.lock();
        batch.clear();
        // Kept for this thread until `wr_complete` or `wr_abort`.
        core::mem::forget(batch);
    }
}

unsafe extern "C" fn wr_complete(qp: *mut ibv_qp_ex) -> c_int {
    // SAFETY: NULL, or a queue pair of ours.
    errno::code(unsafe { started(qp) }.ok_or(errno::EINVAL).and_then(|(qp, mut batch)| {
        // SAFETY: the list lies in the batch, which is the caller's until this returns.
        batch.link().and_then(|list| unsafe { post::post_whole(qp, list) })
    }))
}

unsafe extern "C" fn wr_abort(qp: *mut ibv_qp_ex) {
    // SAFETY: NULL, or a queue pair of ours.
    drop(unsafe { started(qp) });
}

/// Adds a request with what the program has put into the queue pair's struct.
///
/// # Safety
/// As [`started`].
unsafe fn add(
    abi: *mut ibv_qp_ex,
    op: Ops,
    opcode: ibv_wr_opcode,
    fill: impl FnOnce(&mut ibv_send_wr),
) {
    let inline = ibv_send_flags::IBV_SEND_INLINE.0;
    let add = |qp: &Qp, batch: &mut WrBatch| {
        // SAFETY: zero is a valid value of every field.
        let mut wr: ibv_send_wr = unsafe { core::mem::zeroed() };
        // SAFETY: the fields are the program's, whose thread this is.
        (wr.wr_id, wr.send_flags) = unsafe { ((*abi).wr_id, (*abi).wr_flags & !inline) };
        wr.opcode = opcode;
        fill(&mut wr);
        batch.add(op, wr, qp.cap.max_send_wr);
    };
    // SAFETY: `abi` is NULL or a live queue pair of ours (see # Safety of `started`).
    unsafe { change(abi, add) };
}

/// Declares functions that add a request.
macro_rules! requests {
    ($($name:ident($($arg:ident: $ty:ty),*) = $op:ident, $opcode:ident, |$wr:ident| $fill:expr;)*) => {
        $(unsafe extern "C" fn $name(qp: *mut ibv_qp_ex $(, $arg: $ty)*) {
            // SAFETY: NULL, or a queue pair of ours.
            unsafe { add(qp, Ops::$op, ibv_wr_opcode::$opcode, |$wr| $fill) };
        })*
    };
}

requests! {
    wr_send() = IBV_QP_EX_WITH_SEND, IBV_WR_SEND, |_wr| ();
    wr_send_imm(imm: __be32) = IBV_QP_EX_WITH_SEND_WITH_IMM, IBV_WR_SEND_WITH_IMM,
        |wr| wr.__bindgen_anon_1.imm_data = imm;
    wr_rdma_write(rkey: u32, remote_addr: u64) = IBV_QP_EX_WITH_RDMA_WRITE, IBV_WR_RDMA_WRITE,
        |wr| wr.wr.rdma = Rdma { remote_addr, rkey };
    wr_rdma_write_imm(rkey: u32, remote_addr: u64, imm: __be32) =
        IBV_QP_EX_WITH_RDMA_WRITE_WITH_IMM, IBV_WR_RDMA_WRITE_WITH_IMM, |wr| {
            wr.__bindgen_anon_1.imm_data = imm;
            wr.wr.rdma = Rdma { remote_addr, rkey };
        };
    wr_rdma_read(rkey: u32, remote_addr: u64) = IBV_QP_EX_WITH_RDMA_READ, IBV_WR_RDMA_READ,
        |wr| wr.wr.rdma = Rdma { remote_addr, rkey };
    wr_atomic_cmp_swp(rkey: u32, remote_addr: u64, compare_add: u64, swap: u64) =
        IBV_QP_EX_WITH_ATOMIC_CMP_AND_SWP, IBV_WR_ATOMIC_CMP_AND_SWP,
        |wr| wr.wr.atomic = Atomic { remote_addr, compare_add, swap, rkey };
    wr_atomic_fetch_add(rkey: u32, remote_addr: u64, compare_add: u64) =
        IBV_QP_EX_WITH_ATOMIC_FETCH_AND_ADD, IBV_WR_ATOMIC_FETCH_AND_ADD,
        |wr| wr.wr.atomic = Atomic { remote_addr, compare_add, swap: 0, rkey };
    wr_local_inv(key: u32) = IBV_QP_EX_WITH_LOCAL_INV, IBV_WR_LOCAL_INV,
        |wr| wr.__bindgen_anon_1.invalidate_rkey = key;
    wr_send_inv(key: u32) = IBV_QP_EX_WITH_SEND_WITH_INV, IBV_WR_SEND_WITH_INV,
        |wr| wr.__bindgen_anon_1.invalidate_rkey = key;
}

unsafe extern "C" fn wr_set_ud_addr(
    qp: *mut ibv_qp_ex,
    ah: *mut ibv_ah,
    remote_qpn: u32,
    remote_qkey: u32,
) {
    let set = |qp: &Qp, batch: &mut WrBatch| match qp.transport {
        QpTransport::Ud => batch.set_address(Ud { ah, remote_qpn, remote_qkey }),
        _ => batch.fail(errno::EINVAL),
    };
    // SAFETY: NULL, or a queue pair of ours.
    unsafe { change(qp, set) };
}

unsafe extern "C" fn wr_set_xrc_srqn(qp: *mut ibv_qp_ex, remote_srqn: u32) {
    let set = |qp: &Qp, batch: &mut WrBatch| match qp.transport {
        QpTransport::XrcSend => batch.set_srq(remote_srqn),
        _ => batch.fail(errno::EINVAL),
    };
    // SAFETY: NULL, or a queue pair of ours.
    unsafe { change(qp, set) };
}

unsafe extern "C" fn wr_set_sge(qp: *mut ibv_qp_ex, lkey: u32, addr: u64, length: u32) {
    // SAFETY: NULL, or a queue pair of ours; the list is the one here.
    unsafe { wr_set_sge_list(qp, 1, &ibv_sge { addr, length, lkey }) };
}

unsafe extern "C" fn wr_set_sge_list(qp: *mut ibv_qp_ex, n: usize, list: *const ibv_sge) {
    let set = |qp: &Qp, batch: &mut WrBatch| {
        let most = qp.cap.max_send_sge;
        // SAFETY: the caller's list has `n` entries.
        match unsafe { slice(list, n, most) } {
            Some(list) => batch.set_list(list, most),
            None => batch.fail(errno::EINVAL),
        }
    };
    // SAFETY: NULL, or a queue pair of ours.
    unsafe { change(qp, set) };
}

unsafe extern "C" fn wr_set_inline_data(qp: *mut ibv_qp_ex, addr: *mut c_void, length: usize) {
    // SAFETY: NULL, or a queue pair of ours; the list is the one here.
    unsafe { wr_set_inline_data_list(qp, 1, &ibv_data_buf { addr, length }) };
}

unsafe extern "C" fn wr_set_inline_data_list(
    qp: *mut ibv_qp_ex,
    n: usize,
    list: *const ibv_data_buf,
) {
    let set = |qp: &Qp, batch: &mut WrBatch| {
        // SAFETY: the caller's list has `n` entries, whose buffers can be read.
        match unsafe { slice(list, n, u32::MAX) } {
            // SAFETY: `ibv_wr_set_inline_data_list` asks for buffers that can be read; that others
            // access them atomically is what this device asks of all memory (`copy`).
            Some(list) => unsafe { batch.set_inline(list, qp.cap.max_inline_data) },
            None => batch.fail(errno::EINVAL),
        }
    };
    // SAFETY: NULL, or a queue pair of ours.
    unsafe { change(qp, set) };
}

/// A list of the program's, if it is one, and not longer than `most`.
///
/// # Safety
/// It is NULL, or has `n` entries.
unsafe fn slice<'a, T>(list: *const T, n: usize, most: u32) -> Option<&'a [T]> {
    match n {
        0 => Some(&[]),
        _ if list.is_null() || n > most as usize => None,
        // SAFETY: `list` is not NULL, so it has `n` entries (see # Safety).
        _ => Some(unsafe { core::slice::from_raw_parts(list, n) }),
    }
}

/// Makes the batch fail, as the device does not have the operation.
///
/// # Safety
/// As [`started`].
unsafe fn unsupported(qp: *mut ibv_qp_ex) {
    // SAFETY: `qp` is NULL or a live queue pair of ours (see # Safety).
    unsafe { change(qp, |_, batch| batch.fail(errno::EOPNOTSUPP)) };
}

unsafe extern "C" fn wr_bind_mw(
    qp: *mut ibv_qp_ex,
    mw: *mut ibv_mw,
    rkey: u32,
    info: *const ibv_mw_bind_info,
) {
    // SAFETY: NULL, or the caller's.
    let info = unsafe { info.as_ref() };
    let bind_mw = Bind { mw, rkey, bind_info: info.copied().unwrap_or_default() };
    let (op, opcode) = (Ops::IBV_QP_EX_WITH_BIND_MW, ibv_wr_opcode::IBV_WR_BIND_MW);
    // SAFETY: NULL, or a queue pair of ours.
    unsafe {
        add(qp, op, opcode, |wr| wr.__bindgen_anon_2.bind_mw = bind_mw);
        if info.is_none() {
            change(qp, |_, batch| batch.fail(errno::EINVAL));
        }
    }
}

unsafe extern "C" fn wr_send_tso(qp: *mut ibv_qp_ex, _header: *mut c_void, _len: u16, _mss: u16) {
    // SAFETY: NULL, or a queue pair of ours.
    unsafe { unsupported(qp) };
}

unsafe extern "C" fn wr_atomic_write(
    qp: *mut ibv_qp_ex,
    rkey: u32,
    remote_addr: u64,
    value: *const c_void,
) {
    let (op, opcode) = (Ops::IBV_QP_EX_WITH_ATOMIC_WRITE, ibv_wr_opcode::IBV_WR_ATOMIC_WRITE);
    // Inline, whatever the program has asked for.
    let word = ibv_data_buf { addr: value.cast_mut(), length: ATOMIC_WRITE_BYTES as usize };
    // SAFETY: NULL, or a queue pair of ours; the word is the caller's.
    unsafe {
        add(qp, op, opcode, |wr| wr.wr.rdma = Rdma { remote_addr, rkey });
        change(qp, |_, batch| batch.set_inline(&[word], ATOMIC_WRITE_BYTES));
    }
}
