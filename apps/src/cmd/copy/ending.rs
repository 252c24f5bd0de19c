//! How a copy ends: once, by its own work or by a signal.
//!
//! A signal ends the process with what has come so far, and a word to the other ends. A copy that is
//! at its end by then is reported as such: at a receiver, from before its sender hears so.

use std::collections::BTreeMap;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::Result;
use host::sync::{Condvar, Mutex};

use super::tally::Tally;
use super::wire::Reply;
use crate::frame::Hurried;
use crate::signals::Interrupted;

/// After a signal: how long a copy that has ended may take to be reported.
const GRACE: Duration = Duration::from_secs(3);
/// How long an end that is interrupted may take to tell another one why, and that one to read it.
const LAST_WORD: Duration = Duration::from_secs(2);
/// The longest last word.
const MOST_LINE: u64 = 4096;

/// One copy, as a signal finds it.
#[derive(Debug)]
pub(super) struct Ongoing {
    pub(super) peer: String,
    pub(super) start: Instant,
    pub(super) tally: Tally,
    /// To the other end, once there is one.
    stream: Mutex<Option<TcpStream>>,
}

impl Ongoing {
    pub(super) fn new(peer: String) -> Ongoing {
        Ongoing {
            peer,
            start: host::time::now(),
            tally: Tally::default(),
            stream: Mutex::new(None),
        }
    }

    /// The other end has connected.
    pub(super) fn connected(&self, stream: &TcpStream) -> std::io::Result<()> {
        *self.stream.lock() = Some(stream.try_clone()?);
        Ok(())
    }

    /// Sends the other end a line, which it has to read within `patience`.
    pub(super) fn tell(&self, reply: &Reply, patience: Duration) -> std::io::Result<()> {
        let mut stream = self.stream.lock();
        stream.as_mut().map_or(Ok(()), |stream| write_line(stream, reply, patience))
    }

    /// Tells the other end why this one ends, unless another line is still being sent.
    fn tell_last(&self, why: Interrupted) {
        let Some(mut stream) = self.stream.try_lock() else { return };
        let Some(stream) = stream.as_mut() else { return };
        let word = Reply::GivenUp { why: why.to_string() };
        // This process ends, whether the other end reads it or not.
        let _ = write_line(stream, &word, LAST_WORD);
    }
}

fn write_line(stream: &mut TcpStream, reply: &Reply, patience: Duration) -> std::io::Result<()> {
    let mut line = serde_json::to_vec(reply)?;
    line.push(b'\n');
    Hurried::new(stream, patience).write_all(&line)
}

/// Why the sender has ended, if it has said so.
pub(super) fn last_word(stream: &mut TcpStream) -> Option<String> {
    let (mut line, rest) = (Vec::new(), Hurried::new(stream, LAST_WORD));
    // After an error, what has come may still be a whole line.
    let _ = rest.take(MOST_LINE).read_to_end(&mut line);
    let line = line.split(|byte| *byte == b'\n').next()?;
    match serde_json::from_slice(line) {
        Ok(Reply::GivenUp { why }) => Some(why),
        _ => None,
    }
}

/// Copies that are being received.
#[derive(Debug, Default, Clone)]
pub(super) struct Underway(Arc<Board>);

#[derive(Debug, Default)]
struct Board {
    copies: Mutex<Copies>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct Copies {
    next: u64,
    all: BTreeMap<u64, Copy>,
}

#[derive(Debug)]
struct Copy {
    ongoing: Arc<Ongoing>,
    /// It has ended, and reports that itself.
    is_at_end: bool,
}

/// A copy that is being received, until this is dropped.
#[derive(Debug)]
pub(super) struct Hand {
    board: Arc<Board>,
    number: u64,
    pub(super) ongoing: Arc<Ongoing>,
}

impl Underway {
    /// One more is received, from `peer`.
    pub(super) fn enter(&self, peer: String) -> Hand {
        let ongoing = Arc::new(Ongoing::new(peer));
        let mut copies = self.0.copies.lock();
        let number = copies.next;
        copies.next += 1;
        copies.all.insert(number, Copy { ongoing: ongoing.clone(), is_at_end: false });
        Hand { board: self.0.clone(), number, ongoing }
    }

