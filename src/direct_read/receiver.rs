//! The receiving half, for one peer or many.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use conn_core::direct_read::Refusal;
use verbs_safe::{
    Buffer, Completion, CompletionBatch, CompletionChannel, CompletionQueue, FileRegion,
    RecvPoster, RecvQueue,
};

use super::link::{Arrived, Came, Landed, Link, LinkParts};
use super::message::{FileReading, Message, Reading, message};
use super::room::Room;
use super::{Config, NotReadReason, Peer, RecvError, Request};
use crate::send_recv::{Ended, ended_by};
use crate::wait::{Deadline, Idle, SILENT, Silence, Step};

/// What a receiver has done so far.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct ReceiverStats {
    /// Messages that were read.
    pub messages: u64,
    /// Their bytes.
    pub bytes: u64,
    /// Messages that were refused.
    pub refused: u64,
    /// Work requests of all send queues: READs, acknowledgements, keepalives.
    pub work_requests: u64,
}

/// Numbers of receivers, so that a ticket tells whose it is.
static RECEIVERS: AtomicU32 = AtomicU32::new(0);

/// The receiving half of a Direct Read connection: of one sender or of many, on one
/// completion queue, for one thread.
///
/// Requests are seen in the order of their arrival ([`next_request`](Self::next_request)),
/// and decided one after the other; any number of messages is being read at a time.
/// What is to be done for messages that are being read is done by every call, so that a
/// receiver that is not called acknowledges nothing.
///
/// Dropping a receiver tells its senders that nothing more will be read.
#[derive(Debug)]
pub struct Receiver {
    pub(super) serial: u32,
    pub(super) cq: CompletionQueue,
    channel: Option<CompletionChannel>,
    /// Here but for the time of a poll.
    batch: Option<CompletionBatch>,
    pub(super) links: Vec<Link>,
    pub(super) max_peers: u32,
    peers_so_far: u32,
    /// Buffers for the requests of all peers, where they are shared.
    pub(super) shared: Option<RecvPoster<()>>,
    /// How many of them each link takes, at most.
    pub(super) share: u32,
    /// Requests that are not decided, in the order of their arrival.
    arrived: VecDeque<Arrived>,
    /// Messages that were read, and not waited for yet.
    landed: VecDeque<Landed>,
    /// Tickets given out so far.
    tickets: u64,
    pub(super) config: Config,
    ended: Option<Ended>,
    silence: Silence,
    stats: ReceiverStats,
    /// Work requests of links that are gone.
    past_requests: u64,
    /// Polls that had something since the clock was looked at, and when silent peers were
    /// last asked after: others may be busy for long.
    busy: u32,
    asked: Option<Instant>,
}

/// What the set-up hands over.
pub(crate) struct ReceiverParts {
    pub(crate) cq: CompletionQueue,
    pub(crate) channel: Option<CompletionChannel>,
    pub(crate) shared: Option<RecvPoster<()>>,
    pub(crate) share: u32,
    pub(crate) max_peers: u32,
    pub(crate) config: Config,
}

/// Making, inspecting.
impl Receiver {
    const POLL_BATCH: usize = 32;
    /// Polls that had something between two looks at the clock.
    const POLLS_PER_LOOK: u32 = 64;

    pub(crate) fn new(parts: ReceiverParts) -> Receiver {
        let ReceiverParts { cq, channel, shared, share, max_peers, config } = parts;
        Receiver {
            // Relaxed: a number, and nothing that it would publish.
            serial: RECEIVERS.fetch_add(1, Ordering::Relaxed),
            cq,
            channel,
            batch: None,
            links: Vec::new(),
            max_peers,
            peers_so_far: 0,
            shared,
            share,
            arrived: VecDeque::new(),
            landed: VecDeque::new(),
            tickets: 0,
            config,
            ended: None,
            silence: Silence::default(),
            stats: ReceiverStats::default(),
            past_requests: 0,
            busy: 0,
            asked: None,
        }
    }

    /// Takes a link whose sender is ready.
    pub(crate) fn add(&mut self, parts: LinkParts) -> Peer {
        let peer = Peer(self.peers_so_far);
        self.peers_so_far += 1;
        self.links.push(Link::new(parts, peer));
        peer
    }

    /// Forgets links that have ended, were reported, and have nothing in the queues.
    pub(crate) fn sweep(&mut self) {
        let (links, past) = (&mut self.links, &mut self.past_requests);
        links.retain(|link| {
            // Whoever has said goodbye has all its acknowledgements.
            let gone = link.reported && link.is_idle() && (link.is_over() || link.is_empty());
            *past += if gone { link.queue.posted_total() } else { 0 };
            !gone
        });
    }

