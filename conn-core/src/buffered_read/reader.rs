//! The receiver's end.

use super::wake::Sleep;
use super::{LAST, Words};
use crate::ring::fetch::{Fetch, FetchConfig, FetchConfigError, MAX_READS, NotPosted, Read};
use crate::ring::{Consumer, ConsumerConfig, Geometry, RecordError, TailError, Taken};

/// WRITEs that can be on their way at once.
pub const MAX_WORDS: usize = 8;
const PLACES: usize = 32;
static_assertions::const_assert!(MAX_READS + 1 + MAX_WORDS <= PLACES);

/// Policies of a receiver: its READs, and its reports to the sender.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReaderConfig {
    /// Freed bytes that are worth a WRITE: see [`ConsumerConfig::head_threshold`].
    pub head_threshold: u64,
    /// Length of data READs, and the number that may be in flight at once.
    pub fetch: FetchConfig,
    /// True if data are fetched while records are still to be handed out, where that gains time:
    /// see [`Reader::polled`].
    pub prefetch: bool,
    /// Consecutive polls of the tail that find nothing new, after which all progress that was not
    /// yet advertised to the sender is written to it.
    pub head_update_polls: u32,
    /// Fewest bytes for which a READ is posted while the sender is active: fewer are left to gather
    /// until a poll finds that it has paused. 0 reads all at once.
    pub gather: u64,
}

impl Default for ReaderConfig {
    /// Writes the head after each free, or after 32 polls that find nothing new; READs as of
    /// [`FetchConfig`], ahead of the records that are handed out.
    fn default() -> Self {
        Self {
            head_threshold: 0,
            fetch: FetchConfig::default(),
            prefetch: true,
            head_update_polls: 32,
            gather: 0,
        }
    }
}

/// A request to be posted, in the order given and with one doorbell. Each one is signalled.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReaderRequest {
    /// A READ of a piece of the ring.
    Data(Read),
    /// A READ of the sender's tail.
    Tail,
    /// A WRITE of both words.
    Words(Words),
    /// A WRITE of a request to be [woken](super::wake), for which a receive was posted
    /// before.
    WakeUp(u64),
}

/// An error after which a reader cannot continue.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ReaderError {
    /// A tail that cannot be: the peer broke the protocol.
    #[error("{0}")]
    Tail(TailError),
    /// Something completed that was not posted: the device or the driver is broken.
    #[error("{0}")]
    NotPosted(NotPosted),
}

/// Progress of a connection towards its end.
///
/// ```text
///             FIN is read             all is read, SEEN is posted
///   Open ------------------> Ending ------------------> Ended
///     |                        |
///     +------------------------+--- stop() -----------> Stopping
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReaderState {
    /// More bytes may follow.
    Open,
    /// The tail is the last one.
    Ending,
    /// All was read and reported to the sender: nothing more is posted. Records may be
    /// left to be handed out.
    Ended,
    /// Nothing more is read.
    Stopping,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum RequestKind {
    Data,
    Tail,
    Words,
}

/// The receiver of a Buffered Read connection. See the [module](super).
///
/// ```
/// use conn_core::buffered_read::{Reader, ReaderConfig, ReaderRequest};
/// use conn_core::ring::{Geometry, fetch::{FetchConfig, Read}};
///
/// let fetch = FetchConfig { max_read_bytes: 4096, reads: 4 };
/// let (head_threshold, head_update_polls, gather) = (64, 8, 0);
/// let config = ReaderConfig { head_threshold, fetch, prefetch: true, head_update_polls, gather };
/// let mut reader = Reader::new(Geometry::mirrored(1 << 16, 1 << 12)?, config)?;
///
/// reader.look_again(); // there is nothing to hand out
/// assert_eq!(reader.next_request(), Some(ReaderRequest::Tail));
/// reader.on_completion(|| Some(24))?; // the tail that was read
/// assert_eq!(reader.next_request(), Some(ReaderRequest::Data(Read { offset: 0, len: 24 })));
/// assert_eq!(reader.next_request(), Some(ReaderRequest::Tail)); // behind it
/// assert_eq!(reader.next_request(), None);
/// reader.on_completion(|| unreachable!())?;
/// assert_eq!(reader.next_header(), Some(0));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
// Invariant: on their way are, in order, `kinds[first ..]`: as many Data as the fetch
// has on its way, at most one Tail, and at most MAX_WORDS Words.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reader {
    ring: Consumer,
    fetch: Fetch,
    config: ReaderConfig,
    kinds: [RequestKind; PLACES],
    first: u32,
    posted: u32,
    words: u32,
    /// There was nothing to hand out, and nothing has landed since.
    is_hungry: bool,
    /// Too few bytes for another READ have been published, and the sender is active.
    is_gathering: bool,
    /// A READ of data was posted with nothing to hand out, and [`polled`](Self::polled) has
    /// not yet checked whether it has completed.
    is_watched: bool,
    /// The last such READ had completed by the first poll: the device is synchronous.
    is_synchronous: bool,
    is_tail_wanted: bool,
    is_tail_coming: bool,
    /// The first look after the last READ of data found something new: the tail is also read with
    /// the next one.
    goes_along: bool,
    /// A READ of data was posted since the last look.
    is_first_look: bool,
    sleep: Sleep,
    /// The READ of the tail on its way [counts](Sleep::counts_looks) before a sleep.
    is_tail_counted: bool,
    /// Consecutive looks at the tail that found nothing new.
    vain: u32,
    told_landed: u64,
    state: ReaderState,
    is_stop_told: bool,
}

