//! Plays a case: real halves in real threads of a world, with every promise checked.

use std::sync::Arc;
use std::time::{Duration, Instant};

use host::plant::Plant;
use host::thread::JoinHandle;
use host::world::{Failure, Limits, Nature, Report};
use host::{thread, time, world};
use rdma_conn::error::{CloseReason, RecvError, SendError};
use rdma_conn::{
    BufferedRead, BufferedWrite, DirectRead, DirectWrite, FromPeer, RecvHalf, Room, SendHalf,
    SendRecv, SharedWrite, Ticket,
};

use crate::bytes::play_bytes;
use crate::case::{CaseProtocol, Form, RecvStep, SendStep, SenderEnding, WorldCase};
use crate::checks::{
    asleep, detection, expect_detected, expect_limit, free_later, length, may_be_lost, may_end,
    may_fail_alone, may_miss_answer, timed, unnamed, us,
};
use crate::futures::play_futures;
use crate::group::play_group;
use crate::meet::{expect_shares, inbox, start_senders};
use crate::places::{Site, on_devices};
use crate::setup::Tuned;
use crate::shared::SharedPlay;

/// The receiver takes what there is, sooner or later: its sleeps are shorter.
const PATIENCE: Duration = Duration::from_secs(300);

/// Plays a case in a world of its own.
pub fn play(case: &WorldCase, limits: Limits) -> (Report, Result<(), Failure>) {
    play_with(case, limits, None)
}

/// [`play`] with a fault planted into the code.
pub fn play_with(
    case: &WorldCase,
    limits: Limits,
    plant: Option<Plant>,
) -> (Report, Result<(), Failure>) {
    let nature = Nature {
        own_processors: false,
        switch_one_in: case.switch_one_in,
        stall_one_in: case.stall_one_in,
        stall_ns: 1 + case.stall_us * 1000,
        jump_one_in: case.jump_one_in,
        jump_ns: 1 + case.jump_us * 1000,
        short_one_in: case.short_one_in,
        short_posts_one_in: case.short_posts_one_in,
        spurious_one_in: case.spurious_one_in,
        plant,
    };
    let case = Arc::new(case.clone());
    let seed = case.seed;
    let play = match case.connection {
        CaseProtocol::SendRecv => form::<SendRecv>(case.form),
        CaseProtocol::BufferedRead => form::<BufferedRead>(case.form),
        CaseProtocol::BufferedWrite => form::<BufferedWrite>(case.form),
        CaseProtocol::DirectRead => form::<DirectRead>(case.form),
        CaseProtocol::DirectWrite => form::<DirectWrite>(case.form),
        CaseProtocol::SharedWrite => form::<SharedWrite>(case.form),
        CaseProtocol::Multicast => play_group,
    };
    world::run(seed, nature, limits, move || on_devices(&case, |sites| play(&case, sites)))
}

/// Plays a case at these sites.
type Play = fn(&Arc<WorldCase>, &[Site]);

fn form<P: Tuned>(form: Form) -> Play {
    match form {
        Form::Messages => play_on::<P>,
        Form::Bytes => play_bytes::<P>,
        Form::Futures => play_futures::<P>,
    }
}

/// Plays it at the sites of its ends.
fn play_on<P: Tuned>(case: &Arc<WorldCase>, sites: &[Site]) {
    let count = case.senders.len();
    let Some((mut inbox, pool)) = inbox::<P>(case, sites) else { return };
    let shared = Arc::new(SharedPlay::new(case, sites));
    let threads =
        start_senders::<P>((&mut inbox, pool.as_ref()), case, sites, count, |at, sender, far| {
            let shared = Arc::clone(&shared);
            let run = move || PlayedSender::<P>::new(sender, at, &shared).run();
            far.run(|| thread::spawn("sender", run)).expect("a thread")
        });
    let taken = PlayedReceiver::<P>::new(inbox, &shared, threads.len()).run();
    for thread in threads {
        thread.join().expect("no panic");
    }
    if !case.receiver_is_dropped {
        for (at, (told, taken)) in shared.senders.iter().zip(taken).enumerate() {
            told.lock().expect_all(at, taken);
        }
    }
    if let Some(pool) = pool.filter(|_| gives_all_back(case)) {
        expect_shares::<P>(case, sites, &pool);
    }
}

/// True if each sender ends in order, and the receiver has the time to learn of the device that no
/// buffer is left with it.
fn gives_all_back(case: &WorldCase) -> bool {
    const ENOUGH: Duration = Duration::from_secs(1);
    let close = case.ends.iter().all(|end| *end == SenderEnding::Close);
    case.is_orderly() && close && case.settings.linger() >= ENOUGH && !case.has_slow_threads()
}

