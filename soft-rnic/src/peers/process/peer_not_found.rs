//! The reason that the process of a peer was not found, where that can be known. Another user's
//! process is not talked to, but its abstract socket can be seen.

use std::time::{Duration, Instant};

use host::sync::Mutex;
use rustix::process::geteuid;

use super::names::SocketNames;

/// The slot that this process has looked for last, and not found.
static NOT_FOUND: Mutex<Option<(u32, AbsenceReason)>> = Mutex::new(None);

/// Slots whose owners were looked for in the last [`AGAIN`], and when.
pub(crate) type Looked = Mutex<Vec<(u32, Instant)>>;

/// Time in which a slot is not looked up again: a process may have been started by then.
const AGAIN: Duration = Duration::from_secs(1);

/// The reason that a slot's process is not there.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum AbsenceReason {
    /// The slot is another user's.
    User(u32),
    /// No process has it here.
    Absent,
}

/// The abstract sockets of this network namespace, among others.
const SOCKETS: &str = "/proc/net/unix";

/// A process was looked for, and no process of this user has its slot.
#[cold]
pub(crate) fn note(looked: &Looked, names: &SocketNames, slot: u32) {
    // Datagrams look for it again and again.
    let mut looked = looked.lock();
    looked.retain(|(_, at)| host::time::since(*at) < AGAIN);
    if looked.iter().any(|(known, _)| *known == slot) {
        return;
    }
    looked.push((slot, host::time::now()));
    drop(looked);
    let sockets = std::fs::read_to_string(SOCKETS).unwrap_or_default();
    if let Some(user) = user_of(&sockets, names, slot) {
        *NOT_FOUND.lock() = Some((slot, AbsenceReason::User(user)));
    }
}

/// No process has a slot that a queue pair was just connected to.
#[cold]
pub(crate) fn note_absent(slot: u32) {
    NOT_FOUND.lock().get_or_insert((slot, AbsenceReason::Absent));
}

/// A process was found.
pub(crate) fn forget() {
    *NOT_FOUND.lock() = None;
}

/// The other user whose process has a slot.
fn user_of(sockets: &str, names: &SocketNames, slot: u32) -> Option<u32> {
    let own = geteuid().as_raw();
    let abstracts = sockets.lines().filter_map(|line| line.rsplit(' ').next()?.strip_prefix('@'));
    let theirs = abstracts.filter_map(|name| names.parse(name));
    theirs.filter(|(_, known)| *known == slot).map(|(user, _)| user).find(|user| *user != own)
}

/// Returns the reason that the process of a peer was not found, if one was looked for and not
/// found, and none has been found since. Requests to it end with `RETRY_EXC`, and unreliable
/// messages are lost; this is the reason, as far as it can be known.
///
/// ```
/// if let Some(reason) = soft_rnic::peer_not_found() {
///     eprintln!("{reason}");
/// }
/// ```
pub fn peer_not_found() -> Option<String> {
    let (_, why) = (*NOT_FOUND.lock())?;
    let own = geteuid().as_raw();
    Some(match why {
        AbsenceReason::User(user) => format!(
            "the peer's process is of user {user}, this one of user {own}, and a soft device connects \
             the processes of one user: run both as the same"
        ),
        AbsenceReason::Absent => format!(
            "no process of user {own} here has the peer's queue pair, and soft0 connects the \
             processes of one user on one machine, in one container: run both there"
        ),
    })
}

#[cfg(test)]
mod tests;
