//! The operations of a Shared Write connection, and a naive model of them: the messages of each
//! sender, its requests in flight, and the receiver's memory.

use std::{collections::VecDeque, vec, vec::Vec};

use arbitrary::Arbitrary;

use super::*;
use crate::checksum::{checksum_of, verified};
use crate::exhaustive::CheckedMachine;

/// An operation on a connection. Senders are taken modulo their number.
#[derive(Arbitrary, Clone, Copy, Debug)]
pub enum SharedWriteOp {
    /// A sender sends a message of the given length, if it has room.
    Send(u8, u8),
    /// The oldest request of a sender is executed.
    Execute(u8),
    /// The oldest request of a sender begins: some of its bytes arrive.
    Begin(u8, u8),
    /// A sender takes the results of its requests, and takes a ticket or reads the entry again.
    Drive(u8),
    /// The receiver looks for the next message of a sender.
    Look(u8),
    /// The receiver gives free extents to tickets.
    Grant,
    /// A sender says goodbye.
    Close(u8),
    /// A sender dies: some of its requests are never executed.
    Die(u8),
    /// A new sender takes the place of one that has gone.
    Join(u8),
    /// A sender writes a trailer of any words to where its next one goes.
    LieTrailer(u8, u8, u32),
    /// The words of a sender's link are these.
    LieLink(u8, u8, u8, u8),
    /// The tail differs from the true one by this.
    LieTail(i8),
    /// The receiver's words for a ticket are these.
    LieEntry(u8, u16, u8),
}

/// Parameters of the oracle's connection.
#[derive(Arbitrary, Clone, Copy, Debug)]
pub struct SharedWriteParams {
    /// Extents: 1 to 6.
    pub extents: u8,
    /// Senders at a time: 1 to 3.
    pub links: u8,
    /// The longest message, in bytes: 0 to 15.
    pub max_message: u8,
    /// True if the bytes of a request may arrive in any order, and trailers apart.
    pub apart: bool,
}

const EXTENT_BYTES: u32 = 128;

/// A request on its way.
#[derive(Clone, Debug)]
enum SenderRequest {
    Write {
        at: usize,
        bytes: Vec<u8>,
    },
    FetchAdd,
    /// A WRITE of the fetch-and-add's result.
    WriteTicket {
        at: usize,
    },
    /// READs of the count of decided tickets and of an entry, one after the other.
    ReadDecided,
    ReadEntry {
        at: usize,
    },
    /// The completion that the sender sees.
    Complete(CompletionCause),
}

#[derive(Clone, Copy, Debug)]
enum CompletionCause {
    Claim,
    Look,
}

#[derive(Clone, Debug)]
struct SenderPeer {
    core: ExtentSender,
    requests: VecDeque<SenderRequest>,
    done: Option<CompletionCause>,
    is_looking: bool,
    fetched: u64,
    decided: Option<u64>,
    entry: Option<u64>,
    /// Sent and not taken.
    model: VecDeque<Vec<u8>>,
    is_closed: bool,
    is_dead: bool,
    has_ended: bool,
}

impl SenderPeer {
    fn new(layout: Layout) -> SenderPeer {
        SenderPeer {
            core: ExtentSender::new(layout),
            requests: VecDeque::new(),
            done: None,
            is_looking: false,
            fetched: 0,
            decided: None,
            entry: None,
            model: VecDeque::new(),
            is_closed: false,
            is_dead: false,
            has_ended: false,
        }
    }

    fn is_gone(&self) -> bool {
        self.is_dead || self.is_closed
    }

    fn write(&mut self, at: u64, words: &[u64]) {
        self.requests.push_back(SenderRequest::Write { at: at as usize, bytes: checked(words) });
    }
}

/// The receiver, its memory, and the senders.
#[derive(Clone, Debug)]
pub struct CheckedSharedWrite {
    receiver: ExtentReceiver<Vec<ExtentSlot>, Vec<LinkSlot>>,
    layout: Layout,
    apart: bool,
    memory: Vec<u8>,
    peers: Vec<SenderPeer>,
    count: u8,
}

