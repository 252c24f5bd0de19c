//! Meeting of two ends of the command: the parameters of the connecting end hold.

mod admit;
mod control;
mod parameters;

pub(crate) use admit::{Pending, engaged, listen, next_peer};
pub(crate) use base::session::{
    Channel as ChannelOf, GLANCE, LastWords, Told, bad_distance, cannot_bind, cannot_listen, card,
    dial, differs, explain, open_device, refused, sender_ended, unexpected,
};
pub(crate) use control::{Channel, Control, HungUp, cause};
pub(crate) use parameters::{
    Part, Session, Traffic, asked, contradiction, other_sizes, run_number,
};
