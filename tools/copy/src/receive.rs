//! The receiving end of one copy.

mod entries;
mod modes;

use std::borrow::Cow;
use std::collections::{BTreeMap, HashMap, HashSet, VecDeque};
use std::net::TcpStream;
use std::time::Duration;

use anyhow::{Context, Result, anyhow, bail, ensure};
use base::frame::{self, GONE};
use base::outcome::CommandError;
use base::session::receiver_ended;
use rdma_conn::device::Device;
use rdma_conn::direct_read::{
    Buffer, BufferConfig, Config, FileReading, FileRegion, Incoming, ReadError, Reading, Receiver,
    RecvError,
};
use rdma_conn::send_recv::CloseReason;
use rdma_conn::verbs_safe::RegisterError;
use rdma_conn::{OfferedMessage, ZeroCopyRecv};

use super::ending::{Hand, last_word};
use super::partial_file::{BUFFERS, PartialFile, WORTH_MAPPING};
use super::place::Root;
use super::report::Noted;
use super::tally::CopyTally;
use super::wire::{APP_BYTES, CopyReply, Finished, GREETING, Hash, PATIENCE, PIECE, Word, is_copy};
use crate::cli::CopyArgs;
use modes::{Modes, set_modes};

/// The most steps that are queued, whatever the sender asks for: [`BUFFERS`] does not limit
/// messages without bytes.
const STEPS: usize = 64;

const SENDER_GONE: &str = "the sender has gone";
/// Longest time in which the sender reads why this end gives up.
const LAST_WORD: Duration = Duration::from_secs(2);

/// Result of a copy.
#[derive(Debug, Default)]
pub(super) struct ReceivedCopy {
    /// Those of the bytes read that have landed in the files themselves, and why the others
    /// of a size that is worth it have not.
    pub(super) mapped: u64,
    pub(super) not_mapped: Option<String>,
    /// Entries that have failed, with the reasons.
    pub(super) failed: Noted,
    /// Entries that are here, and not in all as they are at the sender.
    pub(super) differing: Noted,
    /// Set when the sender has said that this is all, and everything was written.
    pub(super) finished: Option<Finished>,
    /// Reason for which the copy ended before that.
    pub(super) error: Option<CommandError>,
}

impl ReceivedCopy {
    /// Counts the bytes that were written so far, by the way in which they were.
    pub(super) fn written(&self, tally: &CopyTally) -> Finished {
        let mapped = self.mapped;
        Finished { mapped, buffered: tally.moved() - mapped, synced: false }
    }
}

/// Settings of either end.
pub(super) fn config(base: Config) -> Config {
    Config { app_bytes: APP_BYTES, ..base }
}

/// Admits a sender of copies; refuses any other connection.
///
/// # Errors
/// Why it was refused.
pub(super) fn welcome(incoming: Incoming) -> Result<Incoming, String> {
    match judge(incoming.application()) {
        Ok(()) => Ok(incoming),
        Err(why) => {
            incoming.refuse(&why);
            Err(why)
        }
    }
}

/// Checks that an end with this greeting in the handshake may copy here.
fn judge(greeting: &[u8]) -> Result<(), String> {
    match greeting {
        GREETING => Ok(()),
        _ if is_copy(greeting) => {
            Err("the connecting end is another version of rdma-conn: run the same one".into())
        }
        _ => Err("the listening end receives copies: `rdma-conn copy --to` sends them".into()),
    }
}

/// Receives one copy into `root`, over a connection that [`welcome`] has admitted.
pub(super) fn receive(
    incoming: Incoming,
    device: &Device,
    config: &Config,
    root: &Root,
    options: &CopyArgs,
    hand: &Hand,
) -> Result<ReceivedCopy> {
    let stream = incoming.stream().try_clone()?;
    let receiver = incoming.accept_receiver(device, config)?;
    let mut receiving = CopyReceiver::new(receiver, device, stream, root, options, hand)?;
    if let Err(e) = receiving.run() {
        receiving.give_up_all(e);
    } else if receiving.received.finished.is_none() {
        receiving.received.error = Some(anyhow!("the sender has ended before it has sent all"));
    }
    Ok(receiving.received)
}

