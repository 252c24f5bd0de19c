//! Plays a case of futures: each end is a task, which a thread of the world polls.

use std::sync::Arc;
use std::time::Duration;

use host::future::block_on;
use host::sync::Mutex;
use host::thread::JoinHandle;
use host::{thread, time, world};
use rdma_conn::aio;
use rdma_conn::error::{CloseReason, RecvError, SendError};
use rdma_conn::{FromPeer as _, RecvHalf, Room as _, SendHalf, Ticket};

use crate::case::{RecvStep, SendStep, SenderEnding, WorldCase};
use crate::checks::{
    SenderProgress, asleep, detection, expect_detected, expect_limit, free_later, length,
    may_be_lost, may_end, may_fail_alone, may_miss_answer, timed, unnamed, us,
};
use crate::meet::{inbox, start_senders};
use crate::places::Site;
use crate::setup::Tuned;
use crate::shared::SharedPlay;

/// Longer than all sleeps of a case.
const PATIENCE: Duration = Duration::from_secs(300);

/// Plays it at the sites of its ends.
pub(crate) fn play_futures<P: Tuned>(case: &Arc<WorldCase>, sites: &[Site]) {
    let count = case.senders.len();
    let Some((mut inbox, pool)) = inbox::<P>(case, sites) else { return };
    let shared = Arc::new(SharedPlay::new(case, sites));
    let threads =
        start_senders::<P>((&mut inbox, pool.as_ref()), case, sites, count, |at, sender, far| {
            let shared = Arc::clone(&shared);
            let send = move || {
                let task = send(aio::Sender::new(sender), at, &shared);
                block_on(task, None).expect("descriptors");
                shared.senders[at].lock().ended_at = Some(time::now());
            };
            far.run(|| thread::spawn("sender", send)).expect("a thread")
        });
    let receiving = ReceiverFuture::<P::Receiver> {
        inbox: aio::Receiver::new(inbox),
        shared: &shared,
        held: Vec::new(),
        frees: Vec::new(),
        taken: vec![0; count],
        ended: vec![false; count],
        peers: threads.len(),
        is_over: threads.is_empty(),
    };
    let taken = receiving.run(case);
    shared.silences.begin_of_receiver();
    for thread in threads {
        thread.join().expect("no panic");
    }
    if !case.receiver_is_dropped {
        for (at, (told, taken)) in shared.senders.iter().zip(taken).enumerate() {
            told.lock().expect_all(at, taken);
        }
    }
    // Halves that are dropped say goodbye on threads of their own.
    time::sleep(case.settings.linger() + detection(case).min(PATIENCE));
}

/// A sender's task: its steps, and its end.
async fn send<S: SendHalf + 'static>(mut sender: aio::Sender<S>, at: usize, shared: &SharedPlay) {
    let (case, told) = (&*shared.case, &shared.senders[at]);
    // A receiver that a task drops says so on a thread of its own.
    let linger = case.settings.linger();
    let (mut last, mut accepted) = (None, 0);
    for step in &case.senders[at] {
        world::note(|| format!("sender {at}: {step:?}"));
        let start = time::now();
        let done = send_step(&mut sender, &mut last, *step, (at, shared), &mut accepted).await;
        let own = linger + asleep(*step);
        expect_detected(case, step, (start, own), shared.silences.of_receiver());
        if let Err(reason) = done {
            world::note(|| format!("sender {at} ended: {}", unnamed(&reason)));
            assert!(may_end(case, at, &reason), "sender {at} ended: {reason}");
            return leave(sender, case, told);
        }
    }
    if case.ends[at] == SenderEnding::Drop {
        return leave(sender, case, told);
    }
    let start = time::now();
    told.lock().leaves_at = Some(start);
    let closed = sender.close().await;
    expect_detected(case, "close", (start, linger), shared.silences.of_receiver());
    match closed {
        Ok(()) => told.lock().closed = Some(accepted),
        Err(SendError::Ended(reason)) if may_end(case, at, &reason) => {}
        Err(SendError::Ended(reason)) if may_miss_answer(case, &reason) => {
            told.lock().closed = Some(accepted);
        }
        Err(e) => panic!("close of sender {at}: {e}"),
    }
}

