//! The sending end: one thread a receiver, none of which waits for another for long.

use std::collections::BTreeMap;
use std::fs::File;
use std::net::{SocketAddr, TcpStream};
use std::os::unix::fs::OpenOptionsExt;
use std::time::Duration;

use anyhow::{Context, Result, anyhow, ensure};
use base::frame;
use base::outcome::CommandError;
use base::session::{dial, explain, notice_death, sender_ended};
use host::channel::{Receiver as Replies, RecvError, bounded};
use indicatif::ProgressBar;
use rdma_conn::ZeroCopySend;
use rdma_conn::device::Device;
use rdma_conn::direct_read::{self, Config, FrozenBuffer, Outcome as Fate, Sender, Sent};
use rdma_conn::verbs_safe::BufferConfig;
use rustix::fs::OFlags;

use super::ending::Ongoing;
use super::piece_cache::{CacheReader, Pieces};
use super::source::TreeEntry;
use super::tally::CopyTally;
use super::wire::{
    APP_BYTES, CopyReply, Finished, GREETING, Hash, MOST_REPLY, PATIENCE, Word, hash_of_hashes,
    pieces,
};

/// Entries that are begun ahead, so that the receiver looks what it has of them while
/// others are being sent.
pub(super) const AHEAD: usize = 64;
/// Replies that are kept until the sender takes them. Each message but the last has two at most,
/// and no more messages are under way than the window and the receiver's steps.
const REPLIES: usize = 256;
/// Time that the sender waits for a reply before it checks whether the receiver lives.
const LOOK: Duration = Duration::from_millis(200);

/// Longest time, in all, in which the receiver says why it has ended.
const LAST_WORDS: Duration = Duration::from_secs(2);

/// A fifo or a link that has taken the place of a file does not lead elsewhere.
const FLAGS: i32 = OFlags::NONBLOCK.union(OFlags::NOFOLLOW).bits() as i32;

/// Data that all receivers are sent, and its settings.
#[derive(Debug, Clone, Copy)]
pub(super) struct CopySource<'a> {
    pub(super) device: &'a Device,
    pub(super) entries: &'a [TreeEntry],
    pub(super) pieces: &'a Pieces,
    pub(super) config: Config,
}

/// The result at one receiver.
#[derive(Debug, Default)]
pub(super) struct ReceiverResult {
    /// The receiver's account of how it was written.
    pub(super) finished: Option<Finished>,
    /// Entries that failed there, with the reasons.
    pub(super) failed: Vec<(usize, String)>,
    /// Entries that this end cannot read, with the reasons.
    pub(super) unreadable: Vec<(usize, String)>,
    /// Entries that are there, and not in all as they are here, with the reasons.
    pub(super) differing: BTreeMap<usize, String>,
}

/// Reason for which a receiver was not sent everything.
#[derive(Debug)]
pub(super) enum Stopped {
    /// There was no connection to it; the reason names it.
    Before(CommandError),
    /// The connection or the receiver failed later.
    During(CommandError),
}

/// The receiver sends no more replies.
#[derive(Debug, thiserror::Error)]
#[error("it does not answer any more")]
struct ReceiverGone;

/// Copies everything to one receiver.
pub(super) fn copy(
    source: CopySource<'_>,
    to: SocketAddr,
    runner: CacheReader<'_>,
    ongoing: &Ongoing,
    bar: &ProgressBar,
) -> (ReceiverResult, Result<(), Stopped>) {
    let mut copying = match CopySender::begin_with(source, to, ongoing, bar) {
        Ok(copying) => copying,
        Err(e) => return (ReceiverResult::default(), Err(Stopped::Before(e))),
    };
    match copying.run(runner) {
        Ok(()) => (copying.done(), copying.close().map_err(Stopped::During)),
        Err(e) => {
            let why = copying.cause(e);
            (copying.done(), Err(Stopped::During(why)))
        }
    }
}