/// A sender and its steps.
struct PlayedSender<'s, P: Tuned> {
    sender: P::Sender,
    at: usize,
    shared: &'s SharedPlay,
    accepted: u64,
    /// Bytes of accepted messages.
    bytes: u64,
    last: Option<Ticket>,
}

impl<'s, P: Tuned> PlayedSender<'s, P> {
    fn new(sender: P::Sender, at: usize, shared: &'s SharedPlay) -> PlayedSender<'s, P> {
        PlayedSender { sender, at, shared, accepted: 0, bytes: 0, last: None }
    }

    fn run(mut self) {
        let case = Arc::clone(&self.shared.case);
        for step in &case.senders[self.at] {
            world::note(|| format!("sender {}: {step:?}", self.at));
            let start = time::now();
            let done = self.step(&case, *step);
            let silence = self.shared.silences.of_receiver();
            expect_detected(&case, step, (start, asleep(*step)), silence);
            if let Err(reason) = done {
                self.expect(&case, &reason);
                return self.end(&case);
            }
        }
        assert_eq!(P::sent(&self.sender), (self.accepted, self.bytes), "messages and bytes");
        if case.is_orderly() && case.seed.is_multiple_of(4) {
            self.expect_room();
        }
        match case.ends[self.at] {
            SenderEnding::Drop => self.end(&case),
            SenderEnding::Close => self.close(&case),
        }
    }

    /// Expects room for the longest message, once all messages of the sender are acknowledged, and
    /// those that take room are freed.
    fn expect_room(&mut self) {
        let (at, most) = (self.at, self.sender.max_message_bytes());
        let drained = self.sender.wait_all_timeout(PATIENCE);
        let room = drained.and_then(|()| self.sender.wait_for_room_timeout(most, PATIENCE));
        assert!(room.is_ok(), "sender {at} does not get its room back: {room:?}");
        assert_eq!(P::unreturned(&self.sender), 0, "messages that sender {at} still has");
    }

    /// The connection has ended for a reason that the case gives.
    fn expect(&self, case: &WorldCase, reason: &CloseReason) {
        world::note(|| format!("sender {} ended: {}", self.at, unnamed(reason)));
        assert!(may_end(case, self.at, reason), "sender {} ended: {reason}", self.at);
    }

    /// Drops the sender, which waits for its peer no longer than the linger.
    fn end(self, case: &WorldCase) {
        let told = &self.shared.senders[self.at];
        told.lock().leaves_at = Some(time::now());
        timed(case, "drop", case.settings.linger(), || drop(self.sender));
        told.lock().ended_at = Some(time::now());
    }

    fn close(self, case: &WorldCase) {
        let (shared, at, accepted) = (self.shared, self.at, self.accepted);
        let start = time::now();
        shared.senders[at].lock().leaves_at = Some(start);
        let closed = timed(case, "close", PATIENCE, || self.sender.close_timeout(PATIENCE));
        expect_detected(case, "close", (start, Duration::ZERO), shared.silences.of_receiver());
        let how = || unnamed(&format!("{closed:?}"));
        world::note(|| format!("sender {at} closed after {accepted} messages: {}", how()));
        let mut told = shared.senders[at].lock();
        told.ended_at = Some(time::now());
        match closed {
            Ok(()) => told.closed = Some(accepted),
            Err(SendError::Ended(reason)) if may_end(case, at, &reason) => {}
            Err(SendError::Ended(reason)) if may_miss_answer(case, &reason) => {
                told.closed = Some(accepted);
            }
            Err(e) => panic!("close of sender {at}: {e}"),
        }
    }

    /// The next message: said before it is sent, because it may arrive before the call returns.
    fn begin(&self, length: usize) -> Vec<u8> {
        self.shared.senders[self.at].lock().begin(self.at, self.accepted, length)
    }

    /// A message of `length` bytes was accepted, or was not.
    fn took(
        &mut self,
        length: usize,
        sent: Result<Ticket, SendError>,
    ) -> Result<bool, CloseReason> {
        expect_limit(length, self.sender.max_message_bytes(), &sent);
        match sent {
            Ok(ticket) => {
                self.accepted += 1;
                self.bytes += length as u64;
                host::progress();
                self.last = Some(ticket);
                Ok(true)
            }
            Err(SendError::Full(_) | SendError::TimedOut { .. } | SendError::TooLong { .. }) => {
                self.shared.senders[self.at].lock().retract(self.accepted);
                Ok(false)
            }
            Err(SendError::Ended(reason)) => Err(reason),
            Err(e) => panic!("sender {}: {e}", self.at),
        }
    }

    fn done(&self, done: Result<(), SendError>) -> Result<(), CloseReason> {
        match done {
            Ok(()) | Err(SendError::TimedOut { .. }) => Ok(()),
            Err(SendError::Ended(reason)) => Err(reason),
            Err(e) => panic!("sender {}: {e}", self.at),
        }
    }

    fn length(&self, wanted: u32) -> usize {
        length(&self.shared.case.settings, wanted, self.sender.max_message_bytes())
    }

    fn step(&mut self, case: &WorldCase, step: SendStep) -> Result<(), CloseReason> {
        match step {
            SendStep::Send(length) => {
                let message = self.begin(self.length(length));
                let sent = self.sender.send(&message);
                self.took(message.len(), sent).map(drop)
            }
            SendStep::TrySend(length) => {
                let message = self.begin(self.length(length));
                let sent = self.sender.try_send(&message);
                self.took(message.len(), sent).map(drop)
            }
            SendStep::SendWithin(length, time) => {
                let message = self.begin(self.length(length));
                let sent = timed(case, "send_timeout", us(time), || {
                    self.sender.send_timeout(&message, us(time))
                });
                self.took(message.len(), sent).map(drop)
            }
            SendStep::Batch(length, count) => self.batch(self.length(length), count),
            SendStep::Reserve(length, commits) => self.reserve(self.length(length), commits),
            SendStep::Flush => {
                let done =
                    timed(case, "flush_timeout", us(1000), || self.sender.flush_timeout(us(1000)));
                self.done(done)
            }
            SendStep::Ask => match self.last.map(|ticket| self.sender.is_acked(ticket)) {
                Some(Err(SendError::Ended(reason))) => Err(reason),
                Some(Err(e)) => panic!("is_acked: {e}"),
                _ => Ok(()),
            },
            SendStep::WaitAll(time) => {
                let done = timed(case, "wait_all_timeout", us(time), || {
                    self.sender.wait_all_timeout(us(time))
                });
                if done.is_ok() {
                    assert_eq!(P::unreturned(&self.sender), 0, "messages that are kept");
                }
                self.done(done)
            }
            SendStep::Sleep(time) => {
                time::sleep(us(time));
                Ok(())
            }
        }
    }

    fn batch(&mut self, length: usize, count: u32) -> Result<(), CloseReason> {
        for _ in 0..count {
            let message = self.begin(length);
            let sent = self.sender.batch().try_send(&message);
            if !self.took(length, sent)? {
                break;
            }
        }
        Ok(())
    }

    fn reserve(&mut self, length: usize, commits: bool) -> Result<(), CloseReason> {
        let message = self.begin(length);
        let most = self.sender.max_message_bytes();
        let sent = {
            let reserved = self.sender.try_reserve(length);
            expect_limit(length, most, &reserved);
            match reserved {
                Ok(_) if !commits => Err(SendError::TimedOut { unflushed: 0 }),
                Ok(mut room) => {
                    assert_eq!(room.capacity(), length);
                    let beyond = room.write(1, &message);
                    expect_limit(1 + length, length, &beyond);
                    room.write(0, &message).and_then(|()| room.commit(length))
                }
                Err(e) => Err(e),
            }
        };
        self.took(length, sent).map(drop)
    }
}

/// The receiver and its steps.
struct PlayedReceiver<'s, P: Tuned> {
    inbox: P::Receiver,
    shared: &'s SharedPlay,
    held: Vec<<P::Receiver as RecvHalf>::Message>,
    /// Threads that free messages, up to when the receiver has gone.
    frees: Vec<JoinHandle<()>>,
    taken: Vec<u64>,
    /// Bytes of all of these.
    bytes: u64,
    ended: Vec<bool>,
    is_over: bool,
    /// Senders that have connected.
    peers: usize,
}

