//! Reasons of failed requests. Each has one status, and a number, which the completion carries as its
//! `vendor_err`.
//!
//! **Contract: a number keeps its meaning.** docs/soft-device.md has the table, and a test compares both.

use core::fmt;

use verbs_sys::ibv_wc_status;

macro_rules! reasons {
    ($($name:ident = $number:literal, $status:ident, $text:literal;)*) => {
        /// The reason of a completion in error.
        #[derive(Debug, Clone, Copy, PartialEq, Eq)]
        #[repr(u8)]
        pub(crate) enum WcReason {
            $(#[doc = $text] $name = $number,)*
        }

        impl WcReason {
            const ALL: &[WcReason] = &[$(WcReason::$name),*];

            /// The status of the completion.
            pub(crate) fn status(self) -> ibv_wc_status {
                match self {
                    $(WcReason::$name => ibv_wc_status::$status,)*
                }
            }

            pub(crate) fn text(self) -> &'static str {
                match self {
                    $(WcReason::$name => $text,)*
                }
            }
        }
    };
}

reasons! {
    // The requester's own memory, or the buffers of a receive request.
    LocalKey = 1, IBV_WC_LOC_PROT_ERR, "the lkey is that of no region";
    LocalDomain = 2, IBV_WC_LOC_PROT_ERR, "the region of the lkey is in another protection domain";
    LocalRange = 3, IBV_WC_LOC_PROT_ERR, "the buffer goes beyond the region of its lkey";
    LocalRight = 4, IBV_WC_LOC_PROT_ERR, "the region of the lkey lacks IBV_ACCESS_LOCAL_WRITE";
    LocalGone = 5, IBV_WC_LOC_PROT_ERR, "pages of the buffer are gone or protected, or cannot be read";
    LocalUnattached = 6, IBV_WC_LOC_PROT_ERR,
        "the system does not permit the peer's process to read the buffer, as after a setuid: register memory of a sealed memory file";
    // The request itself.
    TooLong = 16, IBV_WC_LOC_LEN_ERR, "the message is longer than 1 GiB, or the datagram than the MTU";
    AtomicLength = 17, IBV_WC_LOC_LEN_ERR, "the buffer of the atomic does not have 8 bytes";
    NoReads = 18, IBV_WC_LOC_QP_OP_ERR, "a READ or an atomic, and max_rd_atomic is 0";
    Operation = 19, IBV_WC_LOC_QP_OP_ERR,
        "the queue pair has no such operation, or the address handle is of another domain";
    Bind = 20, IBV_WC_MW_BIND_ERR, "the window cannot be bound so";
    Invalidate = 21, IBV_WC_MW_BIND_ERR, "no window that is bound to the queue pair has the key";
    ReceiveShort = 24, IBV_WC_LOC_LEN_ERR, "the message is longer than the receive request";
    ReceiveInvalidate = 25, IBV_WC_REM_INV_REQ_ERR,
        "the message invalidates a key, and no window that is bound to the queue pair has it";
    // The peer refuses the request.
    PeerFlags = 32, IBV_WC_REM_INV_REQ_ERR, "the peer's qp_access_flags do not permit the operation";
    PeerReads = 33, IBV_WC_REM_INV_REQ_ERR, "a READ or an atomic, and the peer's max_dest_rd_atomic is 0";
    PeerWord = 34, IBV_WC_REM_INV_REQ_ERR,
        "an operation on a word needs 8 bytes at a multiple of 8";
    PeerQueue = 35, IBV_WC_REM_INV_REQ_ERR,
        "the peer's XRC domain has no shared receive queue of this number";
    PeerReceiveShort = 36, IBV_WC_REM_INV_REQ_ERR, "the peer's receive request is too short";
    PeerInvalid = 37, IBV_WC_REM_INV_REQ_ERR, "the peer takes the request for invalid, and does not say why";
    PeerKey = 48, IBV_WC_REM_ACCESS_ERR, "the rkey is that of no region and of no window";
    PeerDomain = 49, IBV_WC_REM_ACCESS_ERR,
        "the region or window of the rkey is in another protection domain than the peer's queue pair";
    PeerRange = 50, IBV_WC_REM_ACCESS_ERR, "the access goes beyond the region or window of its rkey";
    PeerRight = 51, IBV_WC_REM_ACCESS_ERR, "the region or window of the rkey lacks the access right";
    PeerGone = 52, IBV_WC_REM_ACCESS_ERR, "pages of the peer's memory are gone or protected";
    PeerWindow = 53, IBV_WC_REM_ACCESS_ERR,
        "no window that is bound to the peer's queue pair has the key";
    PeerAccess = 54, IBV_WC_REM_ACCESS_ERR, "the peer permits no such access, and does not say why";
    PeerReceiveBuffer = 56, IBV_WC_REM_OP_ERR, "the device may not write to the buffers of the peer's receive request";
    PeerUnattached = 57, IBV_WC_REM_OP_ERR, "the system does not permit access to the memory of the peer's process, as after a setuid: let it register memory of a sealed memory file";
    PeerOperation = 58, IBV_WC_REM_OP_ERR, "the peer cannot carry out the request, and does not say why";
    // No answer.
    Rnr = 64, IBV_WC_RNR_RETRY_EXC_ERR, "the peer has posted no receive request (RNR)";
    NoResponse = 65, IBV_WC_RETRY_EXC_ERR, "the peer does not answer";
    BadResponse = 66, IBV_WC_BAD_RESP_ERR, "the response is not one to the request";
    InjectedRnr = 67, IBV_WC_RNR_RETRY_EXC_ERR, "injected: the peer is not ready (RNR)";
    InjectedLoss = 68, IBV_WC_RETRY_EXC_ERR, "injected: the request was lost";
    InjectedFlush = 69, IBV_WC_WR_FLUSH_ERR, "injected: the queue pair fails";
    // Flushed: why the queue pair is in the error state.
    FlushedByRequest = 80, IBV_WC_WR_FLUSH_ERR, "an earlier request of the queue pair has failed";
    FlushedByPeer = 81, IBV_WC_WR_FLUSH_ERR, "a request of the peer was refused, which ends the connection";
    FlushedByProgram = 82, IBV_WC_WR_FLUSH_ERR, "the program has taken the queue pair to ERR";
    FlushedByCq = 83, IBV_WC_WR_FLUSH_ERR, "a completion queue of the queue pair has overrun";
    FlushedByDevice = 84, IBV_WC_WR_FLUSH_ERR, "the device has ended the queue pair";
}

