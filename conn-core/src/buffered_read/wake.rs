//! Waking a receiver that sleeps.
//!
//! Nothing completes at a receiver when a record is published, because the sender is passive.
//! A receiver that is about to sleep therefore asks for a wake-up:
//!
//! | the receiver ([`Sleep`]) | the sender ([`Waker`]) |
//! |---|---|
//! | 1. writes what it has read, then a request, a number that it has not used before | 1. publishes the tail |
//! | 2. reads the tail, behind that WRITE, [`LOOKS`] times | 2. loads the request, then what was read |
//! | 3. nothing new: it sleeps until a completion | 3. a new number, and something unread: it posts one empty SEND |
//!
//! Each writes first and reads then, so at least one of them sees the other, if the sender's
//! load is not executed before its store is visible. A sender that waits has a fence in between.
//! On the way of each message there is none: it costs more than a short message. There, the
//! window for a miss is the time that a store waits in the processor's store buffer. The next
//! message, or a wait, repeats the load; the receiver's last look is later than the first one;
//! and a receiver never sleeps longer than its driver permits.
//!
//! A request is answered once. It stands until then, also while the receiver is awake, and
//! while it stands no other one is made: so one posted receive is enough, and neither end can
//! be made to send more than one wake-up for each request, or more than one request for each
//! wake-up. An honest sender's wake-up brings news, or news since the request were found by a look
//! before it arrived; or it is sent on the way of a message that was read before the request, once
//! for each message. So [`VAIN_WAKE_UPS`] in a row without news come from a sender that wakes for
//! nothing. The one that reaches that number is looked behind as all others are: until then, nothing
//! tells that it is one of these.

use crate::sync::{fence, orderings};

orderings! {
    /// Between the publication and the load of the request.
    ask = SeqCst, "wake-ask-fence" => AcqRel;
}

/// Looks at the tail after a request that must find nothing new before a receiver sleeps.
pub const LOOKS: u32 = 2;
/// Wake-ups in a row without anything new, after which a receiver asks for no more until there
/// is something new.
pub const VAIN_WAKE_UPS: u32 = 4;

/// State of the receiver's request for a wake-up.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum WakePhase {
    /// Nothing, or it was answered.
    #[default]
    Awake,
    /// A request is due.
    Due,
    /// A request was posted; this number of looks after it found nothing.
    Asked(u32),
    /// No request is made: too many wake-ups had no news. This number of looks after the last one
    /// found nothing.
    Resigned(u32),
}

/// The receiver's side. See the [module](self).
///
/// ```
/// use conn_core::buffered_read::wake::{Sleep, Waker};
///
/// let (mut sleep, mut waker) = (Sleep::default(), Waker::default());
/// sleep.prepare();
/// let word = sleep.request().expect("the first sleep asks for a wake-up");
/// sleep.on_vain_look();
/// sleep.on_vain_look();
/// assert!(sleep.is_ready());
/// assert!(waker.answer(word) && !waker.answer(word), "one wake-up for a request");
/// assert!(sleep.on_wake_up() && !sleep.is_ready());
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Sleep {
    number: u64,
    phase: WakePhase,
    /// Wake-ups since the last news. The last one may have some: only a look behind it can tell.
    vain: u32,
}

impl Sleep {
    /// Awake, and nothing was asked for.
    pub const fn new() -> Self {
        Self { number: 0, phase: WakePhase::Awake, vain: 0 }
    }

    /// The receiver wants to sleep: a wake-up is asked for, unless a request stands already.
    pub fn prepare(&mut self) {
        if self.phase == WakePhase::Awake {
            let is_vain = self.vain >= VAIN_WAKE_UPS;
            self.phase = if is_vain { WakePhase::Resigned(0) } else { WakePhase::Due };
        }
    }

    /// Reports whether the next [`request`](Self::request) has a number.
    #[inline]
    pub fn is_due(&self) -> bool {
        self.phase == WakePhase::Due
    }

    /// Takes the number to write to the sender, once. Post a receive for the wake-up before.
    pub fn request(&mut self) -> Option<u64> {
        if self.phase != WakePhase::Due {
            return None;
        }
        self.number = self.number.wrapping_add(1);
        self.phase = WakePhase::Asked(0);
        Some(self.number)
    }

    /// A look at the tail that [counts](Self::counts_looks) has found nothing new.
    pub fn on_vain_look(&mut self) {
        if let WakePhase::Asked(looks) | WakePhase::Resigned(looks) = &mut self.phase {
            *looks = LOOKS.min(*looks + 1);
        }
    }

    /// Reports whether a look that is posted now counts: it lies behind the request, or, where
    /// there is none, behind the last wake-up.
    #[inline]
    pub fn counts_looks(&self) -> bool {
        matches!(self.phase, WakePhase::Asked(_) | WakePhase::Resigned(_))
    }

    /// Reports whether nothing is left to do before the receiver sleeps.
    #[inline]
    pub fn is_ready(&self) -> bool {
        match self.phase {
            WakePhase::Awake | WakePhase::Due => false,
            WakePhase::Asked(looks) | WakePhase::Resigned(looks) => looks >= LOOKS,
        }
    }

    /// A wake-up has arrived; returns true if one was requested.
    pub fn on_wake_up(&mut self) -> bool {
        let was_asked_for = matches!(self.phase, WakePhase::Asked(_));
        if self.phase != WakePhase::Due {
            self.phase = WakePhase::Awake;
        }
        self.vain = self.vain.saturating_add(1);
        was_asked_for
    }

    /// A tail was new.
    #[inline]
    pub fn on_news(&mut self) {
        self.vain = 0;
        match &mut self.phase {
            WakePhase::Asked(looks) => *looks = 0,
            WakePhase::Resigned(_) => self.phase = WakePhase::Awake,
            WakePhase::Awake | WakePhase::Due => {}
        }
    }
}

/// The sender's side. See the [module](self).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Waker {
    answered: u64,
}

impl Waker {
    /// Between the publication of a tail and the load of the request: with it, the load misses
    /// no request of a receiver that does not see the tail.
    #[inline]
    pub fn barrier() {
        fence(ask());
    }

    /// Reports whether `word`, which is loaded after each publication, may be a new request.
    #[inline]
    pub fn is_news(&self, word: u64) -> bool {
        word != self.answered
    }

    /// The last request that was answered; 0 at first.
    pub fn answered(&self) -> u64 {
        self.answered
    }

    /// Reports whether the request `word` needs a wake-up, and counts it as answered.
    pub fn answer(&mut self, word: u64) -> bool {
        let is_news = self.is_news(word);
        self.answered = word;
        is_news
    }
}

#[cfg(test)]
mod tests;