/// Requests to be posted.
impl Reader {
    /// The receiver of an empty ring.
    ///
    /// # Errors
    /// [`FetchConfigError`].
    pub const fn new(geometry: Geometry, config: ReaderConfig) -> Result<Self, FetchConfigError> {
        let fetch = match Fetch::new(geometry, config.fetch) {
            Ok(fetch) => fetch,
            Err(error) => return Err(error),
        };
        let ring = ConsumerConfig { head_threshold: config.head_threshold };
        Ok(Self {
            ring: Consumer::new(geometry, ring),
            fetch,
            config,
            kinds: [RequestKind::Tail; PLACES],
            first: 0,
            posted: 0,
            words: 0,
            is_hungry: false,
            is_gathering: false,
            is_watched: false,
            is_synchronous: false,
            is_tail_wanted: false,
            is_tail_coming: false,
            goes_along: true,
            is_first_look: false,
            sleep: Sleep::new(),
            is_tail_counted: false,
            vain: 0,
            told_landed: 0,
            state: ReaderState::Open,
            is_stop_told: false,
        })
    }

    /// Notes that no whole record is there to hand out: makes more READs due, or a READ of the tail
    /// if no READ is in flight.
    #[inline]
    pub fn look_again(&mut self) {
        self.is_hungry = true;
        self.is_tail_wanted |= self.state == ReaderState::Open && self.fetch.on_their_way() == 0;
    }

    /// The next request of this posting, which counts as posted; `None` when there is none
    /// now.
    pub fn next_request(&mut self) -> Option<ReaderRequest> {
        if matches!(self.state, ReaderState::Open | ReaderState::Ending) {
            if self.sleep.is_due() && self.words < MAX_WORDS as u32 {
                return self.next_before_sleep();
            }
            if let Some(read) = self.next_read() {
                self.bring_tail();
                self.is_watched |= self.is_hungry;
                return Some(self.post(RequestKind::Data, ReaderRequest::Data(read)));
            }
            if self.is_tail_wanted && !self.is_tail_coming && self.state == ReaderState::Open {
                (self.is_tail_wanted, self.is_tail_coming) = (false, true);
                self.is_tail_counted = self.sleep.counts_looks();
                return Some(self.post(RequestKind::Tail, ReaderRequest::Tail));
            }
        }
        let words = self.words_due().filter(|_| self.words < MAX_WORDS as u32)?;
        self.told(words);
        Some(self.post(RequestKind::Words, ReaderRequest::Words(words)))
    }

    /// The words that are due, and then the request to be woken: the sender must not take what was
    /// read before the request for news behind it.
    #[cold]
    fn next_before_sleep(&mut self) -> Option<ReaderRequest> {
        // All of them: news since the sleep was prepared leaves some for later.
        let is_unreported = self.state == ReaderState::Open && self.has_unreported();
        let words = if is_unreported { Some(self.words_with(0, 0)) } else { self.words_due() };
        if let Some(words) = words {
            self.told(words);
            return Some(self.post(RequestKind::Words, ReaderRequest::Words(words)));
        }
        let number = self.sleep.request()?;
        Some(self.post(RequestKind::Words, ReaderRequest::WakeUp(number)))
    }

    fn next_read(&mut self) -> Option<Read> {
        if self.is_gathering {
            return None;
        }
        let prefetch = self.config.prefetch && !self.is_synchronous;
        let may = prefetch || self.is_hungry && self.fetch.on_their_way() == 0;
        may.then(|| self.fetch.next(self.ring.tail())).flatten()
    }