    /// Peers that have not gone.
    #[must_use]
    pub fn peers(&self) -> usize {
        self.links.iter().filter(|link| !link.reported).count()
    }

    /// What was done so far.
    #[must_use]
    pub fn stats(&self) -> ReceiverStats {
        let now: u64 = self.links.iter().map(|link| link.queue.posted_total()).sum();
        ReceiverStats { work_requests: self.past_requests + now, ..self.stats }
    }

    fn link(&mut self, peer: Peer) -> Option<&mut Link> {
        self.links.iter_mut().find(|link| link.peer == peer)
    }
}

/// Requests.
impl Receiver {
    /// The oldest request that is not decided, if there is one.
    ///
    /// # Errors
    /// [`RecvError::Empty`], [`RecvError::Peer`], [`RecvError::Closed`].
    pub fn try_next_request(&mut self) -> Result<Request<'_>, RecvError> {
        if self.arrived.is_empty() {
            self.progress()?;
        }
        if let Some(failure) = self.failure() {
            return Err(failure);
        }
        if self.arrived.is_empty() {
            return Err(self.report().unwrap_or(RecvError::Empty));
        }
        Ok(Request::new(self))
    }

    /// Waits for a request: the oldest one that is not decided. Its length and
    /// application data are seen before anything is read.
    ///
    /// # Errors
    /// [`RecvError::Peer`], [`RecvError::Closed`].
    pub fn next_request(&mut self) -> Result<Request<'_>, RecvError> {
        self.request_until(Deadline::NEVER)
    }

    /// As [`next_request`](Self::next_request), for at most `timeout`.
    ///
    /// # Errors
    /// Also [`RecvError::TimedOut`].
    pub fn next_request_timeout(&mut self, timeout: Duration) -> Result<Request<'_>, RecvError> {
        self.request_until(Deadline::after(timeout))
    }

    fn request_until(&mut self, deadline: Deadline) -> Result<Request<'_>, RecvError> {
        let mut idle = self.idle(deadline);
        // While others are busy, too.
        if let Some(failure) = self.failure() {
            return Err(failure);
        }
        while self.arrived.is_empty() {
            if self.progress()? > 0 {
                idle.reset();
            } else if let Some(end) = self.report() {
                return Err(end);
            } else {
                self.wait_a_little(&mut idle)?;
            }
        }
        Ok(Request::new(self))
    }

    /// Waits for a request and reads its message into `buffer`, as in Fischer's design. A
    /// message that is longer is refused.
    ///
    /// ```
    /// use rdma_conn::direct_read::{BufferConfig, Config, pair};
    ///
    /// let device = rdma_conn::device::soft()?;
    /// let (mut sender, mut receiver) = pair(&device, &device, &Config::default())?;
    /// let mut message = device.pd().register_buffer(4096, BufferConfig::READABLE)?;
    /// message[..5].copy_from_slice(b"hello");
    /// sender.send_part_async(message, 0..5, b"").map_err(|e| e.error)?;
    /// let place = device.pd().register_buffer(4096, BufferConfig::default())?;
    /// let reading = receiver.request_async(place)?;
    /// assert_eq!(&*receiver.wait(reading)?, b"hello");
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// As [`next_request`](Self::next_request) (the buffer is dropped then), and
    /// [`RecvError::TooLong`] with the buffer.
    pub fn request_async(&mut self, buffer: Buffer) -> Result<Reading, RecvError> {
        let request = self.next_request()?;
        match request.read_into(buffer) {
            Ok(reading) => Ok(reading),
            Err(not_read) => {
                let super::NotRead { request, buffer, why } = not_read;
                match (why, request) {
                    (NotReadReason::TooShort { len, .. }, Some(request)) => {
                        request.refuse_with(Refusal::TooLong);
                        Err(RecvError::TooLong { buffer, len })
                    }
                    (NotReadReason::Ended(ended), _) => Err(RecvError::Ended(ended)),
                    (why, _) => Err(RecvError::Ended(Ended::Device(why.to_string()))),
                }
            }
        }
    }

    pub(super) fn oldest(&self) -> Option<&Arrived> {
        self.arrived.front()
    }

    /// Reads the oldest request into a buffer or a file: its ticket.
    pub(super) fn read_oldest(&mut self, room: Room) -> Result<u64, (Room, NotReadReason)> {
        let Some(arrived) = self.arrived.front() else {
            return Err((room, NotReadReason::Ended(Ended::Closed)));
        };
        let (len, bytes, ticket) = (arrived.len, room.bytes(), self.tickets + 1);
        if len > bytes {
            return Err((room, NotReadReason::TooShort { len, room: bytes }));
        }
        let peer = arrived.peer;
        let Some(link) = self.links.iter_mut().find(|link| link.peer == peer) else {
            return Err((room, NotReadReason::Ended(Ended::Closed)));
        };
        if let Some(ended) = link.ended.clone() {
            return Err((room, NotReadReason::Ended(ended)));
        }
        if !room.takes(len, link.max_read()) {
            return Err((room, NotReadReason::NotForFiles { len }));
        }
        link.read(arrived, room, ticket).map_err(|room| (room, NotReadReason::OtherDevice))?;
        link.work();
        self.tickets = ticket;
        self.arrived.pop_front();
        self.collect(peer);
        Ok(ticket)
    }

    /// Acknowledges the oldest request if it has no bytes.
    pub(super) fn take_empty_oldest(&mut self) -> bool {
        let Some(arrived) = self.arrived.pop_front_if(|arrived| arrived.len == 0) else {
            return false;
        };
        self.stats.messages += 1;
        if let Some(link) = self.link(arrived.peer).filter(|link| link.ended.is_none()) {
            link.take_empty();
            link.work();
        }
        true
    }

    pub(super) fn refuse_oldest(&mut self, why: Refusal) {
        let Some(arrived) = self.arrived.pop_front() else { return };
        self.stats.refused += 1;
        if let Some(link) = self.link(arrived.peer).filter(|link| link.ended.is_none()) {
            link.refuse(why);
            link.work();
        }
    }
}

