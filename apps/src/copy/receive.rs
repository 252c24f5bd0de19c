//! The receiving end of one copy.

use std::collections::{HashMap, VecDeque};
use std::fs::File;
use std::io::Write;
use std::net::TcpStream;
use std::os::unix::fs::FileExt;

use anyhow::{Context, Result, bail, ensure};
use rdma_conn::device::Device;
use rdma_conn::direct_read::{
    Buffer, BufferConfig, Config, Incoming, Reading, Receiver, RecvError,
};

use super::place::{Found, Place, Root};
use super::wire::{
    APP_BYTES, GREETING, Hash, PIECE, Reply, What, Word, hash, hash_of_hashes, pieces,
};

/// Why something is not replaced.
const EXISTS: &str = "it exists and differs: --force at the receiver replaces it";

/// Pieces that are read at a time.
const BUFFERS: usize = 8;

/// What came of a copy.
#[derive(Debug, Default)]
pub(super) struct Received {
    pub(super) entries: u64,
    /// Bytes that were read, and that were there already.
    pub(super) read: u64,
    pub(super) had: u64,
    pub(super) failed: Vec<(String, String)>,
    /// The sender has said that this is all.
    pub(super) finished: bool,
}

/// Settings of either end.
pub(super) fn config(base: Config) -> Config {
    Config { app_bytes: APP_BYTES, ..base }
}

/// Receives one copy into `root`.
pub(super) fn receive(
    incoming: Incoming,
    device: &Device,
    config: &Config,
    root: &Root,
    force: bool,
) -> Result<Received> {
    if incoming.application() != GREETING {
        incoming.refuse("this end receives copies: rdma-conn copy --to");
        bail!("somebody who does not copy was refused");
    }
    let stream = incoming.stream().try_clone()?;
    let receiver = incoming.accept(device, config)?;
    stream.set_write_timeout(None)?;
    let buffers = (0..BUFFERS)
        .map(|_| device.pd().register_buffer(PIECE, BufferConfig::default()))
        .collect::<Result<_, _>>()
        .context("registering memory to read into")?;
    let mut receiving = Receiving {
        receiver,
        stream,
        root,
        force,
        buffers,
        steps: VecDeque::new(),
        files: HashMap::new(),
        modes: Vec::new(),
        names: HashMap::new(),
        received: Received::default(),
    };
    receiving.run()?;
    Ok(receiving.received)
}

/// Something to be done, in the order in which it was asked for.
enum Step {
    Word(Word),
    /// A message that is being read, with what it is.
    Read(Reading, Word),
}

/// A file that is being gathered.
struct Gathering {
    place: Place,
    file: File,
    mode: u32,
    len: u64,
    hashes: Vec<Hash>,
    /// It is here under its name, or will be replaced.
    whole: bool,
}

struct Receiving<'a> {
    receiver: Receiver,
    stream: TcpStream,
    root: &'a Root,
    force: bool,
    buffers: Vec<Buffer>,
    steps: VecDeque<Step>,
    files: HashMap<u32, Gathering>,
    /// Modes of directories, which they get at the end: they have to be filled before.
    modes: Vec<(Place, u32)>,
    names: HashMap<u32, String>,
    received: Received,
}

