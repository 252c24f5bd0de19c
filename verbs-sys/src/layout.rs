//! Sizes and offsets of the ABI of rdma-core 44 on a 64-bit machine, asserted when the crate is
//! compiled. The generated bindings carry an assertion for every field; these are the ones that a
//! device behind the ABI relies on.

use core::mem::offset_of;

use static_assertions::{assert_eq_size, const_assert_eq};

use crate::*;

assert_eq_size!(ibv_device, [u8; 664]);
assert_eq_size!(ibv_context, [u8; 328]);
assert_eq_size!(ibv_context_ops, [u8; 256]);
assert_eq_size!(verbs_context, [u8; 648]);
assert_eq_size!(ibv_mr, [u8; 48]);
assert_eq_size!(ibv_cq, [u8; 128]);
assert_eq_size!(ibv_cq_ex, [u8; 288]);
assert_eq_size!(ibv_qp, [u8; 160]);
assert_eq_size!(ibv_qp_ex, [u8; 352]);
assert_eq_size!(ibv_srq, [u8; 128]);
assert_eq_size!(ibv_send_wr, [u8; 128]);
assert_eq_size!(ibv_recv_wr, [u8; 32]);
assert_eq_size!(ibv_wc, [u8; 48]);
assert_eq_size!(ibv_device_attr, [u8; 232]);
assert_eq_size!(ibv_port_attr, [u8; 52]);
assert_eq_size!(ibv_qp_attr, [u8; 144]);
assert_eq_size!(ibv_sge, [u8; 16]);

const_assert_eq!(offset_of!(ibv_context, ops), 8);
const_assert_eq!(offset_of!(verbs_context, sz), 312);
// Older members lie nearer to the context, so that the struct grows upward.
const_assert_eq!(offset_of!(verbs_context, context), 320);
