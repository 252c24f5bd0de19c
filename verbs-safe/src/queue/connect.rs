//! Attributes with which a queue pair is connected.

use crate::attr::Mtu;

/// The attributes of a connection. All that the verbs would otherwise leave at 0 is
/// set: a `min_rnr_timer` of 0, for instance, means 655 ms.
///
/// An unreliable connection has no use for timers, retries and READs: it ignores them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ConnectAttr {
    /// The local port, from 1.
    pub port: u8,
    /// The index of the local GID.
    pub gid_index: u8,
    /// The path's MTU: at most the smaller of both ports' active ones.
    pub mtu: Mtu,
    /// Time that the peer waits after finding no receive posted here: an index into the
    /// specification's table, 12 is 0.64 ms (5 bits).
    pub min_rnr_timer: u8,
    /// Retries when the peer has no receive posted; 7 is for ever (3 bits).
    pub rnr_retry: u8,
    /// Retries when the peer does not answer (3 bits). Not every device takes 7 for a number: to
    /// the kernel's rxe it means for ever, and then it never reports a peer that has gone.
    pub retry_cnt: u8,
    /// Time to wait for an answer: 4.096 µs · 2^timeout, 0 is for ever (5 bits).
    pub timeout: u8,
    /// READs and atomics of ours in flight, at most: as many as the device
    /// ([`DeviceAttr::max_qp_init_rd_atom`](crate::DeviceAttr::max_qp_init_rd_atom)) and
    /// the peer's `max_dest_rd_atomic` permit. More may be posted; they wait.
    pub max_rd_atomic: u8,
    /// READs and atomics of the peer in flight, at most
    /// ([`DeviceAttr::max_qp_rd_atom`](crate::DeviceAttr::max_qp_rd_atom)).
    pub max_dest_rd_atomic: u8,
    /// The first packet sequence number that we send: as in our [`Endpoint`](crate::Endpoint).
    pub local_psn: u32,
}

impl ConnectAttr {
    /// Port 1, MTU 1024, an RNR timer of 0.64 ms with 6 retries, 6 retries after
    /// 268 ms each without an answer, one READ or atomic at a time.
    #[must_use]
    pub fn new(gid_index: u8, local_psn: u32) -> ConnectAttr {
        ConnectAttr {
            port: 1,
            gid_index,
            mtu: Mtu::B1024,
            min_rnr_timer: 12,
            rnr_retry: 6,
            retry_cnt: 6,
            timeout: 16,
            max_rd_atomic: 1,
            max_dest_rd_atomic: 1,
            local_psn,
        }
    }

    /// Names a field with a value that the device would truncate.
    pub(crate) fn complaint(&self) -> Option<&'static str> {
        match self {
            a if a.min_rnr_timer > 31 => Some("min_rnr_timer has 5 bits"),
            a if a.timeout > 31 => Some("timeout has 5 bits"),
            a if a.rnr_retry > 7 => Some("rnr_retry has 3 bits"),
            a if a.retry_cnt > 7 => Some("retry_cnt has 3 bits"),
            a if a.local_psn > PSN_MASK => Some("local_psn has 24 bits"),
            a if a.mtu.bytes() == 0 => Some("there is no such MTU"),
            _ => None,
        }
    }
}

pub(crate) const PSN_MASK: u32 = 0xff_ffff;

/// A packet sequence number to begin with. Random ones keep late packets of an
/// earlier connection between the same queue pairs from being taken for this one's.
///
/// ```
/// assert!(verbs_safe::random_psn() < 1 << 24);
/// ```
#[must_use]
pub fn random_psn() -> u32 {
    host::random::entropy() as u32 & PSN_MASK
}

#[cfg(test)]
mod tests;
