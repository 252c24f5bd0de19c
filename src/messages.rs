//! The messages of a receiver, one after the other: `for message in &mut receiver`.

use crate::error::{CloseReason, RecvError};
use crate::half::RecvHalf;

/// Waits for a receiver's messages, in the order in which `recv` has them, until its end: after the last one a
/// connection that was closed has none, and one that has ended otherwise its reason, once. A
/// [peer](RecvError::Peer) that was lost is no end where there are others.
///
/// ```
/// use rdma_conn::{SendHalf, SendRecv, pair};
///
/// let device = rdma_conn::device::soft()?;
/// let (mut left, mut right) = pair::<SendRecv>(&device, &device, &Default::default())?;
/// left.sender.send(b"one")?;
/// left.sender.send(b"two")?;
/// left.abort();
/// let mut bytes = 0;
/// for message in &mut right.receiver {
///     match message {
///         Ok(message) => bytes += message.len(),
///         Err(end) => println!("{end}"), // it was not closed
///     }
/// }
/// assert_eq!(bytes, 6);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
pub struct Messages<'a, R> {
    receiver: &'a mut R,
    /// The end of the last peer that was lost.
    lost: Option<CloseReason>,
    has_ended: bool,
}

impl<'a, R: RecvHalf> Messages<'a, R> {
    /// Those of any receiver; the library's own can be iterated over themselves.
    pub fn new(receiver: &'a mut R) -> Messages<'a, R> {
        Messages { receiver, lost: None, has_ended: false }
    }
}

impl<R: RecvHalf> Iterator for Messages<'_, R> {
    type Item = Result<R::Message, RecvError>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.has_ended {
            return None;
        }
        let next = self.receiver.recv();
        match &next {
            Err(RecvError::Peer { reason, .. }) => self.lost = Some(reason.clone()),
            Err(RecvError::Closed | RecvError::Ended(_)) => self.has_ended = true,
            _ => {}
        }
        match next {
            Err(RecvError::Closed) => None,
            // The only peer's: it was reported.
            Err(RecvError::Ended(reason)) if self.lost.as_ref() == Some(&reason) => None,
            next => Some(next),
        }
    }
}

macro_rules! iterated_over {
    ($($module:ident)+) => {
        $(impl<'a> IntoIterator for &'a mut crate::$module::Receiver {
            type Item = <Messages<'a, crate::$module::Receiver> as Iterator>::Item;
            type IntoIter = Messages<'a, crate::$module::Receiver>;

            fn into_iter(self) -> Self::IntoIter {
                Messages::new(self)
            }
        })+
    };
}

iterated_over!(send_recv buffered_read buffered_write direct_read direct_write shared_write);