/// Drops a sender; another thread says its goodbye.
fn leave<S: SendHalf + 'static>(
    sender: aio::Sender<S>,
    case: &WorldCase,
    told: &Mutex<SenderProgress>,
) {
    told.lock().leaves_at = Some(time::now());
    // Where there is no other thread, it is said here.
    let most = if case.is_short_to_the_end() { case.settings.linger() } else { Duration::ZERO };
    timed(case, "drop", most, || drop(sender));
}

async fn send_step<S: SendHalf + 'static>(
    sender: &mut aio::Sender<S>,
    last: &mut Option<Ticket>,
    step: SendStep,
    (at, shared): (usize, &SharedPlay),
    accepted: &mut u64,
) -> Result<(), CloseReason> {
    let (settings, told) = (&shared.case.settings, &shared.senders[at]);
    let most = sender.half().map_or(0, |half| half.max_message_bytes());
    let begin = |wanted: u32, accepted: &u64| {
        told.lock().begin(at, *accepted, length(settings, wanted, most))
    };
    type Sent = Result<Ticket, SendError>;
    let mut took = |bytes: usize, sent: Sent, accepted: &mut u64| -> Result<(), CloseReason> {
        expect_limit(bytes, most, &sent);
        match sent {
            Ok(ticket) => {
                *accepted += 1;
                host::progress();
                *last = Some(ticket);
            }
            Err(e) => {
                ended(e)?;
                told.lock().retract(*accepted);
            }
        }
        Ok(())
    };
    match step {
        SendStep::Send(length) | SendStep::SendWithin(length, _) => {
            let message = begin(length, accepted);
            took(message.len(), sender.send(&message).await, accepted)
        }
        SendStep::TrySend(length) => {
            let (message, Some(half)) = (begin(length, accepted), sender.half()) else {
                return Ok(());
            };
            took(message.len(), half.try_send(&message), accepted)
        }
        SendStep::Batch(length, count) => {
            for _ in 0..count {
                let message = begin(length, accepted);
                took(message.len(), sender.send(&message).await, accepted)?;
            }
            Ok(())
        }
        SendStep::Reserve(length, commits) => {
            let message = begin(length, accepted);
            let Some(half) = sender.half() else { return Ok(()) };
            let reserved = half.try_reserve(message.len());
            expect_limit(message.len(), most, &reserved);
            let sent = match reserved {
                Ok(_) if !commits => Err(SendError::TimedOut { unflushed: 0 }),
                Ok(mut room) => room.write(0, &message).and_then(|()| room.commit(message.len())),
                Err(e) => Err(e),
            };
            took(message.len(), sent, accepted)
        }
        SendStep::Flush => sender.flush().await.or_else(ended),
        SendStep::Ask => match *last {
            Some(ticket) => sender.wait_acked(ticket).await.or_else(ended),
            None => Ok(()),
        },
        SendStep::WaitAll(_) => sender.wait_all().await.or_else(ended),
        SendStep::Sleep(time) => {
            time::sleep(us(time));
            Ok(())
        }
    }
}

fn ended(error: SendError) -> Result<(), CloseReason> {
    match error {
        SendError::Full(_) | SendError::TimedOut { .. } | SendError::TooLong { .. } => Ok(()),
        SendError::Ended(reason) => Err(reason),
        e => panic!("{e}"),
    }
}

/// The receiver and what it has.
struct ReceiverFuture<'t, R: RecvHalf + 'static> {
    inbox: aio::Receiver<R>,
    shared: &'t SharedPlay,
    held: Vec<R::Message>,
    /// Threads that free messages, up to when the receiver has gone.
    frees: Vec<JoinHandle<()>>,
    taken: Vec<u64>,
    ended: Vec<bool>,
    /// Senders that have connected.
    peers: usize,
    is_over: bool,
}

