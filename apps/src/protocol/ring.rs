//! What the connections with rings have in common: their shape, and how their messages are
//! taken, by the same names in both.

use rdma_conn::ring::RingShape;
use rdma_conn::send_recv::ConfigError;

use crate::args::ConnectionArgs;
use crate::outcome::{Failure, by_flag_within, size_over};

/// A ring for messages of `size` bytes: of the size that was asked for, or like `shape`, or so
/// large that it holds several of them.
pub(super) fn shape(args: &ConnectionArgs, size: u32, shape: RingShape) -> RingShape {
    let several = (4 * (u64::from(size) + 8)).next_power_of_two();
    let ring_bytes = args.ring_bytes.map_or(shape.ring_bytes.max(several), u64::from);
    RingShape { ring_bytes, message_bytes: size.max(1), ..shape }
}

/// The longest messages of which a ring that nobody has chosen holds several.
const LONGEST: u64 = RingShape::MAX_BYTES / 4 - 8;

/// A configuration that cannot be, by the flags that it comes from: a ring that nobody has
/// chosen is as long as its messages want it.
pub(super) fn by_flag(error: &ConfigError, args: &ConnectionArgs, shape: RingShape) -> Failure {
    if error.field == "ring_bytes" && args.ring_bytes.is_none() {
        return size_over(shape.message_bytes.into(), LONGEST);
    }
    let field = if error.field == "tail.window" { "recv_window" } else { error.field };
    by_flag_within(&ConfigError { field, ..*error }, &[("ring_bytes", shape.ring_bytes)])
}

/// Shows messages to `each`, as [`Receiving::take`](super::Receiving::take) does it.
macro_rules! take_each {
    ($receiver:expr, $time:expr, $each:expr) => {{
        let (receiver, mut each) = ($receiver, $each);
        let mut shown = Ok(());
        let mut show = |peer: Peer, message: &[u8]| {
            if shown.is_ok() {
                shown = each(peer.0, message);
            }
        };
        let count = match (receiver.try_recv_each(&mut show), $time) {
            (Err(RecvError::Empty), Some(time)) => receiver.recv_timeout(time).map(|message| {
                show(message.peer(), &message);
                1
            }),
            (other, _) => other,
        };
        shown?;
        match count {
            Ok(count) => Ok(Taken::Some(count as u64)),
            Err(RecvError::Empty | RecvError::TimedOut) => Ok(Taken::Nothing),
            Err(RecvError::Closed) => Ok(Taken::Closed),
            Err(e) => Err(e.into()),
        }
    }};
}
pub(super) use take_each;
