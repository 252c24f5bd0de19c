//! Plays a case of a byte stream: what is written is read, in order, up to where it ends.

use std::fmt;
use std::io::{self, BufRead as _, ErrorKind, IoSlice, Read as _, Write as _};
use std::sync::Arc;
use std::time::{Duration, Instant};

use host::sync::Mutex;
use host::{thread, time, world};
use rdma_conn::error::{CloseReason, RecvError, SendError};
use rdma_conn::io::{ByteReader, ByteWriter};

use crate::case::{RecvStep, SendStep, SenderEnding, WorldCase};
use crate::checks::{
    asleep, content, expect_detected, may_be_lost, may_end, may_fail_alone, may_miss_answer,
    unnamed, us,
};
use crate::meet::{inbox, start_senders};
use crate::places::Site;
use crate::setup::Tuned;
use crate::shared::EndSilences;

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
    let Some((mut inbox, pool)) = inbox::<P>(case, sites) else { return };
    let told = Arc::new(Mutex::new(WriterProgress::default()));
    let silences = Arc::new(EndSilences::of(case, sites));
    let writing =
        start_senders::<P>((&mut inbox, pool.as_ref()), case, sites, 1, |_, sender, far| {
            let (case, told, silences) =
                (Arc::clone(case), Arc::clone(&told), Arc::clone(&silences));
            let write = move || {
                let writer = ByteWriter::new(sender);
                PlayedWriter { writer, told: &told, silences: &silences }.run(&case);
                silences.begin_of_sender(0);
            };
            far.run(|| thread::spawn("writer", write)).expect("a thread")
        });
    if writing.is_empty() {
        return;
    }
    let read = read::<P>(case, ByteReader::new(inbox), &silences);
    silences.begin_of_receiver();
    for thread in writing {
        thread.join().expect("no panic");
    }
    let told = told.lock();
    let bytes = read;
    assert!(told.begun.starts_with(&bytes), "{} bytes that were not written", bytes.len());
    if told.has_closed && !case.receiver_is_dropped {
        assert_eq!(bytes.len(), told.accepted, "bytes of a writer that has closed");
    }
}

/// The error of the half beneath.
fn inner<E: std::error::Error + 'static>(error: &io::Error) -> Option<&E> {
    error.get_ref()?.downcast_ref()
}

/// The reason why the writer has ended, of which the error's kind tells.
fn end_of_writer(error: &io::Error) -> &CloseReason {
    let Some(SendError::Ended(reason)) = inner::<SendError>(error) else {
        panic!("the writer: {error}");
    };
    let kind = if reason.is_close() { ErrorKind::BrokenPipe } else { ErrorKind::ConnectionReset };
    assert_eq!(error.kind(), kind, "{error}");
    reason
}

/// The end that writes.
struct PlayedWriter<'t, S: rdma_conn::SendHalf + 'static> {
    writer: ByteWriter<S>,
    told: &'t Mutex<WriterProgress>,
    silences: &'t EndSilences,
}

impl<S: rdma_conn::SendHalf + 'static> PlayedWriter<'_, S> {
    fn run(mut self, case: &WorldCase) {
        for step in &case.senders[0] {
            world::note(|| format!("writer: {step:?}"));
            let start = time::now();
            let done = self.step(case, *step);
            self.expect_detected(case, step, (start, asleep(*step)));
            if let Err(e) = done {
                world::note(|| format!("the writer ended: {}", unnamed(&e)));
                assert!(may_end(case, 0, end_of_writer(&e)), "the writer ended: {e}");
                return;
            }
        }
        if case.ends[0] == SenderEnding::Drop {
            return;
        }
        let start = time::now();
        let closed = self.writer.close();
        self.expect_detected(case, "close", (start, Duration::ZERO));
        match closed {
            Ok(()) => self.told.lock().has_closed = true,
            Err(e) => {
                let reason = end_of_writer(&e);
                let is_excused = may_end(case, 0, reason);
                assert!(is_excused || may_miss_answer(case, reason), "close of the writer: {e}");
                self.told.lock().has_closed = !is_excused;
            }
        }
    }

    /// As [`expect_detected`], of the receiver, which a thread of its own may drop.
    fn expect_detected(
        &self,
        case: &WorldCase,
        what: impl fmt::Debug,
        (start, own): (Instant, Duration),
    ) {
        let own = own + case.settings.linger();
        expect_detected(case, what, (start, own), self.silences.of_receiver());
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
fn read<P: Tuned>(
    case: &WorldCase,
    mut reader: ByteReader<P::Receiver>,
    silences: &EndSilences,
) -> Vec<u8> {
    // A sender that a stream drops says goodbye on a thread of its own.
    let linger = case.settings.linger();
    let expect_end = |what: &str, start: Instant, own: Duration| {
        expect_detected(case, what, (start, linger + own), silences.of_sender(0));
    };
    let mut bytes = Vec::new();
    for step in &case.receiver {
        world::note(|| format!("reader: {step:?}"));
        let (start, mut own) = (time::now(), Duration::ZERO);
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
                own = us(*time);
                time::sleep(own);
                Ok(())
            }
            RecvStep::Free(_) | RecvStep::FreeElsewhere(_) | RecvStep::FreeAll => Ok(()),
        };
        expect_end("read", start, own);
        if let Err(e) = done {
            expect(case, &e);
            return bytes;
        }
    }
    if !case.receiver_is_dropped {
        let start = time::now();
        let done = reader.read_to_end(&mut bytes);
        expect_end("read to the end", start, Duration::ZERO);
        if let Err(e) = done {
            expect(case, &e);
        }
    }
    bytes
}

/// The stream ended by an error, and so not at its end.
fn expect(case: &WorldCase, error: &io::Error) {
    world::note(|| format!("the reader ended: {}", unnamed(&error)));
    let is_excused = match inner::<RecvError>(error) {
        Some(RecvError::Peer { reason, .. }) => may_be_lost(case, 0, reason),
        Some(RecvError::Ended(reason)) => may_fail_alone(case, reason),
        _ => false,
    };
    assert!(is_excused, "the reader ended: {error}");
}