impl<R: RecvHalf + 'static> ReceiverFuture<'_, R> {
    /// Messages that it has taken of each sender.
    fn run(mut self, case: &WorldCase) -> Vec<u64> {
        for step in &case.receiver {
            world::note(|| format!("receiver: {step:?}"));
            match step {
                RecvStep::Recv(time) => {
                    timed(case, "recv", us(*time), || self.recv(case, us(*time)));
                }
                RecvStep::TryRecv | RecvStep::Each => _ = self.recv(case, Duration::ZERO),
                RecvStep::Free(n) => drop(self.held_one(*n)),
                RecvStep::FreeElsewhere(n) => {
                    let freeing = self.held_one(*n).map(free_later);
                    self.frees.extend(freeing);
                }
                RecvStep::FreeAll => self.held.clear(),
                RecvStep::Sleep(time) => time::sleep(us(*time)),
            }
        }
        self.held.clear();
        if !case.receiver_is_dropped {
            self.drain(case);
        }
        let ReceiverFuture { inbox, frees, taken, .. } = self;
        timed(case, "drop of the receiver", case.settings.linger(), || drop(inbox));
        for thread in frees {
            thread.join().expect("no panic");
        }
        taken
    }

    fn held_one(&mut self, n: u32) -> Option<R::Message> {
        let at = n as usize % self.held.len().max(1);
        (at < self.held.len()).then(|| self.held.swap_remove(at))
    }

    /// Takes all until every sender has ended; each end is noticed in time.
    fn drain(&mut self, case: &WorldCase) {
        let start = time::now();
        while !self.is_over {
            let peers = self.shared.senders[..self.peers].iter();
            let have_ended = peers.fold(true, |all, told| all & told.lock().ended_at.is_some());
            let bound = detection(case) + case.settings.linger();
            let time = if have_ended { bound } else { Duration::from_millis(200) };
            let has_come = self.recv(case, time);
            self.held.clear();
            if !self.is_over {
                self.shared.expect_missed(&self.ended[..self.peers], start);
            }
            assert!(has_come || !have_ended, "no end within {bound:?}");
            assert!(time::since(start) < PATIENCE, "no end");
        }
    }

    /// Receives for at most `time`; returns true if something has arrived. An error of one sender
    /// does not end the others.
    fn recv(&mut self, case: &WorldCase, time: Duration) -> bool {
        let deadline = time::now() + time;
        let received = block_on(self.inbox.recv(), Some(deadline)).expect("descriptors");
        match received {
            None => return false,
            Some(Ok(message)) => self.take(message),
            Some(Err(RecvError::Closed)) => {
                self.shared.expect_reported(&self.ended[..self.peers]);
                self.is_over = true;
            }
            Some(Err(RecvError::Peer { peer, reason })) => {
                world::note(|| format!("{peer:?} as the receiver sees it: {}", unnamed(&reason)));
                let at = peer.0 as usize;
                // The last one may have connected by half.
                let is_excused = at >= self.peers || may_be_lost(case, at, &reason);
                assert!(is_excused, "sender {at} as the receiver sees it: {reason}");
                assert!(!self.ended[at], "sender {at} ends twice");
                self.ended[at] = true;
                host::progress();
            }
            // Also where the only peer was lost.
            Some(Err(RecvError::Ended(reason)))
                if self.ended.contains(&true) || may_fail_alone(case, &reason) =>
            {
                self.is_over = true;
            }
            Some(Err(e)) => panic!("receiver: {e}"),
        }
        true
    }

    fn take(&mut self, message: R::Message) {
        host::progress();
        let at = message.peer().0 as usize;
        self.shared.senders[at].lock().expect(at, self.taken[at], &message);
        self.taken[at] += 1;
        if self.held.len() < 3 {
            self.held.push(message);
        }
    }
}
