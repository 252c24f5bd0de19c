//! One connection whose ends several threads share, both in this process.
//!
//! The sequence number of a message tells which thread has sent it, and which of its messages
//! it is. Each receiving thread sees the messages of one sender in rising order; the count of
//! all messages, and the sum of a hash of their numbers, show that each has arrived once.

use anyhow::{Context, Result, anyhow, ensure};
use base::outcome::{CommandResult, usage};
use base::pinning;
use base::session::card;
use host::sync::{Barrier, BrokenBarrier};
use host::thread::ScopedJoinHandle;
use rdma_conn::BufferedRead;
use rdma_conn::buffered_read::{Config, SharedReceiver, SharedSender};
use rdma_conn::device::Device;
use rdma_conn::send_recv::RecvError;

use crate::cli::BenchArgs;
use crate::measure::verify::{self};
use crate::measure::{
    MessageLoad, Payload, ResultLine, RoundResult, Whole, Work, since, start_all,
};

/// Threads at the ends of one connection.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Crowd {
    sending: u32,
    receiving: u32,
    has_transfer_thread: bool,
}

/// Bits of a sequence number that count; the others are the sender's.
const COUNTED: u32 = 48;
/// Messages that senders can be writing at the same time.
const AT_ONCE: u32 = 64;

impl Crowd {
    const MOST: u32 = 1024;

    /// Returns the crowd that was asked for, if one was.
    pub(crate) fn asked(options: &BenchArgs) -> Option<Crowd> {
        options.sending_threads.or(options.receiving_threads)?;
        Some(Crowd {
            sending: options.sending_threads.unwrap_or(1),
            receiving: options.receiving_threads.unwrap_or(1),
            has_transfer_thread: options.transfer_thread,
        })
    }

    /// Refuses what cannot be measured.
    pub(crate) fn check(&self, options: &BenchArgs) -> CommandResult {
        let threads =
            [("--sending-threads", self.sending), ("--receiving-threads", self.receiving)];
        if let Some((flag, n)) = threads.into_iter().find(|(_, n)| *n > Crowd::MOST) {
            return Err(usage(format!("{flag} {n}: it may be 1 to {}", Crowd::MOST)));
        }
        let least = verify::FRAME as u32;
        match options.size.iter().find(|size| !options.no_verify && **size < least) {
            Some(size) => Err(usage(format!(
                "messages of --size {size} have no room for their sender's number: make it {least} \
                 at least, or add --no-verify"
            ))),
            None => Ok(()),
        }
    }

    /// Adds the threads to a result.
    pub(crate) fn describe(&self, line: ResultLine) -> ResultLine {
        let Crowd { sending, receiving, has_transfer_thread } = *self;
        let thread = if has_transfer_thread { " beside one for the transfers" } else { "" };
        let words = format!(
            ", {sending} sending and {receiving} receiving threads{thread} share the connection"
        );
        let line = line.with("sending_threads", sending).with("receiving_threads", receiving);
        line.with("transfer_thread", has_transfer_thread).with_words(&words)
    }
}

/// Messages that were sent, or received: their count, and the sum of a hash of each.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
struct MessageTally {
    count: u64,
    sum: u64,
}

impl MessageTally {
    fn add(&mut self, number: u64) {
        self.count += 1;
        self.sum = self.sum.wrapping_add(verify::mix(number));
    }

    fn sum(all: impl IntoIterator<Item = MessageTally>) -> MessageTally {
        all.into_iter().fold(MessageTally::default(), |a, b| MessageTally {
            count: a.count + b.count,
            sum: a.sum.wrapping_add(b.sum),
        })
    }
}