/// Something to be done, in the order in which it was asked for.
enum CopyStep {
    Word(Word),
    /// A message that is being read, with what it is.
    Read(Reading, Word),
    /// A piece that lands in its file. No more of them are on their way than there are
    /// buffers: one has to stay for it.
    Place(FileReading, EntryPiece, Buffer),
}

/// Result of asking for more.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum AskResult {
    Began,
    /// There is nothing now, or no room for it.
    Nothing,
    /// There will be nothing.
    Closed,
}

/// A piece of an entry.
struct EntryPiece {
    entry: u32,
    number: u64,
    hash: Hash,
    bytes: u64,
}

/// Destination of the pieces of files.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum PieceDestination {
    /// In the files themselves, where those can be registered.
    Files,
    /// In buffers, and why.
    Buffers(&'static str),
}

impl PieceDestination {
    /// Returns the destination that was asked for, or the faster one: a card writes to a file's
    /// pages by itself, and so no processor has to copy; the software device is the processor, to
    /// which a mapping is more work than a write.
    fn choose(options: &CopyArgs, device: &Device) -> PieceDestination {
        match (options.buffers, options.mapped, device.copies_on_processor()) {
            (true, ..) => PieceDestination::Buffers("--buffers was given"),
            (_, false, true) => PieceDestination::Buffers(
                "the device is in software, where this is faster (--mapped: into the files)",
            ),
            _ => PieceDestination::Files,
        }
    }
}

struct CopyReceiver<'a> {
    receiver: Receiver,
    device: &'a Device,
    stream: TcpStream,
    /// Longest time in which the sender reads an answer.
    patience: Duration,
    root: &'a Root,
    force: bool,
    /// Destination of the pieces: the files themselves, or buffers.
    maps: PieceDestination,
    /// True if all that was copied is to be on its disk before this end says that it is done.
    syncs: bool,
    /// File systems none of whose files can be registered, by their numbers.
    refused: HashSet<u64>,
    buffers: Vec<Buffer>,
    steps: VecDeque<CopyStep>,
    files: HashMap<u32, PartialFile>,
    /// Directories that get their modes when they are filled,
    /// [`DIRECTORIES`](entries::DIRECTORIES) at most. No descriptor is kept: there may be more of
    /// them than descriptors.
    modes: Modes,
    /// Entries that were begun, in order, and the names of those that have not ended.
    begun: u32,
    names: HashMap<u32, Vec<u8>>,
    hand: &'a Hand,
    tally: &'a CopyTally,
    received: ReceivedCopy,
}

