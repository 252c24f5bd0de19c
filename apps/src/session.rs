//! Meeting of two ends of the command: the parameters of the connecting end hold.

mod admit;
mod control;
mod drive;
mod parameters;

#[cfg(test)]
pub(crate) use self::{drive::follow_into, parameters::run_number};
pub(crate) use admit::{PendingSession, admitted, engaged, listen, next_peer};
pub(crate) use base::session::{
    ControlChannel, GLANCE, LastWords, PeerFailure, bad_distance, cannot_bind, cannot_listen, card,
    dial, differs, explain, open_device, refused, sender_ended, unexpected,
};
pub(crate) use control::{ControlMessage, HungUp, SessionChannel, cause};
pub(crate) use drive::{Followed, follow_all, in_turn, lead_each};
pub(crate) use parameters::{
    MeasurementIndex, SessionParameters, TrafficParameters, asked, contradiction, other_sizes,
};
