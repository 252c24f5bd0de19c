//! Plan of faults, and its text.

use core::str::FromStr;
use std::time::Duration;

use verbs_sys::ibv_event_type;

use super::tally::FaultTally;

/// Events by their names in a plan.
macro_rules! events {
    ($($name:literal = $event:ident,)*) => {
        /// The events that a plan can raise, as [`FaultPlan`] calls them: those of the device and
        /// its port.
        pub const EVENTS: [&str; 8] = [$($name),*];
        /// The same, as the ABI calls them.
        pub(crate) const PORT_EVENTS: [ibv_event_type; 8] = [$(ibv_event_type::$event),*];
    };
}

events! {
    "device_fatal" = IBV_EVENT_DEVICE_FATAL,
    "port_active" = IBV_EVENT_PORT_ACTIVE,
    "port_err" = IBV_EVENT_PORT_ERR,
    "lid_change" = IBV_EVENT_LID_CHANGE,
    "pkey_change" = IBV_EVENT_PKEY_CHANGE,
    "sm_change" = IBV_EVENT_SM_CHANGE,
    "client_reregister" = IBV_EVENT_CLIENT_REREGISTER,
    "gid_change" = IBV_EVENT_GID_CHANGE,
}

/// Events that a plan may have.
pub const MAX_EVENTS: usize = 64;
/// The longest delay, and the latest event.
pub const LONGEST: Duration = Duration::from_secs(3600);

/// Faults that strike, and their probabilities.
///
/// ```
/// use soft_rnic::faults::FaultPlan;
///
/// let text = "rnr=0.01,retry=0.001,delay=0.1:50us,event=port_err@500ms,seed=7";
/// let plan: FaultPlan = text.parse().unwrap();
/// assert_eq!(plan.seed(), Some(7));
/// assert!("rnr=2".parse::<FaultPlan>().is_err());
/// ```
///
/// | | |
/// |---|---|
/// | `rnr=P` | with this probability, 0 to 1, a request that takes a receive request finds none |
/// | `retry=P` | a request of a reliable transport is lost |
/// | `loss=P` | a message of an unreliable transport is lost |
/// | `flush=P` | the queue pair goes to the error state when it is the request's turn |
/// | `delay=P:TIME`, `delay=TIME` | a request waits TIME: a number and `ns`, `us`, `ms` or `s` |
/// | `event=NAME@TIME` | an event of [`EVENTS`], TIME after an open; up to [`MAX_EVENTS`] |
/// | `seed=N` | what all of it is drawn from |
#[derive(Debug, Clone, PartialEq, Default)]
pub struct FaultPlan {
    pub(super) rnr: f64,
    pub(super) retry: f64,
    pub(super) loss: f64,
    pub(super) flush: f64,
    pub(super) delay: f64,
    pub(super) delay_ns: u64,
    events: Vec<(ibv_event_type, u64)>,
    seed: Option<u64>,
}

impl FaultPlan {
    /// The seed, if the plan has one.
    #[must_use]
    pub fn seed(&self) -> Option<u64> {
        self.seed
    }

    /// Reports whether a seed decides anything: some fault neither strikes always nor never.
    #[must_use]
    pub fn draws(&self) -> bool {
        self.probabilities().iter().any(|p| *p > 0.0 && *p < 1.0)
    }

    fn probabilities(&self) -> [f64; 5] {
        [self.rnr, self.retry, self.loss, self.flush, self.delay]
    }

    /// Events, each with the nanoseconds after which it is raised.
    pub(crate) fn events(&self) -> &[(ibv_event_type, u64)] {
        &self.events
    }

    /// Reports whether it has faults of requests.
    pub(crate) fn strikes_requests(&self) -> bool {
        self.probabilities().iter().any(|p| *p > 0.0)
    }
}

/// A plan, the seed that its faults are drawn from, and what it has done.
#[derive(Debug)]
pub(crate) struct SeededPlan {
    pub(crate) plan: FaultPlan,
    pub(super) seed: u64,
    pub(super) tally: FaultTally,
}

impl SeededPlan {
    pub(super) fn new(plan: FaultPlan, seed: u64) -> SeededPlan {
        SeededPlan { plan, seed, tally: FaultTally::default() }
    }
}