fn checked(words: &[u64]) -> Vec<u8> {
    words.iter().chain(&[checksum_of(words)]).flat_map(|word| word.to_le_bytes()).collect()
}

fn word_at(memory: &[u8], at: usize) -> u64 {
    u64::from_le_bytes(memory[at..at + 8].try_into().expect("eight bytes"))
}

fn words_at<const N: usize>(memory: &[u8], at: u64) -> Option<[u64; N]> {
    let word = |nth| word_at(memory, at as usize + 8 * nth);
    verified(core::array::from_fn(word), word(N))
}

impl CheckedSharedWrite {
    /// One over which nothing was sent.
    pub fn new(params: SharedWriteParams) -> Self {
        let (extents, links) = (1 + u32::from(params.extents % 6), 1 + u32::from(params.links % 3));
        let longest = u32::from(params.max_message % 16);
        let layout = Layout::new(extents, EXTENT_BYTES, longest, links).expect("a layout");
        let extent_slots = vec![ExtentSlot::default(); extents as usize];
        let link_slots = vec![LinkSlot::default(); links as usize];
        let mut receiver = ExtentReceiver::new(layout, extent_slots, link_slots).expect("it fits");
        (0..links).for_each(|link| receiver.open(link));
        let peers = (0..links).map(|_| SenderPeer::new(layout)).collect();
        let mut memory = vec![0; layout.bytes() as usize];
        memory[..8].copy_from_slice(&1_u64.to_le_bytes());
        let mut ring = Self { receiver, layout, apart: params.apart, memory, peers, count: 0 };
        ring.grant();
        ring
    }

    fn store(&mut self, at: u64, words: &[u64]) {
        let bytes = checked(words);
        self.memory[at as usize..][..bytes.len()].copy_from_slice(&bytes);
    }

    fn grant(&mut self) {
        while let Some(Grant { entry_at, word }) = self.receiver.grant() {
            self.store(entry_at, &[word]);
        }
        self.store(DECIDED_AT, &[self.receiver.decided()]);
    }

    fn send(&mut self, nth: usize, len: u8) {
        let (apart, peer) = (self.apart, &mut self.peers[nth]);
        let len = u32::from(len) % (self.layout.max_message() + 1);
        if peer.is_gone() {
            return;
        }
        let Some(spot) = peer.core.spot(len) else { return };
        self.count = self.count.wrapping_add(1);
        let payload: Vec<u8> = (0..len).map(|at| self.count ^ at as u8).collect();
        let mut bytes = payload.clone();
        bytes.resize(padded(len) as usize, 0);
        let at = spot.payload_at as usize;
        if apart && len > 0 {
            peer.requests.push_back(SenderRequest::Write { at, bytes });
            spot.end.into_iter().for_each(|(at, words)| peer.write(at, &words));
            peer.write(spot.trailer_at, &spot.trailer);
        } else {
            bytes.extend(checked(&spot.trailer));
            peer.requests.push_back(SenderRequest::Write { at, bytes });
            spot.end.into_iter().for_each(|(at, words)| peer.write(at, &words));
        }
        peer.core.mark_sent(&spot);
        peer.model.push_back(payload);
    }

    fn execute(&mut self, nth: usize) {
        let peer = &mut self.peers[nth];
        let Some(request) = peer.requests.pop_front() else { return };
        match request {
            SenderRequest::Write { at, bytes } => {
                self.memory[at..][..bytes.len()].copy_from_slice(&bytes);
            }
            SenderRequest::FetchAdd => {
                peer.fetched = word_at(&self.memory, 0);
                self.memory[..8].copy_from_slice(&(peer.fetched + 1).to_le_bytes());
            }
            SenderRequest::WriteTicket { at } => {
                self.memory[at..][..8].copy_from_slice(&peer.fetched.to_le_bytes());
            }
            SenderRequest::ReadDecided => {
                peer.decided = words_at(&self.memory, DECIDED_AT).map(|[word]| word);
            }
            SenderRequest::ReadEntry { at } => {
                peer.entry = words_at(&self.memory, at as u64).map(|[word]| word);
            }
            SenderRequest::Complete(done) => peer.done = Some(done),
        }
    }