/// Messages.
impl Receiver {
    /// Waits until the message of `reading` has been read.
    ///
    /// # Errors
    /// [`RecvError::Unread`] with the buffer when it could not be,
    /// [`RecvError::UnknownTicket`].
    pub fn wait(&mut self, reading: Reading) -> Result<Message, RecvError> {
        self.wait_until(reading, Deadline::NEVER)
    }

    /// As [`wait`](Self::wait), for at most `timeout`.
    ///
    /// # Errors
    /// Also [`RecvError::TimedOut`]; the ticket stays good.
    pub fn wait_timeout(
        &mut self,
        reading: Reading,
        timeout: Duration,
    ) -> Result<Message, RecvError> {
        self.wait_until(reading, Deadline::after(timeout))
    }

    /// Whether the message of `reading` has been read, or cannot be: [`wait`](Self::wait)
    /// has its end then, and does not wait. Never waits.
    ///
    /// # Errors
    /// [`RecvError::UnknownTicket`].
    pub fn is_done(&mut self, reading: Reading) -> Result<bool, RecvError> {
        self.has_landed(reading.receiver, reading.ticket)
    }

    /// Whether the message of `reading` is in its file, or cannot be, as
    /// [`is_done`](Self::is_done).
    ///
    /// # Errors
    /// [`RecvError::UnknownTicket`].
    pub fn is_file_done(&mut self, reading: FileReading) -> Result<bool, RecvError> {
        self.has_landed(reading.receiver, reading.ticket)
    }

    /// Waits until the message of `reading` is in its file, and gives back the registration:
    /// what is in the file, its own reading shows.
    ///
    /// # Errors
    /// [`RecvError::Peer`] when it could not be read: there may be a part of it.
    /// [`RecvError::UnknownTicket`].
    pub fn wait_file(&mut self, reading: FileReading) -> Result<FileRegion, RecvError> {
        let FileReading { receiver, ticket } = reading;
        let Landed { peer, room, ended, .. } =
            self.landed_until(receiver, ticket, Deadline::NEVER)?;
        match (room, ended) {
            (_, Some(ended)) => Err(RecvError::Peer { peer, ended }),
            (Room::File(region), None) => Ok(region),
            (Room::Buffer(_), None) => Err(RecvError::UnknownTicket),
        }
    }

    /// The next message that was read into a buffer, in the order in which they were
    /// finished, if there is one; never waits.
    ///
    /// # Errors
    /// [`RecvError::Unread`] with the buffer when one could not be read.
    pub fn try_take(&mut self) -> Result<Option<(Reading, Message)>, RecvError> {
        // What has landed in a file stays until it is waited for.
        let next = |landed: &VecDeque<Landed>| landed.iter().position(|l| !l.room.is_file());
        let mut at = next(&self.landed);
        if at.is_none() {
            self.progress()?;
            at = next(&self.landed);
        }
        let Some(landed) = at.and_then(|at| self.landed.remove(at)) else { return Ok(None) };
        let reading = Reading { receiver: self.serial, ticket: landed.ticket };
        message(landed).map(|message| Some((reading, message)))
    }