/// Measures one Buffered Read connection.
pub(crate) fn measure(
    device: &Device,
    config: &Config,
    crowd: Crowd,
    load: &MessageLoad,
) -> Result<RoundResult> {
    let mut receiver = rdma_conn::receiver::<BufferedRead>(device, config, 1)?;
    let other = card::peer_device(device)?;
    let sending = other.as_ref().unwrap_or(device);
    let sender = rdma_conn::join::<BufferedRead>(&mut receiver, device, sending, config)?;
    let sender = sender.into_shared(AT_ONCE).map_err(|_| anyhow!("the sender was used"))?;
    let receiver = receiver.into_shared().map_err(|_| anyhow!("the receiver was used"))?;
    let transfers = crowd.has_transfer_thread.then(|| receiver.spawn_transfers()).transpose();
    let transfers = transfers.context("making a thread for the transfers")?;
    let before = device.counters().ok();
    let barrier = &Barrier::new((crowd.sending + crowd.receiving) as usize);
    let (elapsed, sent, received) = host::thread::scope(|scope| {
        let receiver = &receiver;
        let receive = |number: u32| {
            scope.spawn(move || {
                pinning::pin_thread((crowd.sending + number) as usize);
                let received = receive_all(receiver, crowd.sending, load, barrier);
                // So that the senders end, too.
                received.inspect_err(|_| receiver.clone().close())
            })
        };
        let (receiving, all) = start_all((0..crowd.receiving).map(receive), barrier);
        if all.is_err() {
            receiver.clone().close();
        }
        let start = host::time::now();
        let sent = all.and_then(|()| all_sent(sender, crowd.sending, load, barrier));
        let elapsed = host::time::since(start);
        if sent.is_err() {
            receiver.clone().close();
        }
        let received = receiving.into_iter().map(joined).collect::<Result<Vec<_>>>();
        (elapsed, sent, received)
    });
    // What a receiver complains about is why senders were stopped, if any thread has begun.
    let sent = match received.as_ref().is_err_and(|e| e.is::<BrokenBarrier>()) {
        true => Ok(sent?),
        false => sent,
    };
    let (received, sent) = (MessageTally::sum(received?), sent?);
    let since = since(device, before);
    drop(transfers);
    ensure!(
        sent == received,
        "messages sent: {}, arrived: {}, or not the same ones",
        sent.count,
        received.count
    );
    let stats = receiver.stats();
    let work = Work {
        operations: stats.work_requests,
        transfers: stats.reads,
        transferred: stats.read_bytes,
    };
    Ok(RoundResult {
        messages: sent.count,
        elapsed,
        work,
        whole: Some(Whole { messages: sent.count, work }),
        rnr_events: since.and_then(|since| since.rnr_events),
        registered_bytes: receiver.registered_bytes(),
        receivers_busy: None,
        fairness: None,
    })
}

/// Returns the result of a thread, or resumes its panic.
fn joined(thread: ScopedJoinHandle<'_, Result<MessageTally>>) -> Result<MessageTally> {
    thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
}

/// Sends with all threads, and says goodbye; returns what they sent, and was received.
fn all_sent(
    sender: SharedSender,
    threads: u32,
    load: &MessageLoad,
    barrier: &Barrier,
) -> Result<MessageTally> {
    let sent = host::thread::scope(|scope| {
        let sender = &sender;
        let send = |thread| {
            scope.spawn(move || {
                pinning::pin_thread(thread as usize);
                send_all(sender, thread, load, barrier)
            })
        };
        let (sending, all) = start_all((0..threads).map(send), barrier);
        let sent = sending.into_iter().map(joined).collect::<Result<Vec<_>>>();
        all.and(sent)
    });
    let closed = sender.close();
    let sent = MessageTally::sum(sent?);
    closed?;
    Ok(sent)
}

/// Sends until the load is done, and waits until all has arrived.
fn send_all(
    sender: &SharedSender,
    thread: u32,
    load: &MessageLoad,
    barrier: &Barrier,
) -> Result<MessageTally> {
    let (mut payload, first) = (Payload::new(load.size as usize, 0), u64::from(thread) << COUNTED);
    let mut message = vec![0x5a; load.size as usize];
    if load.verify {
        payload.prepare();
        payload.seek(first);
    }
    barrier.wait()?;
    let (start, stride) = (host::time::now(), load.stride());
    let (mut tally, mut last) = (MessageTally::default(), None);
    while load.end.goes_on(tally.count, start, stride) {
        let number = if load.verify { first + tally.count } else { 0 };
        if load.verify {
            payload.fill(&mut message);
        }
        last = Some(sender.send(&message)?);
        tally.add(number);
    }
    last.map_or(Ok(()), |ticket| sender.wait_acked(ticket))?;
    Ok(tally)
}

/// Receives until the end.
fn receive_all(
    receiver: &SharedReceiver,
    senders: u32,
    load: &MessageLoad,
    barrier: &Barrier,
) -> Result<MessageTally> {
    let mut payload = Payload::new(load.size as usize, 0);
    // By sender: the least number that its next message may have.
    let mut least = vec![0_u64; senders as usize];
    let (mut tally, mut failure) = (MessageTally::default(), None);
    barrier.wait()?;
    let mut check = |message: &[u8]| -> Result<u64> {
        let number = message.first_chunk().map(|n| u64::from_le_bytes(*n));
        let number = number.context("a message without a number")?;
        payload.seek(number);
        payload.check(message)?;
        let least = least.get_mut((number >> COUNTED) as usize);
        let least = least.context("a message of a thread that there is not")?;
        ensure!(number >= *least, "message {number} arrived after a later one");
        *least = number + 1;
        Ok(number)
    };
    loop {
        let taken = receiver.try_recv_each(|_, message| {
            match if load.verify { check(message) } else { Ok(0) } {
                Ok(number) => tally.add(number),
                Err(e) => drop(failure.get_or_insert(e)),
            }
        });
        match (failure.take(), taken) {
            (Some(e), _) => return Err(e),
            (None, Ok(_)) => {}
            (None, Err(RecvError::Empty)) => host::thread::yield_now(),
            (None, Err(RecvError::Closed)) => return Ok(tally),
            (None, Err(e)) => return Err(e.into()),
        }
    }
}