/// Reads what the receiver says, and no further ahead of its consumer than [`REPLIES`].
fn listen(stream: &TcpStream) -> Result<Replies<CopyReply>> {
    let (send, replies) = bounded(REPLIES);
    let mut stream = stream.try_clone()?;
    notice_death(&stream)?;
    host::thread::spawn("replies", move || {
        // The consumer has dropped its end, or nothing more arrives: either way this is the end.
        while let Ok(reply) = next_reply(&mut stream, PATIENCE)
            && send.send(reply).is_ok()
        {}
    })?;
    Ok(replies)
}

/// The next reply. A receiver may take long to begin one, but only `patience` to finish it.
fn next_reply(stream: &mut TcpStream, patience: Duration) -> Result<CopyReply> {
    stream.set_read_timeout(None)?;
    frame::read(stream, MOST_REPLY, patience)
}

/// State of an entry.
#[derive(Debug, Clone, PartialEq, Eq)]
enum EntryState {
    Have {
        pieces: u64,
        hash: Hash,
    },
    Done,
    Failed(String),
    /// At this end.
    Unreadable(String),
}

struct CopySender<'a> {
    source: CopySource<'a>,
    sender: Sender<FrozenBuffer>,
    replies: Replies<CopyReply>,
    /// For messages that are words only.
    empty: FrozenBuffer,
    known: Vec<Option<EntryState>>,
    differing: BTreeMap<usize, String>,
    finished: Option<Finished>,
    /// The receiver's reason for giving up, if it gave one.
    given_up: Option<String>,
    tally: &'a CopyTally,
    bar: &'a ProgressBar,
}