impl<'s, P: Tuned> PlayedReceiver<'s, P> {
    fn new(inbox: P::Receiver, shared: &'s SharedPlay, peers: usize) -> PlayedReceiver<'s, P> {
        let senders = shared.senders.len();
        let (taken, ended) = (vec![0; senders], vec![false; senders]);
        PlayedReceiver {
            inbox,
            shared,
            held: Vec::new(),
            frees: Vec::new(),
            taken,
            bytes: 0,
            ended,
            is_over: false,
            peers,
        }
    }

    /// Messages that it has taken of each sender.
    fn run(mut self) -> Vec<u64> {
        let case = Arc::clone(&self.shared.case);
        for step in &case.receiver {
            world::note(|| format!("receiver: {step:?}"));
            self.step(&case, *step);
        }
        if case.receiver_is_dropped {
            self.held.clear();
        } else {
            self.drain(&case);
            if case.is_orderly() {
                let taken: (u64, u64) = (self.taken.iter().sum(), self.bytes);
                assert_eq!(P::received(&self.inbox), taken, "messages and bytes");
            }
            if gives_all_back(&case) {
                let left = (self.inbox.peers(), P::lost(&self.inbox));
                assert_eq!(left, (0, 0), "peers and lost buffers");
            }
        }
        timed(&case, "drop of the receiver", case.settings.linger(), || drop(self.inbox));
        self.shared.silences.begin_of_receiver();
        for thread in self.frees {
            thread.join().expect("no panic");
        }
        self.taken
    }

    /// Takes all until every sender has ended; each end is noticed in time.
    fn drain(&mut self, case: &WorldCase) {
        self.held.clear();
        let begin = time::now();
        let mut since_end: Option<Instant> = None;
        while !self.is_over && self.peers > 0 {
            let got = self.inbox.recv_timeout(Duration::from_millis(200));
            if got.is_ok() {
                since_end = None;
            }
            self.take(got);
            self.held.clear();
            if !self.is_over {
                self.shared.expect_missed(&self.ended[..self.peers], begin);
            }
            let all_ended =
                self.shared.senders[..self.peers].iter().all(|told| told.lock().ended_at.is_some());
            if all_ended {
                let since = *since_end.get_or_insert_with(time::now);
                let quiet = time::since(since);
                let bound = detection(case) + case.settings.linger();
                assert!(
                    self.is_over || quiet <= bound,
                    "no end after {quiet:?}, the bound is {bound:?}"
                );
            }
        }
    }

    fn step(&mut self, case: &WorldCase, step: RecvStep) {
        match step {
            RecvStep::Recv(time) => {
                let got =
                    timed(case, "recv_timeout", us(time), || self.inbox.recv_timeout(us(time)));
                self.take(got);
            }
            RecvStep::TryRecv => {
                let got = self.inbox.try_recv();
                self.take(got);
            }
            RecvStep::Each => self.each(),
            RecvStep::Free(n) => drop(self.held_one(n)),
            RecvStep::FreeElsewhere(n) => {
                let freeing = self.held_one(n).map(free_later);
                self.frees.extend(freeing);
            }
            RecvStep::FreeAll => self.held.clear(),
            RecvStep::Sleep(time) => time::sleep(us(time)),
        }
    }

    fn held_one(&mut self, n: u32) -> Option<<P::Receiver as RecvHalf>::Message> {
        let at = n as usize % self.held.len().max(1);
        (at < self.held.len()).then(|| self.held.swap_remove(at))
    }

    fn each(&mut self) {
        let PlayedReceiver { inbox, shared, taken, bytes: sum, .. } = self;
        let got = inbox.try_recv_each(|peer, bytes| {
            check(shared, taken, peer.0 as usize, bytes);
            *sum += bytes.len() as u64;
        });
        match got {
            Ok(_) => {}
            Err(e) => self.failed(e),
        }
    }

    fn take(&mut self, got: Result<<P::Receiver as RecvHalf>::Message, RecvError>) {
        match got {
            Ok(message) => {
                check(self.shared, &mut self.taken, message.peer().0 as usize, &message);
                self.bytes += message.len() as u64;
                self.held.push(message);
            }
            Err(e) => self.failed(e),
        }
    }

    fn failed(&mut self, error: RecvError) {
        let case = &self.shared.case;
        match error {
            RecvError::Empty | RecvError::TimedOut => {}
            RecvError::Closed => {
                world::note(|| "the receiver has all ends".into());
                self.shared.expect_reported(&self.ended[..self.peers]);
                self.is_over = true;
            }
            RecvError::Ended(_) if self.ended.iter().filter(|ended| **ended).count() == 1 => {
                world::note(|| "the receiver has lost its only peer".into());
                self.is_over = true;
            }
            RecvError::Peer { peer, reason } => {
                let at = peer.0 as usize;
                world::note(|| format!("the receiver hears of sender {at}: {}", unnamed(&reason)));
                // The last one may have connected by half.
                let is_excused = at >= self.peers || may_be_lost(case, at, &reason);
                assert!(is_excused, "sender {at} as the receiver sees it: {reason}");
                assert!(!self.ended[at], "sender {at} ends twice");
                self.ended[at] = true;
            }
            RecvError::Ended(reason) if may_fail_alone(case, &reason) => {
                world::note(|| format!("the receiver ended: {}", unnamed(&reason)));
                self.is_over = true;
            }
            e => panic!("the receiver: {e}"),
        }
    }
}

/// A message that has arrived is the next one of its sender, and equal.
fn check(shared: &SharedPlay, taken: &mut [u64], at: usize, bytes: &[u8]) {
    let n = taken[at];
    taken[at] += 1;
    host::progress();
    shared.senders[at].lock().expect(at, n, bytes);
}
