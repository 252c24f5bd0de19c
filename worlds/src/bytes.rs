//! Plays a case of a byte stream: what is written is read, in order, up to where it ends.

use std::io::{self, BufRead as _, ErrorKind, IoSlice, Read as _, Write as _};
use std::sync::Arc;

use host::sync::Mutex;
use host::{thread, time, world};
use rdma_conn::io::{ByteReader, ByteWriter};

use crate::case::{RecvStep, SendStep, SenderEnding, WorldCase};
use crate::checks::{content, unnamed, us};
use crate::meet::{SenderMeeting, inbox};
use crate::places::Site;
use crate::setup::Tuned;

/// State of the writing end, as its thread reports it.
#[derive(Debug, Default)]
struct WriterProgress {
    /// Bytes that it began to write: no others are read.
    begun: Vec<u8>,
    /// Accepted bytes.
    accepted: usize,
    /// It has closed, and all that was accepted has arrived.
    has_closed: bool,
}

/// Plays it at the sites of its ends.
pub(crate) fn play_bytes<P: Tuned>(case: &Arc<WorldCase>, sites: &[Site]) {
    let Some(mut inbox) = inbox::<P>(case, sites) else { return };
    let meeting = SenderMeeting::<P>::for_case(case);
    let Some((sender, far)) = meeting.sender(&mut inbox, case, sites, 0) else { return };
    drop(meeting);
    let told = Arc::new(Mutex::new(WriterProgress::default()));
    let writing = {
        let (case, told) = (Arc::clone(case), Arc::clone(&told));
        let write =
            move || PlayedWriter { writer: ByteWriter::new(sender), told: &told }.run(&case);
        far.run(|| thread::spawn("writer", write)).expect("a thread")
    };
    let read = read::<P>(case, ByteReader::new(inbox));
    writing.join().expect("no panic");
    let told = told.lock();
    let bytes = read;
    assert!(told.begun.starts_with(&bytes), "{} bytes that were not written", bytes.len());
    if told.has_closed && !case.receiver_is_dropped {
        assert_eq!(bytes.len(), told.accepted, "bytes of a writer that has closed");
    }
}

/// Reports whether an error of a stream is that of a case.
fn is_excused(case: &WorldCase, error: &io::Error) -> bool {
    let is_of_an_end = matches!(error.kind(), ErrorKind::BrokenPipe | ErrorKind::ConnectionReset);
    is_of_an_end && case.receiver_is_dropped || case.may_fail() || case.may_die(0)
}

/// The end that writes.
struct PlayedWriter<'t, S: rdma_conn::SendHalf + 'static> {
    writer: ByteWriter<S>,
    told: &'t Mutex<WriterProgress>,
}

impl<S: rdma_conn::SendHalf + 'static> PlayedWriter<'_, S> {
    fn run(mut self, case: &WorldCase) {
        for step in &case.senders[0] {
            world::note(|| format!("writer: {step:?}"));
            if let Err(e) = self.step(case, *step) {
                world::note(|| format!("the writer ended: {}", unnamed(&e)));
                assert!(is_excused(case, &e), "the writer ended: {e}");
                return;
            }
        }
        if case.ends[0] == SenderEnding::Drop {
            return;
        }
        match self.writer.close() {
            Ok(()) => self.told.lock().has_closed = true,
            Err(e) => assert!(is_excused(case, &e), "close of the writer: {e}"),
        }
    }

    fn step(&mut self, case: &WorldCase, step: SendStep) -> io::Result<()> {
        let limit = case.settings.message_bytes;
        match step {
            SendStep::Send(length)
            | SendStep::TrySend(length)
            | SendStep::SendWithin(length, _) => self.write(length.min(limit) as usize, 1),
            // Longer than a message, as a writer of a stream may.
            SendStep::Batch(length, count) => self.write((length * count) as usize, 1),
            SendStep::Reserve(length, _) => self.write(length.min(limit) as usize, 3),
            SendStep::Flush | SendStep::Ask | SendStep::WaitAll(_) => self.writer.flush(),
            SendStep::Sleep(time) => {
                time::sleep(us(time));
                Ok(())
            }
        }
    }

    /// Writes `length` bytes, out of `slices` slices.
    fn write(&mut self, length: usize, slices: usize) -> io::Result<()> {
        let bytes = {
            let mut told = self.told.lock();
            let accepted = told.accepted;
            let bytes = content(0, accepted as u64, length);
            told.begun.truncate(accepted);
            told.begun.extend(&bytes);
            bytes
        };
        let mut rest = &bytes[..];
        while !rest.is_empty() {
            let part = rest.len().div_ceil(slices);
            let all: Vec<_> = rest.chunks(part).map(IoSlice::new).collect();
            let written = match slices {
                1 => self.writer.write(rest)?,
                _ => self.writer.write_vectored(&all)?,
            };
            self.told.lock().accepted += written;
            rest = &rest[written..];
        }
        host::progress();
        Ok(())
    }
}

/// Bytes that were read, and whether the stream ended.
fn read<P: Tuned>(case: &WorldCase, mut reader: ByteReader<P::Receiver>) -> Vec<u8> {
    let mut bytes = Vec::new();
    for step in &case.receiver {
        world::note(|| format!("reader: {step:?}"));
        let done = match step {
            RecvStep::Recv(n) => {
                let mut some = vec![0; 1 + (*n % 3000) as usize];
                reader.read(&mut some).map(|read| bytes.extend(&some[..read]))
            }
            RecvStep::Each | RecvStep::TryRecv => {
                reader.fill_buf().map(<[u8]>::to_vec).map(|some| {
                    // A part of the available bytes.
                    let used = some.len().div_ceil(2);
                    bytes.extend(&some[..used]);
                    reader.consume(used);
                })
            }
            RecvStep::Sleep(time) => {
                time::sleep(us(*time));
                Ok(())
            }
            RecvStep::Free(_) | RecvStep::FreeElsewhere(_) | RecvStep::FreeAll => Ok(()),
        };
        if let Err(e) = done {
            expect(case, &e);
            return bytes;
        }
    }
    if !case.receiver_is_dropped
        && let Err(e) = reader.read_to_end(&mut bytes)
    {
        expect(case, &e);
    }
    bytes
}

/// The stream ended by an error, and so not at its end.
fn expect(case: &WorldCase, error: &io::Error) {
    world::note(|| format!("the reader ended: {}", unnamed(&error)));
    let is_dropped = case.ends[0] == SenderEnding::Drop;
    assert!(is_dropped || case.may_fail() || case.may_die(0), "the reader ended: {error}");
}
