//! Small-message multicast: every member's messages reach every member, in one order.
//!
//! A group has 2 to 16 members. Each message of a sender is delivered at all members, its sender
//! included, in the same total order, when all have received it (*stable*). The protocol is made
//! for many small messages: the members write to each other with one-sided writes, and [`Policy`]
//! sets the number of messages that share a write.
//!
//! 1. All members are made with the same [`Config`]: [`in_process`] for all of them in one
//!    process; a [`Leader`], and others that [`join()`], between processes.
//! 2. [`Group::sender`] sends, from any thread: [`try_send`](Sender::try_send), or
//!    [`get_buffer`](Sender::get_buffer) and [`Buffer::send`].
//! 3. [`Group::poll`] makes progress and delivers, as often as possible; or [`Group::spawn`] gives
//!    the member a thread that does. An accepted message goes with the next poll, or wakes that
//!    thread: its sender has no further call to make. The policy may inhibit it until
//!    [`deadline`](Config::deadline), and no longer.
//! 4. [`Group::finish`] ends it.
//!
//! ```
//! use std::time::Instant;
//! use rdma_conn::multicast::{Config, in_process};
//!
//! let device = rdma_conn::device::soft()?;
//! let mut members = in_process(&device, &Config::default())?;
//! members[0].sender().try_send(b"to all of us")?;
//! let mut delivered = 0;
//! while delivered < 3 {
//!     for member in &mut members {
//!         delivered += member.poll(std::time::Instant::now(), |message| {
//!             assert_eq!(message.bytes, b"to all of us");
//!         });
//!     }
//! }
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! **Contract: all survivors deliver every message that one member has delivered, in the same
//! order, no matter which members fail. Writes of a hostile member do not harm the memory safety of
//! others.**
//!
//! A member that dies, stands still, or breaks the protocol is cut off, with a [`Reason`]; the
//! group then takes no more messages ([`SendError::Group`]). The survivors agree on the sent
//! messages, deliver them, and are [finished](Group::is_finished): soon, or after
//! [`suspect_after`](Config::suspect_after) for each live member that holds them up. (Drive a
//! failed group, and take its deliveries, until then.) The survivors need a new group to continue.
//! There is no quorum: where a network splits the group in two, both sides are survivors.
//! [`conn_core::multicast`] has the protocol and its proof.

mod backoff;
mod config;
mod error;
mod group;
mod join;
mod memory;
mod peer;
mod sender;
mod thread;

pub use config::Config;
pub use conn_core::multicast::{
    ConfigError, Counts, Lie, MAX_MEMBERS, Members, Policy, Rank, Reason, writes_per_multicast,
};
pub use error::{GroupError, JoinError, SendError};
pub use group::{Group, Message};
pub use join::{GATHERING, Gathering, Joined, Leader, SET_UP, join, join_timeout};
pub use sender::{Buffer, Sender, Ticket};
pub use thread::Running;

use crate::device::Device;

/// All members of a group in one process, on one device, by rank.
///
/// # Errors
/// [`JoinError`]: the group cannot be, or the device refused something.
pub fn in_process(device: &Device, config: &Config) -> Result<Vec<Group>, JoinError> {
    in_process_on(core::iter::repeat(device), config)
}

/// As [`in_process`], with a device for each member, by rank: where a simulated card has a link of
/// its own, the members do not share it.
///
/// ```
/// use rdma_conn::device;
/// use rdma_conn::multicast::{Config, in_process_on};
///
/// let devices = [device::soft()?, device::soft()?, device::soft()?];
/// let members = in_process_on(&devices, &Config::default())?;
/// assert_eq!(members.len(), 3);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// # Errors
/// As `in_process`.
///
/// # Panics
/// If there are fewer devices than members.
pub fn in_process_on<'a>(
    devices: impl IntoIterator<Item = &'a Device>,
    config: &Config,
) -> Result<Vec<Group>, JoinError> {
    config.validate()?;
    let ranks = (0..config.members).map(Rank).zip(devices);
    let members: Result<Vec<Group>, _> =
        ranks.map(|(rank, device)| Group::new(device, config.core(rank), config.link)).collect();
    let mut members = members?;
    assert_eq!(members.len(), usize::from(config.members), "a device for each member");
    let infos: Result<Vec<_>, _> = members.iter().map(Group::info).collect();
    let infos = infos?;
    for member in &mut members {
        member.join_all(&infos)?;
        member.begin();
    }
    Ok(members)
}