impl Receiving<'_> {
    fn run(&mut self) -> Result<()> {
        loop {
            let open = self.ask()?;
            match self.steps.pop_front() {
                Some(step) => self.step(step)?,
                None if !open => return Ok(()),
                // Seen, and taken by the next round.
                None => match self.receiver.next_request() {
                    Ok(_) | Err(RecvError::Closed) => {}
                    Err(e) => return Err(e.into()),
                },
            }
        }
    }

    /// Begins to read all that is offered, as long as there are buffers; whether more may
    /// come.
    fn ask(&mut self) -> Result<bool> {
        loop {
            let Some(buffer) = self.buffers.pop() else { return Ok(true) };
            let request = match self.receiver.try_next_request() {
                Ok(request) => request,
                Err(e) => {
                    self.buffers.push(buffer);
                    return match e {
                        RecvError::Empty => Ok(true),
                        RecvError::Closed => Ok(false),
                        other => Err(other.into()),
                    };
                }
            };
            let word = Word::decode(request.app())?;
            if request.bytes() == 0 {
                request.take_empty().ok().context("a message without bytes")?;
                self.buffers.push(buffer);
                self.steps.push_back(Step::Word(word));
                continue;
            }
            match request.read_into(buffer) {
                Ok(reading) => self.steps.push_back(Step::Read(reading, word)),
                Err(not_read) => bail!("{}", not_read.why),
            }
        }
    }

    fn step(&mut self, step: Step) -> Result<()> {
        match step {
            Step::Word(Word::Begin { entry, what, mode, len, name }) => {
                self.begin(entry, what, mode, len, &name, b"")
            }
            Step::Word(Word::End { entry, hash }) => self.end(entry, hash),
            Step::Word(Word::Abandon { entry }) => {
                if let Some(file) = self.files.remove(&entry) {
                    file.abandon();
                }
                self.fail(entry, "its source has failed".into())
            }
            Step::Word(Word::Finish) => self.finish(),
            Step::Word(Word::Data { .. }) => bail!("a piece of no bytes"),
            Step::Read(reading, word) => self.landed(reading, word),
        }
    }

    fn landed(&mut self, reading: Reading, word: Word) -> Result<()> {
        let message = self.receiver.wait(reading)?;
        match word {
            Word::Begin { entry, what, mode, len, name } => {
                self.begin(entry, what, mode, len, &name, &message)?;
            }
            Word::Data { entry, piece, hash } => {
                self.received.read += message.len() as u64;
                self.piece(entry, piece, hash, &message)?;
            }
            other => bail!("a word with bytes: {other:?}"),
        }
        self.buffers.push(message.into_buffer());
        Ok(())
    }

    /// Writes a piece. A file that has failed is told at once, and what is still on its
    /// way of it is of no use.
    fn piece(&mut self, entry: u32, piece: u64, hash: Hash, bytes: &[u8]) -> Result<()> {
        ensure!(self.names.contains_key(&entry), "a piece of nothing");
        let Some(file) = self.files.get_mut(&entry) else { return Ok(()) };
        let Err(e) = file.write(piece, hash, bytes, self.force) else { return Ok(()) };
        if let Some(file) = self.files.remove(&entry) {
            file.abandon();
        }
        self.fail(entry, format!("{e:#}"))
    }

    fn begin(
        &mut self,
        entry: u32,
        what: What,
        mode: u32,
        len: u64,
        name: &[u8],
        target: &[u8],
    ) -> Result<()> {
        self.names.insert(entry, String::from_utf8_lossy(name).into_owned());
        let begun = self.root.place(name).and_then(|place| match what {
            What::Directory => {
                place.make_directory()?;
                self.modes.push((place, mode));
                Ok(None)
            }
            What::Link => place.make_link(target, self.force).map(|()| None),
            What::File => Gathering::new(place, mode, len, self.force).map(Some),
        });
        match begun {
            Ok(None) => self.done(entry),
            Ok(Some(file)) => {
                let (pieces, hash) = (file.hashes.len() as u64, hash_of_hashes(&file.hashes));
                self.files.insert(entry, file);
                self.reply(&Reply::Have { entry, pieces, hash })
            }
            Err(e) => self.fail(entry, format!("{e:#}")),
        }
    }

    fn end(&mut self, entry: u32, hash: Hash) -> Result<()> {
        let Some(file) = self.files.remove(&entry) else { return Ok(()) };
        let had = file.len;
        match file.end(hash, self.force) {
            Ok(kept) => {
                self.received.had += if kept { had } else { 0 };
                self.done(entry)
            }
            Err(e) => self.fail(entry, format!("{e:#}")),
        }
    }

    fn finish(&mut self) -> Result<()> {
        for (place, mode) in self.modes.drain(..).rev() {
            if let Err(e) = place.set_directory_mode(mode) {
                tracing::warn!(error = %e, "a directory has not got its mode");
            }
        }
        self.received.finished = true;
        self.reply(&Reply::Finished)
    }

    fn done(&mut self, entry: u32) -> Result<()> {
        self.received.entries += 1;
        self.reply(&Reply::Done { entry })
    }

    fn fail(&mut self, entry: u32, why: String) -> Result<()> {
        let name = self.names.get(&entry).cloned().unwrap_or_default();
        tracing::info!(name, why, "not copied");
        self.received.failed.push((name, why.clone()));
        self.reply(&Reply::Failed { entry, why })
    }

    fn reply(&mut self, reply: &Reply) -> Result<()> {
        let mut line = serde_json::to_vec(reply)?;
        line.push(b'\n');
        self.stream.write_all(&line).context("telling the sender")
    }
}