impl<'a> CopyReceiver<'a> {
    fn new(
        receiver: Receiver,
        device: &'a Device,
        stream: TcpStream,
        root: &'a Root,
        options: &CopyArgs,
        hand: &'a Hand,
    ) -> Result<CopyReceiver<'a>> {
        hand.ongoing.connected(&stream)?;
        let buffers = (0..BUFFERS)
            .map(|_| device.pd().register_buffer(PIECE, BufferConfig::default()))
            .collect::<Result<_, _>>()
            .context("registering memory to read into")?;
        Ok(CopyReceiver {
            receiver,
            device,
            stream,
            patience: PATIENCE,
            root,
            force: options.force,
            maps: PieceDestination::choose(options, device),
            syncs: !options.no_sync,
            refused: HashSet::new(),
            buffers,
            steps: VecDeque::new(),
            files: HashMap::new(),
            modes: BTreeMap::new(),
            begun: 0,
            names: HashMap::new(),
            hand,
            tally: &hand.ongoing.tally,
            received: ReceivedCopy::default(),
        })
    }

    fn run(&mut self) -> Result<()> {
        loop {
            let asked = self.ask()?;
            // What is here is dealt with before more comes: it is in the processor's cache.
            if asked == AskResult::Began && !self.is_next_here()? {
                continue;
            }
            match self.steps.pop_front() {
                Some(step) => self.step(step)?,
                None if asked == AskResult::Closed => return Ok(()),
                // Seen, and taken by the next round.
                None => match self.receiver.next_request() {
                    Ok(_) | Err(RecvError::Closed) => {}
                    Err(e) => return Err(e.into()),
                },
            }
        }
    }

    /// Reports whether the next step needs no waiting.
    fn is_next_here(&mut self) -> Result<bool> {
        Ok(match self.steps.front() {
            None => false,
            Some(CopyStep::Word(_)) => true,
            Some(CopyStep::Read(reading, _)) => self.receiver.is_done(*reading)?,
            Some(CopyStep::Place(reading, ..)) => self.receiver.is_file_done(*reading)?,
        })
    }

    /// Begins to read what is offered next, if there is a buffer and not too much is to be
    /// done.
    fn ask(&mut self) -> Result<AskResult> {
        if self.steps.len() >= STEPS {
            return Ok(AskResult::Nothing);
        }
        let Some(buffer) = self.buffers.pop() else { return Ok(AskResult::Nothing) };
        let (word, bytes) = match self.receiver.try_next_request() {
            Ok(request) => (Word::decode(request.app())?, request.bytes()),
            Err(e) => {
                self.buffers.push(buffer);
                return match e {
                    RecvError::Empty => Ok(AskResult::Nothing),
                    RecvError::Closed => Ok(AskResult::Closed),
                    other => Err(other.into()),
                };
            }
        };
        self.read(word, bytes, buffer).map(|()| AskResult::Began)
    }

    /// Begins to read the oldest message.
    fn read(&mut self, word: Word, bytes: u64, buffer: Buffer) -> Result<()> {
        let (entry, number, hash) = match word {
            Word::Data { entry, piece, hash } if bytes > 0 => (entry, piece, hash),
            word => return self.read_word(word, bytes, buffer),
        };
        let room = self.prepare(entry, number, bytes)?;
        self.read_piece(EntryPiece { entry, number, hash, bytes }, room, buffer)
    }

    /// Begins to read a piece: the oldest message.
    fn read_piece(
        &mut self,
        piece: EntryPiece,
        room: Option<FileRegion>,
        buffer: Buffer,
    ) -> Result<()> {
        let mut request = self.receiver.next_request()?;
        if let Some(region) = room {
            match request.read_into_file(region) {
                Ok(reading) => {
                    self.steps.push_back(CopyStep::Place(reading, piece, buffer));
                    return Ok(());
                }
                Err(not_read) => request = not_read.request,
            }
        }
        let EntryPiece { entry, number: piece, hash, .. } = piece;
        let reading = request.read_into(buffer).map_err(|e| e.error)?;
        self.steps.push_back(CopyStep::Read(reading, Word::Data { entry, piece, hash }));
        Ok(())
    }

    fn read_word(&mut self, word: Word, bytes: u64, buffer: Buffer) -> Result<()> {
        let request = self.receiver.next_request()?;
        if bytes == 0 {
            request.take_empty().ok().context("a message without bytes")?;
            self.buffers.push(buffer);
            self.steps.push_back(CopyStep::Word(word));
            return Ok(());
        }
        let reading = request.read_into(buffer).map_err(|e| e.error)?;
        self.steps.push_back(CopyStep::Read(reading, word));
        Ok(())
    }

    /// Returns the registered part of a file in which a piece may land, if it may land in the file
    /// itself. If the file fails, the sender is told at once, and the file's pieces that are still
    /// on their way are dropped.
    fn prepare(&mut self, entry: u32, piece: u64, bytes: u64) -> Result<Option<FileRegion>> {
        let Some(file) = self.files.get_mut(&entry) else { return Ok(None) };
        if let Err(e) = file.expect(piece, self.force) {
            return self.give_up(entry, &e).map(|()| None);
        }
        let disk = file.disk();
        if bytes < WORTH_MAPPING || self.refused.contains(&disk) {
            return Ok(None);
        }
        if let PieceDestination::Buffers(why) = self.maps {
            self.received.not_mapped = Some(why.to_owned());
            return Ok(None);
        }
        let room = file.room(self.device, piece, bytes).map_err(|e| {
            // What was refused once is refused again, and trying costs more than a copy.
            if e.is::<RegisterError>() {
                self.refused.insert(disk);
            }
            self.received.not_mapped = Some(format!("{e:#}"));
        });
        Ok(room.ok())
    }

    fn step(&mut self, step: CopyStep) -> Result<()> {
        match step {
            CopyStep::Word(Word::Begin { entry, what, mode, len, name }) => {
                self.begin(entry, what, mode, len, &name, b"")
            }
            CopyStep::Word(Word::End { entry, hash }) => self.end(entry, hash),
            CopyStep::Word(Word::Abandon { entry }) => {
                if let Some(file) = self.files.remove(&entry) {
                    file.abandon();
                }
                self.fail(entry, "the sender cannot read it, or it changes meanwhile".into())
            }
            CopyStep::Word(Word::Finish) => self.finish(),
            CopyStep::Word(Word::Data { .. }) => bail!("a piece of no bytes"),
            CopyStep::Read(reading, word) => self.landed(reading, word),
            CopyStep::Place(reading, piece, buffer) => self.placed(reading, &piece, buffer),
        }
    }

    fn landed(&mut self, reading: Reading, word: Word) -> Result<()> {
        let message = self.receiver.wait(reading)?;
        match word {
            Word::Begin { entry, what, mode, len, name } => {
                self.begin(entry, what, mode, len, &name, &message)?;
            }
            Word::Data { entry, piece, hash } => {
                self.tally.moves(message.len() as u64);
                self.piece(entry, piece, hash, &message)?;
            }
            other => bail!("a word with bytes: {other:?}"),
        }
        self.buffers.push(message.into_buffer());
        Ok(())
    }

    /// Writes a piece.
    fn piece(&mut self, entry: u32, piece: u64, hash: Hash, bytes: &[u8]) -> Result<()> {
        ensure!(entry < self.begun, "a piece of nothing");
        let Some(file) = self.files.get_mut(&entry) else { return Ok(()) };
        match file.write(piece, hash, bytes) {
            Ok(()) => Ok(()),
            Err(e) => self.give_up(entry, &e),
        }
    }

    /// A piece is in its file.
    fn placed(&mut self, reading: FileReading, piece: &EntryPiece, buffer: Buffer) -> Result<()> {
        let EntryPiece { entry, number, hash, bytes } = *piece;
        let landed = self.receiver.wait_file(reading);
        drop(landed.map_err(|e| self.not_placed(entry, e))?);
        self.buffers.push(buffer);
        self.tally.moves(bytes);
        self.received.mapped += bytes;
        let Some(file) = self.files.get_mut(&entry) else { return Ok(()) };
        match file.landed(number, hash, bytes) {
            Ok(()) => Ok(()),
            Err(e) => self.give_up(entry, &e),
        }
    }

    /// Adds advice to the failure of a piece that has not landed in its file: the queue pair ended
    /// with it, where the memory was no more, or before it.
    fn not_placed(&self, entry: u32, error: ReadError) -> CommandError {
        let ended = match &error {
            ReadError::Recv(RecvError::Peer { reason, .. } | RecvError::Ended(reason)) => reason,
            _ => return error.into(),
        };
        if !matches!(ended, CloseReason::Device(_)) {
            return error.into();
        }
        let name = self.name(entry);
        CommandError::from(error).context(format!(
            "writing to {name} itself (if it was truncated, or its disk is full: run the \
             copy again, which goes on from there; with --buffers only that file fails)"
        ))
    }

    /// The name of an entry that has not ended.
    fn name(&self, entry: u32) -> Cow<'_, str> {
        self.names.get(&entry).map_or("a file".into(), |name| String::from_utf8_lossy(name))
    }

    /// Gives up all that is missing, and tells the sender why.
    fn give_up_all(&mut self, why: CommandError) {
        let is_lost = matches!(receiver_ended(&why), Some(CloseReason::PeerLost(_)));
        let why = if is_lost { why.context(SENDER_GONE) } else { why };
        let why = match why.to_string() == SENDER_GONE {
            true => last_word(&mut self.stream).map_or(why, |why| anyhow!("{SENDER_GONE}: {why}")),
            false => why,
        };
        // A sender that does not read gets only this much time, not the patience of a reply.
        self.patience = LAST_WORD;
        frame::give_up(&why, |why| self.reply(&CopyReply::GivenUp { why }));
        // Those that were there had one before. What is not said here, the next copy says.
        drop(set_modes(self.root, std::mem::take(&mut self.modes)));
        self.received.error = Some(why);
    }

    fn reply(&mut self, reply: &CopyReply) -> Result<()> {
        let told = self.hand.ongoing.tell(reply, self.patience);
        told.map_err(|e| match e.to_string() == GONE {
            true => anyhow!("{}", e.root_cause()).context(SENDER_GONE),
            false => anyhow!("the sender does not listen: {:?} for an answer", self.patience),
        })
    }
}

#[cfg(test)]
mod tests;