    fn wait_until(&mut self, reading: Reading, deadline: Deadline) -> Result<Message, RecvError> {
        let Reading { receiver, ticket } = reading;
        self.landed_until(receiver, ticket, deadline).and_then(message)
    }

    fn has_landed(&mut self, receiver: u32, ticket: u64) -> Result<bool, RecvError> {
        let is_here = |landed: &VecDeque<Landed>| landed.iter().any(|l| l.ticket == ticket);
        if receiver != self.serial {
            return Err(RecvError::UnknownTicket);
        }
        if is_here(&self.landed) {
            return Ok(true);
        }
        self.progress()?;
        let is_reading = self.links.iter().any(|link| link.is_reading(ticket));
        match is_here(&self.landed) {
            false if !is_reading => Err(RecvError::UnknownTicket),
            is_here => Ok(is_here),
        }
    }

    /// Waits for a message by the numbers of its receiver and of itself.
    fn landed_until(
        &mut self,
        receiver: u32,
        ticket: u64,
        deadline: Deadline,
    ) -> Result<Landed, RecvError> {
        if receiver != self.serial {
            return Err(RecvError::UnknownTicket);
        }
        let mut idle = self.idle(deadline);
        loop {
            if let Some(at) = self.landed.iter().position(|l| l.ticket == ticket) {
                return self.landed.remove(at).ok_or(RecvError::UnknownTicket);
            }
            if !self.links.iter().any(|link| link.is_reading(ticket)) {
                return Err(RecvError::UnknownTicket);
            }
            match self.progress()? {
                0 => self.wait_a_little(&mut idle)?,
                _ => idle.reset(),
            }
        }
    }
}

/// Driving.
impl Receiver {
    /// Takes what has completed and does what follows from it; how much there was.
    pub fn progress(&mut self) -> Result<usize, RecvError> {
        if let Some(ended) = &self.ended {
            return Err(ended.clone().into());
        }
        let mut batch = self.batch.take().unwrap_or_else(|| CompletionBatch::new(Self::POLL_BATCH));
        let polled = self.cq.poll(&mut batch);
        for completion in batch.drain() {
            self.completed(completion);
        }
        self.batch = Some(batch);
        let polled = polled.map_err(|e| self.fail(Ended::Device(e.to_string())))?;
        if polled > 0 {
            self.repost()?;
            self.ask_after_the_silent();
            self.links.iter_mut().for_each(Link::work);
            for at in 0..self.links.len() {
                self.collect(self.links[at].peer);
            }
        }
        Ok(polled)
    }

    /// Asks after peers that were silent for a keepalive interval, while others are not.
    fn ask_after_the_silent(&mut self) {
        self.busy = self.busy.wrapping_add(1);
        if !self.busy.is_multiple_of(Self::POLLS_PER_LOOK) {
            return;
        }
        let now = Instant::now();
        let since = *self.asked.get_or_insert(now);
        if now.duration_since(since) < self.config.keepalive {
            return;
        }
        self.asked = Some(now);
        for link in &mut self.links {
            if !std::mem::take(&mut link.heard) {
                link.probe();
            }
        }
    }

    fn fail(&mut self, ended: Ended) -> RecvError {
        self.ended.get_or_insert(ended).clone().into()
    }

    fn completed(&mut self, completion: Completion<'_>) {
        let id = completion.queue_id();
        if let Some(link) = self.links.iter_mut().find(|link| link.queue.queue_id() == id) {
            return link.completed(&completion);
        }
        let (imm, qp_num) = (completion.imm(), completion.qp_num());
        let own = self.links.iter().position(|link| link.control.qp_num() == qp_num);
        let Some(at) = own else { return self.stray(completion) };
        let link = &mut self.links[at];
        let shared = self.shared.as_mut();
        let Some(recv) = link.recv.as_mut().or(shared).filter(|recv| recv.queue_id() == id) else {
            return link.fail(Ended::Protocol(crate::send_recv::Violation::Completion));
        };
        let taken = match recv.take(completion) {
            Ok(buf) => buf,
            Err(e) => {
                let ended = ended_by(&e);
                return if link.ended.is_none() {
                    link.fail(ended)
                };
            }
        };
        // The request is a few bytes, and is taken out at once.
        if link.ended.is_none() {
            match link.received(imm, &taken) {
                Ok(Came::Request(arrived)) => self.arrived.push_back(arrived),
                Ok(Came::Notice) => {}
                Err(ended) => link.fail(ended),
            }
        }
        if let Some(recv) = link.recv.as_mut().or(self.shared.as_mut()) {
            recv.put_back(taken);
        }
    }