    /// Data are about to be read: the tail is read with them, if the first look after the last
    /// ones found something new. If it did not, the messages are one at a time, and that look is
    /// spared, which the sender's device would answer while the program answers the message. It
    /// counts as one that found nothing, so that the next message is not left to gather.
    fn bring_tail(&mut self) {
        self.is_first_look = true;
        self.is_tail_wanted = self.goes_along;
        if !self.goes_along {
            self.vain = self.vain.max(1);
        }
    }

    fn post(&mut self, kind: RequestKind, request: ReaderRequest) -> ReaderRequest {
        self.kinds[(self.first + self.posted) as usize % PLACES] = kind;
        self.posted += 1;
        self.words += u32::from(kind == RequestKind::Words);
        request
    }

    fn words_due(&self) -> Option<Words> {
        let all_landed = self.fetch.landed() == self.ring.tail();
        let words = self.words_with(0, 0);
        match self.state {
            ReaderState::Stopping if !self.is_stop_told => Some(self.last_words()),
            ReaderState::Ending if all_landed => Some(self.words_with(0, LAST)),
            ReaderState::Open if self.ring.head_due().is_some() => Some(words),
            ReaderState::Open
                if self.vain >= self.config.head_update_polls && self.has_unreported() =>
            {
                Some(words)
            }
            _ => None,
        }
    }

    fn words_with(&self, stop: u64, seen: u64) -> Words {
        Words { head: self.ring.head() | stop, landed: self.fetch.landed() | seen }
    }

    /// Words with STOP. Landed records that will not be handed out are not acknowledged.
    fn last_words(&self) -> Words {
        let landed = self.told_landed.max(self.ring.read_pointer());
        Words { head: self.ring.head() | LAST, landed }
    }

    fn has_unreported(&self) -> bool {
        self.ring.head_unreported().is_some() || self.told_landed < self.fetch.landed()
    }

    fn told(&mut self, words: Words) {
        self.ring.mark_told(words.head & !LAST);
        self.told_landed = words.landed & !LAST;
        match self.state {
            ReaderState::Stopping => self.is_stop_told = true,
            ReaderState::Ending => self.state = ReaderState::Ended,
            _ => {}
        }
    }

    /// Prepares a sleep of a receiver that has nothing to hand out. Returns true if the receiver
    /// may sleep until the next completion. Otherwise post the due requests, and call it again
    /// after completions. Requests in flight end the sleep, too.
    pub fn prepare_sleep(&mut self) -> bool {
        self.tell_all();
        if self.state != ReaderState::Open || self.fetch.on_their_way() > 0 {
            return self.posted > 0;
        }
        self.sleep.prepare();
        let is_ready = self.sleep.is_ready();
        self.is_hungry = true;
        self.is_tail_wanted |= !is_ready;
        is_ready
    }

    /// A wake-up has arrived, for which a receive was posted. Returns true if one was requested.
    pub fn on_wake_up(&mut self) -> bool {
        // A READ of the tail that is on its way lies before the next request.
        self.is_tail_counted = false;
        self.sleep.on_wake_up()
    }

    /// Reports whether the known tail is beyond what has landed in this end's memory.
    #[inline]
    pub fn is_behind(&self) -> bool {
        self.fetch.landed() < self.ring.tail()
    }

    /// Makes all unadvertised progress due, as before a long sleep.
    pub fn tell_all(&mut self) {
        self.vain = self.vain.max(self.config.head_update_polls);
    }

    /// Stops reading, and makes STOP due for the sender. Does nothing if all was read and reported.
    pub fn stop(&mut self) {
        if self.state != ReaderState::Ended {
            self.state = ReaderState::Stopping;
        }
    }
}

