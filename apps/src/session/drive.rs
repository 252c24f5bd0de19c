//! Measurements in rounds, wherever their ends are: each round is a part of a session.

use anyhow::Result;
use base::outcome::{CommandError, CommandResult};
use base::progress;

use super::parameters::{MeasurementIndex, run_number};
use crate::measure::{ResultLine, rounds};
use crate::results::ResultReport;

/// Measures cases in turn, with both ends in this process. `one` gets the numbers of the case and of
/// the round.
pub(crate) fn in_turn(
    json: bool,
    labels: &[String],
    rounds: u32,
    mut report: ResultReport,
    mut one: impl FnMut(usize, u32) -> Result<Vec<ResultLine>>,
) -> CommandResult {
    let (done, ended) = rounds::in_turn(json, labels, rounds, |at, round, _| one(at, round));
    done.iter().try_for_each(|rounds| report.add_rounds(rounds))?;
    report.finish();
    ended.map_or(Ok(()), Err)
}

/// Leads one case after the other, with an end in another process. `one` gets the numbers of the
/// case and of the round, and which part of the session that is.
pub(crate) fn lead_each(
    json: bool,
    labels: &[String],
    rounds: u32,
    mut report: ResultReport,
    mut one: impl FnMut(usize, u32, MeasurementIndex) -> Result<Vec<ResultLine>>,
) -> CommandResult {
    let (run, of) = (run_number(), labels.len() as u32 * rounds);
    let cases: Vec<usize> = (0..labels.len()).collect();
    let label = |at: &usize| labels[*at].clone();
    let ran = progress::each(json, cases, label, |at, _| {
        let part = |round| MeasurementIndex { run, at: at as u32 * rounds + round, of };
        let (done, ended) = rounds::each(rounds, |round| one(at, round, part(round)));
        if rounds::count(&done, ended.as_ref()) {
            report.add_rounds(&done)?;
        }
        Ok(ended)
    });
    report.finish();
    ran
}

/// A part of a session that the other end has led.
pub(crate) struct Followed {
    /// Its results, a line for each class of messages.
    pub(crate) lines: Vec<ResultLine>,
    /// Reason for which it is less than a whole round, and the session ends with it.
    pub(crate) ended: Option<CommandError>,
    pub(crate) is_last: bool,
    /// Rounds of each measurement.
    pub(crate) rounds: u32,
}

/// Follows one part after the other, until the last. Rounds before a signal are results.
pub(crate) fn follow_all(
    mut report: ResultReport,
    one: impl FnMut() -> Result<Followed>,
) -> CommandResult {
    let followed = follow_into(&mut report, one);
    report.finish();
    followed
}

/// As [`follow_all`]; the report is not printed yet.
pub(crate) fn follow_into(
    report: &mut ResultReport,
    mut one: impl FnMut() -> Result<Followed>,
) -> CommandResult {
    let mut done = Vec::new();
    loop {
        let (lines, ended, is_last, rounds) = match one() {
            Ok(Followed { lines, ended, is_last, rounds }) => (Some(lines), ended, is_last, rounds),
            Err(e) => (None, Some(e), true, 1),
        };
        if let Some(whole) = rounds::gather(&mut done, lines, rounds, ended.as_ref()) {
            report.add_rounds(&whole)?;
        }
        match ended {
            Some(ended) => return Err(ended),
            None if is_last => return Ok(()),
            None => {}
        }
    }
}