    fn begin(&mut self, nth: usize, choice: u8) {
        let peer = &self.peers[nth];
        let ticket = peer.fetched.to_le_bytes();
        let (at, bytes) = match peer.requests.front() {
            Some(SenderRequest::Write { at, bytes }) => (at, &bytes[..]),
            Some(SenderRequest::WriteTicket { at }) => (at, &ticket[..]),
            _ => return,
        };
        let upto = bytes.len() * usize::from(choice) / 256;
        // The last bytes never arrive early: a record that has arrived as a whole would be cleared
        // before the write itself arrives.
        for (nth, byte) in bytes[..bytes.len().saturating_sub(8)].iter().enumerate() {
            let scattered = (nth as u32 + 1).wrapping_mul(0x9e37_79b9 ^ u32::from(choice) << 8);
            if if self.apart { scattered >> 13 & 1 == 1 } else { nth < upto } {
                self.memory[at + nth] = *byte;
            }
        }
    }

    fn drive(&mut self, nth: usize) {
        let at = self.layout.link_at(nth as u32);
        let peer = &mut self.peers[nth];
        if peer.is_dead {
            return;
        }
        match peer.done.take() {
            Some(CompletionCause::Claim) => {
                peer.core.on_claimed(peer.fetched).expect("an honest receiver")
            }
            Some(CompletionCause::Look) => {
                peer.core.on_entry(peer.decided, peer.entry).expect("an honest receiver");
                peer.is_looking = false;
            }
            None => {}
        }
        if let Some(Claim { words, place }) = peer.core.claim_due() {
            peer.write(at + ANNOUNCED_AT, &words);
            peer.requests.push_back(SenderRequest::FetchAdd);
            peer.requests.push_back(SenderRequest::WriteTicket { at: (at + place) as usize });
            peer.write(at + REPORTED_AT, &words);
            peer.requests.push_back(SenderRequest::Complete(CompletionCause::Claim));
        }
        if let Some(ticket) = peer.core.looks_for().filter(|_| !peer.is_looking) {
            peer.is_looking = true;
            let at = self.layout.entry_at(ticket) as usize;
            let reads = [SenderRequest::ReadDecided, SenderRequest::ReadEntry { at }];
            peer.requests
                .extend(reads.into_iter().chain([SenderRequest::Complete(CompletionCause::Look)]));
        }
    }

    fn link_words(&self, link: u32) -> LinkWords {
        let at = self.layout.link_at(link);
        LinkWords {
            reported: words_at(&self.memory, at + REPORTED_AT),
            first: word_at(&self.memory, (at + FIRST_AT) as usize),
            ahead: word_at(&self.memory, (at + AHEAD_AT) as usize),
            announced: words_at(&self.memory, at + ANNOUNCED_AT),
        }
    }

    fn recycle(&mut self, emptied: Emptied) {
        self.memory[emptied.offset as usize..][..emptied.len as usize].fill(0);
        self.receiver.recycle(emptied);
    }

    /// Looks for a sender's next message or its end, and reports whether anything was new.
    fn look(&mut self, nth: usize) -> bool {
        let link = nth as u32;
        if self.peers[nth].has_ended {
            return false;
        }
        let Some(at) = self.receiver.trailer_at(link).expect("an honest sender") else {
            self.receiver.on_link(link, self.link_words(link)).expect("an honest sender");
            let found = self.receiver.trailer_at(link).expect("an honest sender").is_some();
            return found || self.hear(nth);
        };
        let words = words_at(&self.memory, at);
        match self.receiver.on_trailer(link, words).expect("an honest sender") {
            LookOutcome::Message { offset, len } => {
                let found = &self.memory[offset as usize..][..len as usize];
                let sent = self.peers[nth].model.pop_front().expect("it was sent");
                assert_eq!(found, &sent[..], "of sender {nth}");
                true
            }
            LookOutcome::End(emptied) => {
                self.recycle(emptied);
                self.grant();
                true
            }
            LookOutcome::Nothing => self.hear(nth),
        }
    }