/// Events that the driver reports.
impl Reader {
    /// Takes the completion of the oldest request in flight. If that was a READ of the tail, calls
    /// `tail` for the word. `tail` returns `None` if the word was read while it was being written
    /// ([`checksum`](crate::checksum)): the known tail stays.
    ///
    /// # Errors
    /// [`ReaderError`]: close the connection.
    #[inline]
    pub fn on_completion(&mut self, tail: impl FnOnce() -> Option<u64>) -> Result<(), ReaderError> {
        if self.posted == 0 {
            return Err(ReaderError::NotPosted(NotPosted));
        }
        let kind = self.kinds[self.first as usize % PLACES];
        self.first = (self.first + 1) % PLACES as u32;
        self.posted -= 1;
        match kind {
            RequestKind::Data => {
                self.is_hungry = false;
                let landed = self.fetch.complete().map_err(ReaderError::NotPosted)?;
                self.ring.on_landed(landed).map_err(ReaderError::Tail)
            }
            RequestKind::Tail => {
                self.is_tail_coming = false;
                let known = self.ring.tail(); // not the last one: it would not be asked for
                let word = tail();
                if core::mem::take(&mut self.is_first_look) {
                    // A torn tail counts as a new tail.
                    self.goes_along = word.is_none_or(|word| word & !LAST != known);
                }
                // A READ of a torn tail does not count as a READ without news.
                self.is_tail_counted &= word.is_some();
                self.on_tail(word.unwrap_or(known))
            }
            RequestKind::Words => {
                self.words -= 1;
                Ok(())
            }
        }
    }

    /// Notes that all completions were polled. If a READ that was posted with nothing to hand out
    /// completes by the first poll, the device is synchronous: it executes READs inside the post.
    /// Prefetching would gain nothing, and the data would leave the caches before they are handed
    /// out. So prefetching is off until a poll finds a READ in flight.
    #[inline]
    pub fn polled(&mut self) {
        if self.is_watched {
            self.is_watched = false;
            self.is_synchronous = self.fetch.on_their_way() == 0;
        }
    }

    fn on_tail(&mut self, word: u64) -> Result<(), ReaderError> {
        let new = self.ring.on_tail(word & !LAST).map_err(ReaderError::Tail)?;
        if word & LAST != 0 && self.state == ReaderState::Open {
            self.state = ReaderState::Ending;
        }
        // After an idle poll, new bytes are read at once, without gathering.
        let goes_on = new > 0 && self.vain == 0 && self.state == ReaderState::Open;
        let there = self.ring.tail() - self.fetch.requested();
        self.is_gathering = goes_on && there < self.config.gather;
        self.vain = if new > 0 { 0 } else { self.vain.saturating_add(1) };
        if new > 0 {
            self.sleep.on_news();
        } else if self.is_tail_counted {
            self.sleep.on_vain_look();
        }
        Ok(())
    }

    /// Requests that have not completed.
    #[inline]
    pub fn on_their_way(&self) -> u32 {
        self.posted
    }

    /// Returns the state of the connection.
    #[inline]
    pub fn state(&self) -> ReaderState {
        self.state
    }

    /// Reports whether everything was read and handed out, and nothing more follows.
    #[inline]
    pub fn is_over(&self) -> bool {
        self.state == ReaderState::Ended && self.ring.next_header().is_none()
    }

    /// Reports whether published bytes are left to gather: look again a little later.
    #[inline]
    pub fn is_gathering(&self) -> bool {
        self.is_gathering
    }

    /// Consecutive looks at the tail that found nothing new.
    #[inline]
    pub fn vain_looks(&self) -> u32 {
        self.vain
    }
}

/// Records: as those of the [`Consumer`].
impl Reader {
    /// The ring.
    #[inline]
    pub fn ring(&self) -> &Consumer {
        &self.ring
    }

    /// Returns the offset of the next header: see [`Consumer::next_header`].
    #[inline]
    pub fn next_header(&self) -> Option<u64> {
        self.ring.next_header()
    }

    /// Takes the record at the read pointer: see [`Consumer::take`].
    ///
    /// # Errors
    /// [`RecordError`]: close the connection.
    #[inline]
    pub fn take(&mut self, header: u64) -> Result<Taken, RecordError> {
        self.ring.take(header)
    }

    /// All up to `position` was handed out by others: see [`Consumer::on_claimed`].
    ///
    /// # Panics
    /// When that is less than before, or more than has landed: a bug of the driver.
    #[inline]
    pub fn on_claimed(&mut self, position: u64) {
        self.ring.on_claimed(position);
    }

    /// Reports whether the record at the read pointer, which has this header, has landed only in
    /// part. False if the header is invalid.
    #[inline]
    pub fn is_partial(&self, header: u64) -> bool {
        self.ring.is_partial(header)
    }

    /// All records up to `head` have been freed: see [`Consumer::on_freed`].
    ///
    /// # Panics
    /// When that is less than before, or more than was handed out: a bug of the driver.
    #[inline]
    pub fn on_freed(&mut self, head: u64) {
        self.ring.on_freed(head);
    }
}