impl WcReason {
    /// The reason of this number.
    pub(crate) fn from_number(number: u8) -> Option<WcReason> {
        WcReason::ALL.iter().copied().find(|reason| *reason as u8 == number)
    }

    /// A responder may refuse requests for it.
    pub(crate) fn is_refusal(self) -> bool {
        matches!(
            self.status(),
            ibv_wc_status::IBV_WC_LOC_PROT_ERR
                | ibv_wc_status::IBV_WC_REM_INV_REQ_ERR
                | ibv_wc_status::IBV_WC_REM_ACCESS_ERR
                | ibv_wc_status::IBV_WC_REM_OP_ERR
        )
    }

    /// The status and the `vendor_err` of a completion.
    #[inline(always)]
    pub(crate) fn ends(failure: Option<WcReason>) -> (ibv_wc_status, u32) {
        match failure {
            None => (ibv_wc_status::IBV_WC_SUCCESS, 0),
            Some(reason) => (reason.status(), reason as u32),
        }
    }
}

/// Origin of a queue pair's error state.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum Origin {
    /// A request of its own has failed.
    Request = 1,
    /// A request of the peer was refused.
    Peer,
    /// `ibv_modify_qp`.
    Program,
    /// A completion queue has overrun.
    Cq,
    Device,
}

