//! Meeting of two ends of the command: the parameters of the connecting end hold.

mod address;
pub(crate) mod card;
mod channel;
mod control;
mod ends;
mod parameters;
mod refusal;

pub(crate) use channel::{Channel as ChannelOf, GLANCE, LastWords, Told, notice_death, unexpected};
pub(crate) use control::{Channel, Control, HungUp, cause, receiver_ended, sender_ended};
pub(crate) use ends::{
    Pending, bad_distance, cannot_bind, cannot_listen, dial, engaged, explain, listen, next_peer,
    open_device, out_of_reach, refused,
};
pub(crate) use parameters::{
    Part, Session, Traffic, asked, contradiction, is_copy, other_sizes, run_number,
};
pub(crate) use refusal::differs;
