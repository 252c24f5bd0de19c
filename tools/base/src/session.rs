//! The way to another end of the command: devices, listening and dialling, control messages beside
//! the queue pairs, and the words of a refusal.

mod address;
pub mod card;
mod channel;
mod ended;
mod ends;
mod refusal;

pub use channel::{ControlChannel, GLANCE, LastWords, PeerFailure, notice_death, unexpected};
pub use ended::{receiver_ended, sender_ended};
pub use ends::{
    bad_distance, cannot_bind, cannot_listen, dial, explain, open_device, out_of_reach, refused,
};
pub use refusal::{CONNECTIONS, differs};