/// Cause of a queue pair's error state.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Cause {
    pub(crate) origin: Origin,
    /// The reason of a request that has failed, or was refused.
    pub(crate) reason: Option<WcReason>,
}

impl Cause {
    pub(crate) const PROGRAM: Cause = Cause { origin: Origin::Program, reason: None };
    pub(crate) const CQ: Cause = Cause { origin: Origin::Cq, reason: None };
    pub(crate) const DEVICE: Cause = Cause { origin: Origin::Device, reason: None };

    pub(crate) fn request(reason: WcReason) -> Cause {
        Cause { origin: Origin::Request, reason: Some(reason) }
    }

    pub(crate) fn peer(reason: WcReason) -> Cause {
        Cause { origin: Origin::Peer, reason: Some(reason) }
    }

    /// As a number, which is not 0.
    pub(crate) fn code(self) -> u16 {
        u16::from_le_bytes([self.reason.map_or(0, |reason| reason as u8), self.origin as u8])
    }

    /// The cause of this number; none for 0, or another that is none's.
    pub(crate) fn from_code(code: u16) -> Option<Cause> {
        let [reason, origin] = code.to_le_bytes();
        let origins = [Origin::Request, Origin::Peer, Origin::Program, Origin::Cq, Origin::Device];
        let origin = origins.into_iter().find(|known| *known as u8 == origin)?;
        Some(Cause { origin, reason: WcReason::from_number(reason) })
    }

    /// The reason of requests that are flushed.
    pub(crate) fn flush(self) -> WcReason {
        match self.origin {
            Origin::Request => WcReason::FlushedByRequest,
            Origin::Peer => WcReason::FlushedByPeer,
            Origin::Program => WcReason::FlushedByProgram,
            Origin::Cq => WcReason::FlushedByCq,
            Origin::Device => WcReason::FlushedByDevice,
        }
    }
}

impl fmt::Display for Cause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let reason = self.reason.map_or("no reason is known", WcReason::text);
        match self.origin {
            Origin::Request => write!(f, "a request of its own has failed: {reason}"),
            Origin::Peer => write!(f, "it has refused a request of its peer: {reason}"),
            _ => f.write_str(self.flush().text()),
        }
    }
}

/// Says what the `vendor_err` of a completion of this device means; none for another number.
///
/// ```
/// assert_eq!(soft_rnic::vendor_err(1), Some("the lkey is that of no region"));
/// assert_eq!(soft_rnic::vendor_err(0), None);
/// ```
#[must_use]
pub fn vendor_err(number: u32) -> Option<&'static str> {
    Some(WcReason::from_number(number.try_into().ok()?)?.text())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A row for each, in order: `| number | hexadecimal | status | text |`.
    #[test]
    fn the_documentation_has_each_number() {
        let text = include_str!("../../docs/soft-device.md");
        let rows = |line: &str| {
            let number = line.strip_prefix("| ")?.split(' ').next()?.parse::<u8>().ok()?;
            Some((number, line.to_owned()))
        };
        let found: Vec<_> = text.lines().filter_map(rows).collect();
        let known = WcReason::ALL.iter().map(|reason| {
            let status = verbs_sys::wc_status_name(reason.status());
            let number = *reason as u8;
            (number, format!("| {number} | {number:#x} | `{status}` | {} |", reason.text()))
        });
        assert_eq!(found, known.collect::<Vec<_>>());
    }

    #[test]
    fn a_number_leads_back() {
        for reason in WcReason::ALL {
            assert_eq!(WcReason::from_number(*reason as u8), Some(*reason));
            for cause in [Cause::request(*reason), Cause::peer(*reason)] {
                assert_eq!(Cause::from_code(cause.code()), Some(cause));
            }
        }
        assert_eq!((WcReason::from_number(0), Cause::from_code(0)), (None, None));
        assert_eq!(Cause::from_code(Cause::CQ.code()), Some(Cause::CQ));
    }
}