    /// Posts the buffers again that requests have come in. Before anything is acknowledged:
    /// the sender offers the next message then.
    fn repost(&mut self) -> Result<(), RecvError> {
        for link in &mut self.links {
            if let Some(Err(e)) = link.recv.as_mut().map(RecvQueue::post_gathered) {
                link.fail(Ended::Device(e.to_string()));
            }
        }
        match self.shared.as_mut().map(RecvQueue::post_gathered) {
            Some(Err(e)) => Err(self.fail(Ended::Device(e.to_string()))),
            _ => Ok(()),
        }
    }

    /// A completion of a queue pair that is gone: of a shared queue, its buffer comes back.
    fn stray(&mut self, completion: Completion<'_>) {
        let Some(shared) = &mut self.shared else { return };
        if completion.queue_id() != shared.queue_id() {
            return;
        }
        if let Ok(taken) = shared.take(completion) {
            shared.put_back(taken);
        }
    }

    /// Gathers the messages of a link that have been read.
    fn collect(&mut self, peer: Peer) {
        let Some(link) = self.links.iter_mut().find(|link| link.peer == peer) else { return };
        while let Some(landed) = link.landed() {
            if landed.ended.is_none() {
                self.stats.messages += 1;
                self.stats.bytes += landed.len;
            }
            self.landed.push_back(landed);
        }
    }

    /// A peer that has ended with an error which was not told yet: what it has offered
    /// cannot be read any more.
    fn failure(&mut self) -> Option<RecvError> {
        let is_new = |link: &&mut Link| !link.reported && link.ended.is_some();
        let link = self.links.iter_mut().find(is_new)?;
        link.reported = true;
        let (peer, ended) = (link.peer, link.ended.clone()?);
        self.arrived.retain(|arrived| arrived.peer != peer);
        Some(RecvError::Peer { peer, ended })
    }

    /// What has ended and was not told yet: a peer with an error, or all of them.
    fn report(&mut self) -> Option<RecvError> {
        if let Some(failure) = self.failure() {
            return Some(failure);
        }
        for link in self.links.iter_mut().filter(|link| link.is_over() && link.is_idle()) {
            link.ended.get_or_insert(Ended::Closed);
            link.reported = true;
        }
        self.links.iter().all(|link| link.reported).then_some(RecvError::Closed)
    }

    fn idle(&mut self, deadline: Deadline) -> Idle {
        let idle = Idle::new(self.config.wait, deadline, self.config.keepalive);
        idle.resume(&mut self.silence)
    }

    fn wait_a_little(&mut self, idle: &mut Idle) -> Result<(), RecvError> {
        match idle.step() {
            Step::Again => Ok(()),
            Step::Sleep(time) => self.sleep(time),
            Step::Probe => {
                tracing::debug!("{SILENT}");
                self.links.iter_mut().for_each(Link::probe);
                Ok(())
            }
            Step::TimedOut => {
                self.silence = idle.silence();
                Err(RecvError::TimedOut)
            }
        }
    }

    /// Arms the queue, looks once more, and sleeps: a completion that comes between the
    /// look and the sleep rings the channel.
    fn sleep(&mut self, time: Duration) -> Result<(), RecvError> {
        if let Err(e) = self.cq.arm(false) {
            return Err(self.fail(Ended::Device(e.to_string())));
        }
        if self.progress()? > 0 {
            return Ok(());
        }
        let Some(channel) = &mut self.channel else { return Ok(()) };
        match channel.wait(Some(time)) {
            Ok(_) => Ok(()),
            Err(e) => Err(self.fail(Ended::Device(e.to_string()))),
        }
    }
}

impl Drop for Receiver {
    fn drop(&mut self) {
        self.links.iter_mut().filter(|link| !link.is_over()).for_each(Link::stop);
        let mut idle = self.idle(Deadline::after(self.config.linger));
        let waits = |link: &Link| link.ended.is_none() && !link.is_over() && !link.is_empty();
        while self.links.iter().any(waits) {
            match self.progress() {
                Ok(0) if self.wait_a_little(&mut idle).is_err() => break,
                Ok(_) => {}
                Err(_) => break,
            }
        }
    }
}