    /// Ends the copies that are under way, at a signal: waits, for [`GRACE`] at most, until those
    /// that were at their end have been reported, tells the senders of the others `why`, and passes
    /// these to `end`, which ends the process. A copy that comes to its end meanwhile waits for
    /// the lock until then.
    pub(super) fn interrupt<T>(
        &self,
        why: Interrupted,
        end: impl FnOnce(&[Arc<Ongoing>]) -> T,
    ) -> T {
        let (mut copies, limit) = (self.0.copies.lock(), host::time::now() + GRACE);
        while copies.all.values().any(|copy| copy.is_at_end) && host::time::now() < limit {
            self.0.changed.wait_until(&mut copies, limit);
        }
        let left = copies.all.values().filter(|copy| !copy.is_at_end);
        let left: Vec<_> = left.map(|copy| copy.ongoing.clone()).collect();
        left.iter().for_each(|ongoing| ongoing.tell_last(why));
        end(&left)
    }
}

impl Hand {
    /// The copy has ended: a later signal waits until it was reported.
    pub(super) fn is_at_end(&self) {
        if let Some(copy) = self.board.copies.lock().all.get_mut(&self.number) {
            copy.is_at_end = true;
        }
    }
}

impl Drop for Hand {
    fn drop(&mut self) {
        self.board.copies.lock().all.remove(&self.number);
        self.board.changed.notify_all();
    }
}

/// Copies that are being sent, each with its outcome once it has one, until they are reported: by
/// the one that comes first.
#[derive(Debug)]
pub(super) struct Sending<T>(Mutex<Option<Outcomes<T>>>);

/// Copies, each with its outcome once it has one.
pub(super) type Outcomes<T> = Vec<(Arc<Ongoing>, Option<T>)>;

impl<T> Sending<T> {
    pub(super) fn new(copies: impl IntoIterator<Item = Arc<Ongoing>>) -> Sending<T> {
        Sending(Mutex::new(Some(copies.into_iter().map(|copy| (copy, None)).collect())))
    }

    /// One has come to its end.
    pub(super) fn ended(&self, at: usize, outcome: T) {
        if let Some(all) = &mut *self.0.lock() {
            all[at].1 = Some(outcome);
        }
    }

    /// Passes all of them to `report`, once: `None` if another caller has got them. Other callers
    /// wait until `report` returns.
    pub(super) fn report<R>(
        &self,
        report: impl FnOnce(Outcomes<T>) -> Result<R>,
    ) -> Option<Result<R>> {
        let mut copies = self.0.lock();
        copies.take().map(report)
    }

    /// As [`report`](Self::report), at a signal: the receivers of unfinished copies are told why.
    pub(super) fn interrupt<R>(
        &self,
        why: Interrupted,
        report: impl FnOnce(Outcomes<T>) -> Result<R>,
    ) -> Option<Result<R>> {
        self.report(|copies| {
            let open = copies.iter().filter(|(_, outcome)| outcome.is_none());
            open.for_each(|(ongoing, _)| ongoing.tell_last(why));
            report(copies)
        })
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::channel;

    use super::*;

    fn interrupted() -> Interrupted {
        Interrupted::of("SIGTERM")
    }

    #[test]
    fn a_copy_at_its_end_is_reported_by_itself_before_a_signal_ends_the_process() {
        let underway = Underway::default();
        let (over, open) = (underway.enter("over".into()), underway.enter("open".into()));
        over.is_at_end();
        let (began, reported) = (channel(), channel());
        let other = underway.clone();
        let signal = std::thread::spawn(move || {
            began.0.send(()).unwrap();
            other.interrupt(interrupted(), |left| {
                assert_eq!(reported.1.try_recv(), Ok(()), "it has not waited for the report");
                left.iter().map(|ongoing| ongoing.peer.clone()).collect::<Vec<_>>()
            })
        });
        began.1.recv().unwrap();
        reported.0.send(()).unwrap();
        drop(over);
        assert_eq!(signal.join().unwrap(), ["open"]);
        drop(open);
        assert!(underway.interrupt(interrupted(), <[_]>::is_empty));
    }

    #[test]
    fn what_is_sent_is_reported_once() {
        let sending = Sending::new([Arc::new(Ongoing::new("there".into()))]);
        sending.ended(0, 7);
        let outcome = |copies: Vec<(_, Option<u32>)>| Ok(copies[0].1);
        assert_eq!(sending.interrupt(interrupted(), outcome).unwrap().unwrap(), Some(7));
        assert!(sending.report(outcome).is_none());
    }

    #[test]
    fn a_last_word_arrives() {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let near = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let mut far = listener.accept().unwrap().0;
        let ongoing = Ongoing::new("there".into());
        ongoing.tell_last(interrupted()); // not connected yet
        ongoing.connected(&near).unwrap();
        ongoing.tell_last(interrupted());
        drop((ongoing, near));
        assert_eq!(last_word(&mut far).unwrap(), "interrupted by SIGTERM");
        assert_eq!(last_word(&mut far), None);
    }
}
