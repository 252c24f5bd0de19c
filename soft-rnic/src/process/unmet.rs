//! Why a peer's process was not met, where that can be known. Another user's is not to be
//! talked to, but its abstract socket can be seen.

use std::time::{Duration, Instant};

use parking_lot::Mutex;
use rustix::process::geteuid;

/// Whom this process has looked for last, in vain.
static UNMET: Mutex<Option<(u32, Why)>> = Mutex::new(None);

/// Slots whose owners were looked for in the last [`AGAIN`], and when.
static LOOKED: Mutex<Vec<(u32, Instant)>> = Mutex::new(Vec::new());

/// After which somebody may have come.
const AGAIN: Duration = Duration::from_secs(1);

/// Why it is not there.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Why {
    /// The slot is another user's.
    User(u32),
    /// Nobody has it here.
    Nobody,
}

/// The abstract sockets of this network namespace, among others.
const SOCKETS: &str = "/proc/net/unix";

/// A process was looked for, and no process of this user has its slot.
#[cold]
pub(super) fn note(slot: u32) {
    // Datagrams look for it again and again.
    let mut looked = LOOKED.lock();
    looked.retain(|(_, at)| at.elapsed() < AGAIN);
    if looked.iter().any(|(known, _)| *known == slot) {
        return;
    }
    looked.push((slot, Instant::now()));
    drop(looked);
    let sockets = std::fs::read_to_string(SOCKETS).unwrap_or_default();
    if let Some(user) = user_of(&sockets, slot) {
        *UNMET.lock() = Some((slot, Why::User(user)));
    }
}

/// It was looked for when it had just told of itself.
#[cold]
pub(super) fn note_nobody(slot: u32) {
    UNMET.lock().get_or_insert((slot, Why::Nobody));
}

/// Somebody was found.
pub(super) fn forget() {
    *UNMET.lock() = None;
}

/// The other user whose process has a slot.
fn user_of(sockets: &str, slot: u32) -> Option<u32> {
    let own = geteuid().as_raw();
    let names = sockets.lines().filter_map(|line| line.rsplit(' ').next());
    let theirs = names.filter_map(|name| name.strip_prefix("@soft-rnic-")?.split_once('-'));
    let users = theirs.filter(|(_, known)| known.parse() == Ok(slot));
    users.filter_map(|(user, _)| user.parse().ok()).find(|user| *user != own)
}

/// Why the process of a peer was not found, if one was looked for in vain, and none has been
/// found since. Requests to it end with `RETRY_EXC`, and what nobody repeats is lost; this is
/// the reason, as far as it can be known.
///
/// ```
/// if let Some(reason) = soft_rnic::unmet_peer() {
///     eprintln!("{reason}");
/// }
/// ```
pub fn unmet_peer() -> Option<String> {
    let (_, why) = (*UNMET.lock())?;
    let own = geteuid().as_raw();
    Some(match why {
        Why::User(user) => format!(
            "the peer's process is of user {user}, this one of user {own}, and soft0 connects \
             the processes of one user: run both as the same"
        ),
        Why::Nobody => format!(
            "no process of user {own} here has the peer's queue pair, and soft0 connects the \
             processes of one user on one machine, in one container: run both there"
        ),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn another_users_slot_is_found_among_the_sockets() {
        let (own, other) = (geteuid().as_raw(), geteuid().as_raw() + 1);
        let line = |name: &str| format!("0000: 00000002 00000000 00010000 0005 01 4711 {name}\n");
        let sockets = [
            "Num RefCount Protocol Flags Type St Inode Path\n".to_owned(),
            line("/run/socket"),
            line("@soft-rnic-x-7"),
            line(&format!("@soft-rnic-{own}-7")),
            line(&format!("@soft-rnic-{other}-77")),
            line(&format!("@soft-rnic-{other}-8")),
        ]
        .concat();
        assert_eq!([7, 8, 9].map(|slot| user_of(&sockets, slot)), [None, Some(other), None]);
    }
}
