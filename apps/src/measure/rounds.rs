//! A measurement in rounds: what they have in common is the median, and how far they lie apart.

use std::time::Duration;

use base::outcome::{CommandError, usage};
use base::{progress, signals};

/// Measures round after round: what they have brought, and why there are fewer than there should
/// be. Of a round that a signal has cut short a part is kept only where it is all there is.
pub(crate) fn each<T>(
    rounds: u32,
    mut one: impl FnMut(u32) -> Result<T, CommandError>,
) -> (Vec<T>, Option<CommandError>) {
    let mut done = Vec::new();
    for round in 0..rounds {
        match (one(round), signals::interrupted()) {
            (Ok(whole), None) => done.push(whole),
            (Ok(part), Some(interrupted)) => {
                if done.is_empty() {
                    done.push(part);
                }
                return (done, Some(interrupted.into()));
            }
            (Err(e), _) => return (done, Some(e)),
        }
    }
    (done, None)
}

/// Measures cases in rounds, each of which goes over all cases in turn, so that what disturbs the
/// machine for a while disturbs no case alone. A bar shows the case's label. `one` gets the number
/// of the case and of the round, and what all cases have brought before.
///
/// Returns what each case has brought, and why that is not all. Of a round that a signal has cut
/// short a part is kept only where its case has nothing else; a case that has failed has no result.
pub(crate) fn in_turn<T>(
    json: bool,
    cases: &[String],
    rounds: u32,
    mut one: impl FnMut(usize, u32, &[Vec<T>]) -> Result<T, CommandError>,
) -> (Vec<Vec<T>>, Option<CommandError>) {
    let bar = progress::bar(cases.len() as u64 * u64::from(rounds), json);
    let mut done: Vec<Vec<T>> = cases.iter().map(|_| Vec::new()).collect();
    let mut ended = None;
    'rounds: for round in 0..rounds {
        for (at, label) in cases.iter().enumerate() {
            bar.set_message(label.clone());
            tracing::info!("round {}: {label}", round + 1);
            match (one(at, round, &done), signals::interrupted()) {
                (Ok(whole), None) => done[at].push(whole),
                (Ok(part), Some(interrupted)) => {
                    if done[at].is_empty() {
                        done[at].push(part);
                    }
                    ended = Some(interrupted.into());
                    break 'rounds;
                }
                (Err(e), _) => {
                    if !signals::is_interruption(&e) {
                        done[at].clear();
                    }
                    ended = Some(e);
                    break 'rounds;
                }
            }
            bar.inc(1);
        }
    }
    bar.finish_and_clear();
    (done, ended)
}

/// Reports whether rounds that were measured before a failure are a result.
pub(crate) fn count<T>(done: &[T], ended: Option<&CommandError>) -> bool {
    !done.is_empty() && ended.is_none_or(signals::is_interruption)
}

/// Takes a round into those `done` of `of`. Of one that was cut short a part counts where it is all
/// there is.
///
/// Returns the rounds of the measurement when they are all there are.
pub(crate) fn gather<T>(
    done: &mut Vec<T>,
    round: Option<T>,
    of: u32,
    ended: Option<&CommandError>,
) -> Option<Vec<T>> {
    done.extend(round.filter(|_| ended.is_none() || done.is_empty()));
    let is_over = ended.is_some() || done.len() == of as usize;
    (is_over && count(done, ended)).then(|| std::mem::take(done))
}

/// Returns the number of rounds for this number of messages: each round has at least one.
pub(crate) fn rounds_of(messages: u64, asked: u32) -> u32 {
    u64::from(asked).min(messages).max(1) as u32
}

/// Refuses more rounds than there are messages, or whatever `flag` counts: `rounds` is `None` where
/// none were asked for.
pub(crate) fn check(
    rounds: Option<u32>,
    flag: &str,
    whole: Option<u64>,
) -> Result<(), CommandError> {
    match (rounds, whole) {
        (Some(rounds), Some(whole)) if u64::from(rounds) > whole => Err(usage(format!(
            "--rounds {rounds}: each round has one at least of {flag} {whole}: give {flag} {rounds} \
             or more, or --rounds {whole}"
        ))),
        _ => Ok(()),
    }
}

/// Returns the share of `whole` messages that a round has.
pub(crate) fn share(whole: u64, round: u32, rounds: u32) -> u64 {
    let (round, rounds) = (u64::from(round), u64::from(rounds.max(1)));
    whole / rounds + u64::from(round < whole % rounds)
}

/// Returns the share of the time `whole` that a round has.
pub(crate) fn time_share(whole: Duration, rounds: u32) -> Duration {
    whole / rounds.max(1)
}

#[cfg(test)]
mod tests;
