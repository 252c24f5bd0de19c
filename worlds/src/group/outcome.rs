//! Outcome of a member, as its program has it.

use std::time::Instant;

use rdma_conn::multicast::{GroupError, Members};

/// A delivered message.
#[derive(Debug, PartialEq)]
pub(super) struct Delivered {
    pub(super) from: usize,
    pub(super) turn: u64,
    pub(super) bytes: Vec<u8>,
}

/// Outcome of a member.
#[derive(Debug)]
pub(super) struct MemberOutcome {
    /// Number of its process.
    pub(super) process: usize,
    /// Messages that it has accepted, in order.
    pub(super) sent: Vec<Vec<u8>>,
    /// Messages that it has delivered, until its process was killed.
    pub(super) delivered: Vec<Delivered>,
    /// It left, and did not wait for the end.
    pub(super) has_left: bool,
    /// Time of its process's death, if that came before its end.
    pub(super) died_at: Option<Instant>,
    /// Time at which it was set up.
    pub(super) begun_at: Instant,
    /// Time at which its program asked for its end.
    pub(super) called_at: Instant,
    pub(super) ended_at: Instant,
    /// The error of a call that sent or waited.
    pub(super) told: Option<GroupError>,
    /// The members that it had cut off at its end, if it was driven by the program, which sees that.
    pub(super) cut_off: Option<Members>,
    pub(super) ended: Result<(), GroupError>,
}

impl MemberOutcome {
    /// Reports whether it has delivered all that it ever will: it has stayed, and is no longer
    /// waiting for others.
    pub(super) fn is_finished(&self) -> bool {
        let is_finished = matches!(self.ended, Ok(()) | Err(GroupError::CutOff { .. }));
        is_finished && !self.has_left && self.died_at.is_none()
    }
}