    /// Looks for the end of a sender that has written nothing more.
    fn hear(&mut self, nth: usize) -> bool {
        let (link, peer) = (nth as u32, &self.peers[nth]);
        let at = self.layout.link_at(link) + GOODBYE_AT;
        let is_first = !self.receiver.has_heard_goodbye(link);
        let said = self.receiver.on_goodbye(link, words_at(&self.memory, at)).expect("honest");
        if said && is_first {
            assert!(peer.is_closed);
            return true;
        }
        let has_died = peer.is_dead && peer.requests.is_empty();
        if has_died || self.receiver.has_ended(link) {
            assert!(has_died || peer.model.is_empty(), "all was taken");
            self.peers[nth].has_ended = true;
            if let Some(emptied) = self.receiver.close(link) {
                self.recycle(emptied);
            }
            self.receiver.begin_audit(word_at(&self.memory, 0)).expect("an honest tail");
            return true;
        }
        false
    }

    fn audit(&mut self) {
        for link in 0..self.layout.links() {
            if self.receiver.awaits(link) {
                self.receiver.audit(link, self.link_words(link));
            }
        }
        while let Some(emptied) = self.receiver.orphan() {
            let extent = (emptied.offset - self.layout.extent_at(0)) / u64::from(EXTENT_BYTES);
            let living = self.peers.iter().filter(|peer| !peer.is_gone());
            assert!(!living.into_iter().any(|peer| peer.core.holds(extent as u32)));
            self.recycle(emptied);
        }
        self.grant();
    }

    fn close(&mut self, nth: usize) {
        let at = self.layout.link_at(nth as u32) + GOODBYE_AT;
        let peer = &mut self.peers[nth];
        if !peer.is_gone() {
            peer.is_closed = true;
            peer.core.close();
            peer.write(at, &[peer.core.sent(), GOODBYE]);
        }
    }

    fn join(&mut self, nth: usize) {
        if !self.peers[nth].has_ended {
            return;
        }
        let at = self.layout.link_at(nth as u32) as usize;
        self.memory[at..][..LINK_BYTES as usize].fill(0);
        self.peers[nth] = SenderPeer::new(self.layout);
        self.receiver.open(nth as u32);
    }

    /// Passes forged words to a copy of an end, and checks its answer. The connection does not
    /// change.
    fn lie(&self, op: SharedWriteOp) {
        let mut receiver = self.receiver.clone();
        let link = |nth: u8| u32::from(nth) % self.layout.links();
        match op {
            SharedWriteOp::LieTrailer(nth, ticket, len) => {
                let used = if ticket & 1 == 0 { u64::from(ticket) << 32 } else { 0 };
                let words = [u64::from(ticket), used | u64::from(len)];
                if let Ok(Some(at)) = receiver.trailer_at(link(nth)) {
                    match receiver.on_trailer(link(nth), Some(words)) {
                        Ok(LookOutcome::Message { offset, len }) => {
                            assert_eq!(offset + padded(len), at);
                            assert!(offset >= self.layout.extent_at(0));
                        }
                        Ok(LookOutcome::End(emptied)) => {
                            assert!(emptied.offset + emptied.len <= self.layout.bytes());
                        }
                        Ok(LookOutcome::Nothing) | Err(_) => {}
                    }
                }
            }
            SharedWriteOp::LieLink(nth, number, used, first) => {
                let far = |word: u8| if word == 255 { u64::MAX } else { word.into() };
                let [number, used, first] = [number, used, first].map(far);
                let announced = Some([number.wrapping_add(first & 1), used]);
                let reported = Some([number, used]);
                let words = LinkWords { reported, first, ahead: used.wrapping_add(1), announced };
                let _ = receiver.on_link(link(nth), words);
                receiver.audit(link(nth), words);
            }
            SharedWriteOp::LieTail(by) => {
                let tail = receiver.decided().wrapping_add_signed(by.into());
                let _ = receiver.begin_audit(tail);
            }
            SharedWriteOp::LieEntry(nth, extent, by) => {
                let mut core = self.peers[link(nth) as usize].core.clone();
                let ticket = core.looks_for().unwrap_or(1) + u64::from(by % 2);
                let word = entry_word(ticket, extent.into());
                if core.on_entry(Some(ticket), Some(word)).is_ok()
                    && let Some(spot) = core.spot(0)
                {
                    assert!(spot.trailer_at + TRAILER_BYTES <= self.layout.bytes());
                }
                return;
            }
            _ => return,
        }
        for _ in 0..4 {
            let _ = receiver.grant();
            if let Some(emptied) = receiver.orphan() {
                receiver.recycle(emptied);
            }
        }
    }