/// Reason why a text is no plan.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum PlanError {
    /// A part without a name and a value.
    #[error("`{0}` is no NAME=VALUE: write rnr=0.01,seed=7, for example")]
    Shape(String),
    /// No fault has this name.
    #[error("no fault is called {0}: there are rnr, retry, loss, flush, delay and event, and seed")]
    Name(String),
    /// The name is given twice.
    #[error("{0} is given twice: only events can be")]
    Twice(String),
    /// The part has no probability.
    #[error("{0}: a probability is a number from 0 to 1")]
    Probability(String),
    /// The part has no time, or one that is too long.
    #[error(
        "{0}: a time is a number and ns, us, ms or s, of at most {longest} s: write delay=50us, \
         or delay=0.1:50us for every tenth request",
        longest = LONGEST.as_secs()
    )]
    Time(String),
    /// The part has no event, or no time for it.
    #[error(
        "{0}: write NAME@TIME, for example port_err@500ms; the events are {events}",
        events = EVENTS.join(", ")
    )]
    Event(String),
    /// More than [`MAX_EVENTS`] events.
    #[error("a plan has at most {MAX_EVENTS} events")]
    TooManyEvents,
    /// The part has no seed.
    #[error("{0}: a seed is a number from 0 to {max}", max = u64::MAX)]
    Seed(String),
}

impl FromStr for FaultPlan {
    type Err = PlanError;

    fn from_str(text: &str) -> Result<FaultPlan, PlanError> {
        let (mut plan, mut seen) = (FaultPlan::default(), Vec::new());
        for part in text.split(',').map(str::trim) {
            let (name, value) =
                part.split_once('=').ok_or_else(|| PlanError::Shape(part.into()))?;
            if name != "event" && seen.contains(&name) {
                return Err(PlanError::Twice(name.into()));
            }
            seen.push(name);
            plan.set(part, name, value)?;
        }
        Ok(plan)
    }
}

impl FaultPlan {
    fn set(&mut self, part: &str, name: &str, value: &str) -> Result<(), PlanError> {
        let probability = |value: &str| {
            let p = value.parse().ok().filter(|p| (0.0..=1.0).contains(p));
            p.ok_or_else(|| PlanError::Probability(part.into()))
        };
        match name {
            "rnr" => self.rnr = probability(value)?,
            "retry" => self.retry = probability(value)?,
            "loss" => self.loss = probability(value)?,
            "flush" => self.flush = probability(value)?,
            "delay" => {
                let (p, time) = value.split_once(':').unwrap_or(("1", value));
                self.delay = probability(p)?;
                self.delay_ns = nanoseconds(time).ok_or_else(|| PlanError::Time(part.into()))?;
            }
            "event" if self.events.len() == MAX_EVENTS => return Err(PlanError::TooManyEvents),
            "event" => {
                self.events.push(event(value).ok_or_else(|| PlanError::Event(part.into()))?);
            }
            "seed" => {
                let seed = value.parse().map_err(|_| PlanError::Seed(part.into()))?;
                self.seed = Some(seed);
            }
            _ => return Err(PlanError::Name(name.into())),
        }
        Ok(())
    }
}

/// An event, and after how many nanoseconds it is raised.
fn event(text: &str) -> Option<(ibv_event_type, u64)> {
    let (name, time) = text.split_once('@')?;
    let at = EVENTS.iter().position(|known| *known == name)?;
    Some((PORT_EVENTS[at], nanoseconds(time)?))
}

/// A time such as `500ms`.
fn nanoseconds(text: &str) -> Option<u64> {
    const UNITS: [(&str, f64); 4] = [("ns", 1.0), ("us", 1e3), ("ms", 1e6), ("s", 1e9)];
    let (number, unit) =
        UNITS.iter().find_map(|(name, unit)| Some((text.strip_suffix(name)?, unit)))?;
    // No sign, no exponent, and no name of a number that is none.
    let is_plain = number.bytes().all(|byte| byte.is_ascii_digit() || byte == b'.');
    let time = number.parse::<f64>().ok().filter(|_| is_plain)? * unit;
    (time <= LONGEST.as_nanos() as f64).then_some(time as u64)
}

#[cfg(test)]
mod tests;
