//! State that the threads of a case share: the progress of senders, and which ends do not answer.

use std::sync::Arc;
use std::time::{Duration, Instant};

use host::sync::Mutex;

use crate::case::WorldCase;
use crate::checks::{SenderProgress, expect_detected};
use crate::places::{Site, site_of};
use crate::silence::Silence;

/// State that the threads of a case share.
pub(crate) struct SharedPlay {
    pub(crate) case: Arc<WorldCase>,
    pub(crate) senders: Vec<Mutex<SenderProgress>>,
    pub(crate) silences: EndSilences,
}

impl SharedPlay {
    pub(crate) fn new(case: &Arc<WorldCase>, sites: &[Site]) -> SharedPlay {
        SharedPlay {
            case: Arc::clone(case),
            senders: case.senders.iter().map(|_| Mutex::default()).collect(),
            silences: EndSilences::of(case, sites),
        }
    }

    /// The senders that do not answer any more, and have not said goodbye, and since when; `ended`
    /// has the senders with an end that the receiver has reported.
    fn missed<'s>(&'s self, ended: &'s [bool]) -> impl Iterator<Item = (usize, Instant)> + 's {
        let silent = ended.iter().enumerate().filter(|(_, ended)| !**ended);
        silent.filter_map(move |(at, _)| {
            let silence = self.silences.of_process(at)?;
            self.senders[at].lock().is_missed(silence).then_some((at, silence))
        })
    }

    /// Since `begin` the receiver has waited without a pause: it reports a sender that does not
    /// answer in time, also while others send.
    pub(crate) fn expect_missed(&self, ended: &[bool], begin: Instant) {
        for (at, silence) in self.missed(ended) {
            let what = format!("the wait for sender {at}");
            expect_detected(&self.case, what, (begin, Duration::ZERO), Some(silence));
        }
    }

    /// The receiver has no peer any more.
    pub(crate) fn expect_reported(&self, ended: &[bool]) {
        let missed = self.missed(ended).next();
        assert!(missed.is_none(), "a sender's end is not reported: {missed:?}");
    }
}

/// The silence of one end: that of its process, and that of the end itself, which has gone.
#[derive(Debug)]
struct EndSilence {
    process: Silence,
    own: Silence,
}

impl EndSilence {
    fn of(site: &Site) -> EndSilence {
        EndSilence { process: site.silence.clone(), own: Silence::default() }
    }

    fn since(&self) -> Option<Instant> {
        self.process.since().into_iter().chain(self.own.since()).min()
    }
}

/// The silence of each end of a case.
#[derive(Debug)]
pub(crate) struct EndSilences {
    receiver: EndSilence,
    senders: Vec<EndSilence>,
}

impl EndSilences {
    pub(crate) fn of(case: &WorldCase, sites: &[Site]) -> EndSilences {
        let far = |at| EndSilence::of(site_of(case, sites, at));
        EndSilences {
            receiver: EndSilence::of(&sites[0]),
            senders: (0..case.senders.len()).map(far).collect(),
        }
    }

    /// The time from which on the receiver does not answer.
    pub(crate) fn of_receiver(&self) -> Option<Instant> {
        self.receiver.since()
    }

    /// The time from which on a sender does not answer.
    pub(crate) fn of_sender(&self, at: usize) -> Option<Instant> {
        self.senders[at].since()
    }

    /// The time from which on a sender's process does not answer.
    pub(crate) fn of_process(&self, at: usize) -> Option<Instant> {
        self.senders[at].process.since()
    }

    /// The receiver has gone.
    pub(crate) fn begin_of_receiver(&self) {
        self.receiver.own.begin();
    }

    /// A sender has gone.
    pub(crate) fn begin_of_sender(&self, at: usize) {
        self.senders[at].own.begin();
    }
}