    /// Executes all requests and takes all messages, and checks that nothing is missing.
    pub fn settle(&mut self) {
        loop {
            let mut is_new = false;
            for nth in 0..self.peers.len() {
                while !self.peers[nth].requests.is_empty() {
                    self.execute(nth);
                }
                while self.look(nth) {
                    is_new = true;
                }
                let before = self.peers[nth].core.clone();
                self.drive(nth);
                is_new |= self.peers[nth].core != before;
            }
            let free = self.receiver.free_extents();
            let decided = self.receiver.decided();
            self.audit();
            is_new |= (free, decided) != (self.receiver.free_extents(), self.receiver.decided());
            if !is_new {
                break;
            }
        }
        for peer in &self.peers {
            assert!(peer.is_dead || peer.model.is_empty(), "all that was sent was taken");
            assert_eq!(peer.has_ended, peer.is_gone(), "the end is seen");
        }
        self.check_rest();
    }

    /// At rest, each extent is granted to a ticket: of a sender, or one that was not taken yet. So
    /// nothing is lost, and a sender that joins finds an extent, unless living ones have them all.
    fn check_rest(&mut self) {
        let living = self.peers.iter().filter(|peer| !peer.is_gone()).count() as u64;
        let tail = word_at(&self.memory, 0);
        let untaken = self.receiver.decided().saturating_sub(tail);
        let extents = u64::from(self.layout.extents());
        let free = u64::from(self.receiver.free_extents());
        assert!(
            untaken + free + 2 * living >= extents,
            "{untaken} not taken, {living} living, {free} free of {extents}"
        );
    }

    /// All senders leave, and all their extents are returned.
    pub fn end(&mut self) {
        (0..self.peers.len()).for_each(|nth| self.close(nth));
        self.settle();
    }

    /// Messages that a sender has sent.
    pub fn sent(&self, nth: usize) -> u64 {
        self.peers[nth].core.sent()
    }

    fn nth(&self, nth: u8) -> usize {
        usize::from(nth) % self.peers.len()
    }
}

impl CheckedMachine for CheckedSharedWrite {
    type Op = SharedWriteOp;

    fn apply(&mut self, op: SharedWriteOp) {
        match op {
            SharedWriteOp::Send(nth, len) => self.send(self.nth(nth), len),
            SharedWriteOp::Execute(nth) => self.execute(self.nth(nth)),
            SharedWriteOp::Begin(nth, choice) => self.begin(self.nth(nth), choice),
            SharedWriteOp::Drive(nth) => self.drive(self.nth(nth)),
            SharedWriteOp::Look(nth) => {
                self.look(self.nth(nth));
            }
            SharedWriteOp::Grant => self.audit(),
            SharedWriteOp::Close(nth) => self.close(self.nth(nth)),
            SharedWriteOp::Die(nth) => {
                let peer = self.nth(nth);
                let peer = &mut self.peers[peer];
                if !peer.is_gone() {
                    peer.is_dead = true;
                    peer.requests.clear();
                }
            }
            SharedWriteOp::Join(nth) => self.join(self.nth(nth)),
            lie => self.lie(lie),
        }
    }
}

/// Applies the operations to a new ring, drives it until it is idle, and ends it.
pub fn run(params: SharedWriteParams, ops: &[SharedWriteOp]) {
    let mut ring = CheckedSharedWrite::new(params);
    ops.iter().for_each(|op| ring.apply(*op));
    ring.clone().settle();
    ring.end();
}
