//! Plan of faults, and its text.

use core::str::FromStr;
use std::time::Duration;

use verbs_sys::ibv_event_type;

use super::tally::Tally;

/// The events that a plan can raise, as [`Plan`] calls them: those of the device and its port.
pub const EVENTS: [&str; 8] = [
    "device_fatal",
    "port_active",
    "port_err",
    "lid_change",
    "pkey_change",
    "sm_change",
    "client_reregister",
    "gid_change",
];
/// Events that a plan may have.
pub const MAX_EVENTS: usize = 64;
/// The longest delay, and the latest event.
pub const LONGEST: Duration = Duration::from_secs(3600);

/// Faults that strike, and their probabilities.
///
/// ```
/// use soft_rnic::faults::Plan;
///
/// let plan: Plan = "rnr=0.01,retry=0.001,delay=0.1:50us,event=port_err@500ms,seed=7".parse().unwrap();
/// assert_eq!(plan.seed(), Some(7));
/// assert!("rnr=2".parse::<Plan>().is_err());
/// ```
///
/// | | |
/// |---|---|
/// | `rnr=P` | with this probability, 0 to 1, a request that takes a receive request finds none |
/// | `retry=P` | a request of a reliable transport is lost |
/// | `loss=P` | a message of an unreliable transport is lost |
/// | `flush=P` | the queue pair goes to the error state when the request's turn has come |
/// | `delay=P:TIME`, `delay=TIME` | a request waits TIME: a number and `ns`, `us`, `ms` or `s` |
/// | `event=NAME@TIME` | an event of [`EVENTS`], TIME after an open; up to [`MAX_EVENTS`] |
/// | `seed=N` | what all of it is drawn from |
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Plan {
    pub(super) rnr: f64,
    pub(super) retry: f64,
    pub(super) loss: f64,
    pub(super) flush: f64,
    pub(super) delay: f64,
    pub(super) delay_ns: u64,
    events: Vec<(ibv_event_type, u64)>,
    seed: Option<u64>,
}

impl Plan {
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
    pub(crate) plan: Plan,
    pub(super) seed: u64,
    pub(super) tally: Tally,
}