impl<'a> CopySender<'a> {
    /// Connects to a receiver; what goes wrong names it.
    fn begin_with(
        source: CopySource<'a>,
        to: SocketAddr,
        ongoing: &'a Ongoing,
        bar: &'a ProgressBar,
    ) -> Result<CopySender<'a>> {
        let mut stream = dial(to)?;
        let (device, config) = (source.device, &source.config);
        let sender = direct_read::connect_over(&mut stream, device, config, GREETING);
        let sender = sender.map_err(|e| explain(e, to, "copy"))?;
        let prepared = listen(&stream).and_then(|replies| {
            ongoing.connected(&stream)?;
            let empty = device.pd().register_buffer(0, BufferConfig::READABLE)?.freeze();
            Ok((replies, empty))
        });
        let (replies, empty) = prepared.with_context(|| format!("the copy to {to}"))?;
        let known = vec![None; source.entries.len()];
        let (finished, given_up, tally) = (None, None, &ongoing.tally);
        let differing = BTreeMap::new();
        Ok(CopySender {
            source,
            sender,
            replies,
            empty,
            known,
            differing,
            finished,
            given_up,
            tally,
            bar,
        })
    }

    fn run(&mut self, runner: CacheReader<'_>) -> Result<()> {
        let entries = self.source.entries;
        let mut begun = 0;
        for (at, entry) in entries.iter().enumerate() {
            while begun < entries.len().min(at + AHEAD) {
                self.begin(begun)?;
                begun += 1;
            }
            if entry.what == super::wire::EntryKind::File {
                self.file(at, &runner)?;
            }
        }
        // No more pieces are kept for this receiver.
        drop(runner);
        self.say(&Word::Finish)?;
        while self.finished.is_none() {
            self.hear()?;
        }
        let open =
            self.known.iter().filter(|known| matches!(known, None | Some(EntryState::Have { .. })));
        ensure!(open.count() == 0, "the receiver has finished without a word on some entries");
        self.take_back()?;
        self.sender.wait_all()?;
        self.take_back()
    }

    /// Closes the connection.
    fn close(self) -> Result<()> {
        for sent in self.sender.close_and_take()? {
            self.source.pieces.take_back(sent.buffer);
        }
        Ok(())
    }

    /// The result until now.
    fn done(&self) -> ReceiverResult {
        let differing = self.differing.clone();
        let mut done =
            ReceiverResult { finished: self.finished, differing, ..ReceiverResult::default() };
        for (at, known) in self.known.iter().enumerate() {
            match known {
                Some(EntryState::Failed(why)) => done.failed.push((at, why.clone())),
                Some(EntryState::Unreadable(why)) => done.unreadable.push((at, why.clone())),
                _ => {}
            }
        }
        done
    }

    /// Returns the cause of the end of a copy: the receiver's reason, if the receiver ended it.
    fn cause(&mut self, failure: CommandError) -> CommandError {
        let is_theirs = sender_ended(&failure)
            .is_some_and(|e| e.is_close() || matches!(e, direct_read::CloseReason::PeerLost(_)))
            || failure.is::<ReceiverGone>();
        let end = host::time::now() + LAST_WORDS;
        // The receiver's reason follows all its replies.
        while is_theirs && self.given_up.is_none() {
            let left = end.saturating_duration_since(host::time::now());
            match self.replies.recv_timeout(left) {
                Ok(reply) => drop(self.heard(reply)),
                Err(_) => break,
            }
        }
        match &self.given_up {
            Some(why) => anyhow!("the receiver has given up: {why}"),
            None if is_theirs => {
                anyhow!("the receiver has gone ({failure:#}): look why, and start it again")
            }
            None => failure,
        }
    }

    fn begin(&mut self, at: usize) -> Result<()> {
        let TreeEntry { what, name, mode, len, target, .. } = &self.source.entries[at];
        let (what, mode, len, name) = (*what, *mode, *len, name.clone());
        let word = Word::Begin { entry: at as u32, what, mode, len, name };
        if target.is_empty() {
            return self.say(&word);
        }
        let config = BufferConfig::READABLE;
        let mut buffer = self.source.device.pd().register_buffer(target.len(), config)?;
        buffer.copy_from_slice(target);
        let len = target.len();
        self.send(buffer.freeze(), len, &word)
    }

    /// Sends what a receiver lacks of a file.
    fn file(&mut self, at: usize, runner: &CacheReader<'_>) -> Result<()> {
        let entry = &self.source.entries[at];
        let known = self.answer(at)?;
        let EntryState::Have { pieces: have, hash } = known else { return Ok(()) };
        let opened = File::options().read(true).custom_flags(FLAGS).open(&entry.path);
        let file = match opened {
            Ok(file) => file,
            Err(e) => return self.abandon(at, format!("it cannot be read: {e}")),
        };
        let (mut hashes, total) = (Vec::new(), pieces(entry.len));
        // Pieces that the receiver has already are compared before it builds on them.
        for piece in 0..have.min(total) {
            match runner.get((at as u32, piece), entry, &file)? {
                Ok(found) => hashes.push(found.hash),
                Err(why) => return self.abandon(at, why),
            }
        }
        let same = hash_of_hashes(&hashes) == hash && have <= total;
        let first = if same { have } else { 0 };
        hashes.truncate(first as usize);
        let had = (first * super::wire::PIECE as u64).min(entry.len);
        self.tally.add_present(had);
        self.bar.inc(had);
        for piece in first..total {
            let found = match runner.get((at as u32, piece), entry, &file)? {
                Ok(found) => found,
                Err(why) => return self.abandon(at, why),
            };
            if self.has_failed(at)? {
                return Ok(());
            }
            hashes.push(found.hash);
            let word = Word::Data { entry: at as u32, piece, hash: found.hash };
            self.send(found.buffer, found.len, &word)?;
            self.tally.moves(found.len as u64);
            self.bar.inc(found.len as u64);
        }
        match entry.fault(&file) {
            Ok(None) => self.say(&Word::End { entry: at as u32, hash: hash_of_hashes(&hashes) }),
            Ok(Some(why)) => self.abandon(at, why.into()),
            Err(e) => self.abandon(at, format!("it cannot be read to its end: {e}")),
        }
    }

    /// The source has failed: the receiver drops what it has of the file.
    fn abandon(&mut self, at: usize, why: String) -> Result<()> {
        self.say(&Word::Abandon { entry: at as u32 })?;
        let before = self.known[at].replace(EntryState::Unreadable(why));
        if !matches!(before, Some(EntryState::Failed(_))) {
            self.tally.fails();
        }
        Ok(())
    }

    fn say(&mut self, word: &Word) -> Result<()> {
        self.send(self.empty.clone(), 0, word)
    }

    fn send(&mut self, buffer: FrozenBuffer, len: usize, word: &Word) -> Result<()> {
        let app = word.encode();
        ensure!(app.len() <= APP_BYTES as usize, "a name of {} bytes", app.len());
        // The receiver may be blocked on a reply, and take no more until it is read.
        self.catch_up()?;
        if let Err(not_sent) = self.sender.offer_part(buffer, 0..len, &app) {
            return Err(not_sent.error.into());
        }
        self.take_back()
    }

    fn take_back(&mut self) -> Result<()> {
        while let Some((_, Sent { buffer, outcome })) = self.sender.try_take()? {
            self.source.pieces.take_back(buffer);
            ensure!(outcome == Fate::Read, "the receiver has refused a message: {outcome:?}");
        }
        Ok(())
    }

    /// Waits for the state of a file at the receiver, to which the file was announced.
    fn answer(&mut self, at: usize) -> Result<EntryState> {
        loop {
            if let Some(known) = &self.known[at] {
                return Ok(known.clone());
            }
            self.hear()?;
        }
    }

    /// Takes what the receiver has said meanwhile.
    fn catch_up(&mut self) -> Result<()> {
        for _ in 0..REPLIES {
            let Ok(reply) = self.replies.recv_timeout(Duration::ZERO) else { break };
            self.heard(reply)?;
        }
        Ok(())
    }

    /// Reports whether the receiver has given an entry up meanwhile.
    fn has_failed(&mut self, at: usize) -> Result<bool> {
        self.catch_up()?;
        Ok(matches!(self.known[at], Some(EntryState::Failed(_))))
    }

    /// Waits for the next reply.
    fn hear(&mut self) -> Result<()> {
        let reply = loop {
            match self.replies.recv_timeout(LOOK) {
                Ok(reply) => break reply,
                Err(RecvError::TimedOut) => self.take_back()?,
                Err(RecvError::Closed) => return Err(ReceiverGone.into()),
            }
        };
        self.heard(reply)
    }

    fn heard(&mut self, reply: CopyReply) -> Result<()> {
        let (entry, known) = match reply {
            CopyReply::Have { entry, pieces, hash } => (entry, EntryState::Have { pieces, hash }),
            CopyReply::Done { entry } => (entry, EntryState::Done),
            CopyReply::Failed { entry, why } => (entry, EntryState::Failed(why)),
            CopyReply::Differs { entry, why } => {
                let at = entry as usize;
                ensure!(at < self.known.len(), "a reply about nothing");
                if self.differing.insert(at, why).is_none() {
                    self.tally.differs();
                }
                return Ok(());
            }
            CopyReply::Finished(finished) => {
                self.finished = Some(finished);
                return Ok(());
            }
            CopyReply::GivenUp { why } => {
                self.given_up = Some(why);
                return Err(ReceiverGone.into());
            }
        };
        let place = self.known.get_mut(entry as usize).context("a reply about nothing")?;
        // An entry that has ended is counted once.
        if matches!(place, None | Some(EntryState::Have { .. })) {
            match known {
                EntryState::Done => self.tally.done(),
                EntryState::Failed(_) => self.tally.fails(),
                _ => {}
            }
            *place = Some(known);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests;
