//! Seeded mode: posts only queue, and a test steps.

use core::ffi::c_int;
use std::sync::Arc;

use crate::device::Device;
use crate::qp::Qp;
use crate::requester::{Line, Outcome, SqParts};
use crate::sq::Request;

/// What a simulated device has in addition.
pub(crate) struct State {}

impl State {
    pub(crate) fn now(&self) -> u64 {
        0
    }
}

pub(crate) fn steps_before_poll(_device: &Arc<Device>) {}

pub(crate) fn steps_until(_device: &Arc<Device>, _done: impl Fn() -> bool) -> Result<(), c_int> {
    Ok(())
}

#[inline]
pub(crate) fn execute<'a>(
    qp: &Qp,
    parts: &mut SqParts<'_>,
    peer: Option<&'a Arc<Qp>>,
    line: &mut Line<'a>,
    request: &Request<'_>,
) -> Outcome {
    qp.execute(parts.requester, peer, line, request)
}