impl SeededPlan {
    pub(super) fn new(plan: Plan, seed: u64) -> SeededPlan {
        SeededPlan { plan, seed, tally: Tally::default() }
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

impl FromStr for Plan {
    type Err = PlanError;

    fn from_str(text: &str) -> Result<Plan, PlanError> {
        let (mut plan, mut seen) = (Plan::default(), Vec::new());
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

impl Plan {
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
    use ibv_event_type as E;
    let (name, time) = text.split_once('@')?;
    let event = match name {
        "device_fatal" => E::IBV_EVENT_DEVICE_FATAL,
        "port_active" => E::IBV_EVENT_PORT_ACTIVE,
        "port_err" => E::IBV_EVENT_PORT_ERR,
        "lid_change" => E::IBV_EVENT_LID_CHANGE,
        "pkey_change" => E::IBV_EVENT_PKEY_CHANGE,
        "sm_change" => E::IBV_EVENT_SM_CHANGE,
        "client_reregister" => E::IBV_EVENT_CLIENT_REREGISTER,
        "gid_change" => E::IBV_EVENT_GID_CHANGE,
        _ => return None,
    };
    Some((event, nanoseconds(time)?))
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
mod tests {
    use super::*;

    fn refused(text: &str, says: &str) {
        let error = text.parse::<Plan>().unwrap_err().to_string();
        assert!(error.contains(says), "{text}: {error}");
    }

    #[test]
    fn a_plan_has_what_its_text_says() {
        let text = "rnr=0.5,retry=1,loss=0,flush=0.25,delay=0.1:1.5ms,event=port_err@2s,\
                    event=port_active@0ns,seed=18446744073709551615";
        let events = vec![
            (ibv_event_type::IBV_EVENT_PORT_ERR, 2_000_000_000),
            (ibv_event_type::IBV_EVENT_PORT_ACTIVE, 0),
        ];
        let (rnr, retry, loss, flush, delay) = (0.5, 1.0, 0.0, 0.25, 0.1);
        let (delay_ns, seed) = (1_500_000, Some(u64::MAX));
        let plan = Plan { rnr, retry, loss, flush, delay, delay_ns, events, seed };
        assert_eq!(text.parse(), Ok(plan));
    }

    #[test]
    fn a_delay_without_a_probability_strikes_always() {
        let plan: Plan = "delay=50us".parse().unwrap();
        assert_eq!((plan.delay, plan.delay_ns, plan.seed), (1.0, 50_000, None));
        assert!(plan.strikes_requests() && !plan.draws());
        assert!("rnr=0.5,retry=1".parse::<Plan>().unwrap().draws());
        let plan: Plan = "event=gid_change@1ms,rnr=0".parse().unwrap();
        assert!(!plan.strikes_requests());
    }

    #[test]
    fn blanks_around_commas_do_not_count() {
        let plan = " rnr=0.5 , retry=1,\tseed=7\n".parse::<Plan>();
        assert_eq!(plan, "rnr=0.5,retry=1,seed=7".parse());
    }

    #[test]
    fn all_events_are_known_by_their_names() {
        for name in EVENTS {
            let (event, at) = event(&format!("{name}@1us")).unwrap();
            assert_eq!(at, 1000);
            let text = constant(event);
            assert_eq!(text, name, "{event:?}");
        }
    }

    /// The name in the ABI's header, less what all have.
    fn constant(event: ibv_event_type) -> String {
        let names = [
            (ibv_event_type::IBV_EVENT_DEVICE_FATAL.0, "DEVICE_FATAL"),
            (ibv_event_type::IBV_EVENT_PORT_ACTIVE.0, "PORT_ACTIVE"),
            (ibv_event_type::IBV_EVENT_PORT_ERR.0, "PORT_ERR"),
            (ibv_event_type::IBV_EVENT_LID_CHANGE.0, "LID_CHANGE"),
            (ibv_event_type::IBV_EVENT_PKEY_CHANGE.0, "PKEY_CHANGE"),
            (ibv_event_type::IBV_EVENT_SM_CHANGE.0, "SM_CHANGE"),
            (ibv_event_type::IBV_EVENT_CLIENT_REREGISTER.0, "CLIENT_REREGISTER"),
            (ibv_event_type::IBV_EVENT_GID_CHANGE.0, "GID_CHANGE"),
        ];
        let name = names.iter().find(|(number, _)| *number == event.0);
        name.map_or_else(String::new, |(_, name)| name.to_ascii_lowercase())
    }

    #[test]
    fn what_is_no_plan_is_refused_and_says_what_is() {
        refused("", "`` is no NAME=VALUE");
        refused("rnr", "`rnr` is no NAME=VALUE");
        refused("rnr=0.1,", "`` is no NAME=VALUE");
        refused("lost=1", "no fault is called lost: there are rnr, retry, loss, flush, delay");
        refused("rnr=0.1,rnr=0.2", "rnr is given twice");
        for p in ["2", "-0.1", "NaN", "", "1:5us"] {
            refused(&format!("rnr={p}"), "a probability is a number from 0 to 1");
        }
        refused("delay=2:5us", "a probability is a number from 0 to 1");
        for time in ["5", "us", "0.1:", "-1us", "1e3us", "infs", "nans", "3601s", "0.1:5m"] {
            refused(&format!("delay={time}"), "a time is a number and ns, us, ms or s, of at most");
        }
        for event in ["port_err", "port_err@", "port_err@5", "qp_fatal@1s", "PORT_ERR@1s"] {
            refused(&format!("event={event}"), "the events are device_fatal, port_active");
        }
        refused(&["event=sm_change@1s"; MAX_EVENTS + 1].join(","), "at most 64 events");
        for seed in ["", "-1", "x", "18446744073709551616"] {
            refused(&format!("seed={seed}"), "a seed is a number from 0 to");
        }
    }
}
