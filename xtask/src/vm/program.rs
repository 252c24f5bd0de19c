//! This program, in the guest.

/// A copy of this program, for the guest: the host may build another one meanwhile.
pub(super) const XTASK: &str = "/tmp/xtask";
