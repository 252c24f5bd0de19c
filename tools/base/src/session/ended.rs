//! Reasons for which a half of a connection has ended, whichever the connection is.

use rdma_conn::direct_read;
use rdma_conn::direct_read::OfferError;
use rdma_conn::send_recv::{CloseReason, RecvError, SendError};

use crate::outcome::CommandError;

/// Returns the reason for which a sending half of any connection ended, if that is the failure.
pub fn sender_ended(failure: &CommandError) -> Option<&CloseReason> {
    match (failure.downcast_ref(), failure.downcast_ref()) {
        (Some(SendError::Ended(ended)), _) => Some(ended),
        (_, Some(OfferError::Send(SendError::Ended(ended)))) => Some(ended),
        _ => None,
    }
}

/// Returns the reason for which a receiving half of any connection lost a peer, if that is the
/// failure.
pub fn receiver_ended(failure: &CommandError) -> Option<&CloseReason> {
    use direct_read::{NotReadReason, ReadError};
    if let Some(RecvError::Peer { reason: ended, .. }) = failure.downcast_ref() {
        return Some(ended);
    }
    match (failure.downcast_ref(), failure.downcast_ref()) {
        (Some(ReadError::Unread { reason: ended, .. }), _)
        | (Some(ReadError::Recv(RecvError::Peer { reason: ended, .. })), _) => Some(ended),
        (_, Some(NotReadReason::Ended(ended))) => Some(ended),
        _ => None,
    }
}