impl Gathering {
    /// Looks what there is of a file: under its name, or of an earlier copy.
    fn new(place: Place, mode: u32, len: u64, force: bool) -> Result<Gathering> {
        let found = place.found()?;
        ensure!(
            matches!(found, Found::Nothing | Found::File(_) | Found::Link),
            "there is something of this name that is no file"
        );
        let whole = found == Found::File(len);
        ensure!(whole || force || found == Found::Nothing, EXISTS);
        let file = if whole { place.open()? } else { place.open_partial()? };
        let there = file.metadata()?.len().min(len);
        // Only whole pieces are built upon, and the last one of a whole file.
        let count = if whole { pieces(len) } else { there / PIECE as u64 };
        let hashes = read_hashes(&file, count, len)?;
        Ok(Gathering { place, file, mode, len, hashes, whole })
    }

    fn write(&mut self, piece: u64, expected: Hash, bytes: &[u8], force: bool) -> Result<()> {
        ensure!(hash(bytes) == expected, "a piece has arrived as something else");
        if piece == 0 {
            ensure!(force || !self.whole, EXISTS);
            self.restart()?;
        }
        ensure!(!self.whole, "a piece of a file that is here");
        ensure!(piece == self.hashes.len() as u64, "a piece out of order");
        let offset = piece * PIECE as u64;
        let end = offset + bytes.len() as u64;
        ensure!(end == self.len.min(offset + PIECE as u64), "a piece of a wrong length");
        self.file.write_all_at(bytes, offset)?;
        self.hashes.push(expected);
        Ok(())
    }

    /// What was here is of no use.
    fn restart(&mut self) -> Result<()> {
        if self.whole {
            self.file = self.place.open_partial()?;
            self.whole = false;
        }
        self.hashes.clear();
        Ok(self.file.set_len(0)?)
    }

    /// Nothing is left of what was gathered; what was here stays.
    fn abandon(&self) {
        if !self.whole {
            self.place.abandon();
        }
    }

    /// Verifies it, and gives it its name; whether it was here already.
    fn end(mut self, expected: Hash, force: bool) -> Result<bool> {
        if self.len == 0 && !self.whole {
            self.hashes.clear();
        }
        let complete = self.hashes.len() as u64 == pieces(self.len);
        if !complete || hash_of_hashes(&self.hashes) != expected {
            self.abandon();
            bail!("its checksum is another one");
        }
        if self.whole {
            rustix::fs::fchmod(&self.file, rustix::fs::Mode::from_raw_mode(self.mode & 0o777))?;
            return Ok(true);
        }
        self.file.set_len(self.len)?;
        let finished = self.place.finish(&self.file, self.mode, force);
        finished.inspect_err(|_| self.place.abandon())?;
        Ok(false)
    }
}

/// Hashes of the first pieces of a file.
fn read_hashes(file: &File, count: u64, len: u64) -> Result<Vec<Hash>> {
    let mut bytes = vec![0; if count > 0 { PIECE } else { 0 }];
    (0..count)
        .map(|piece| {
            let offset = piece * PIECE as u64;
            let part = &mut bytes[..(len - offset).min(PIECE as u64) as usize];
            file.read_exact_at(part, offset)?;
            Ok(hash(part))
        })
        .collect()
}
