//! Lists and ranges of numbers: `1,2,4..256`.
//!
//! A sweep is a list with commas in between. Each part of it is a number or a range:
//!
//! | range | values |
//! |---|---|
//! | `4..256` | continues by the ratio of the two numbers before `..` (`1,4..256`: 1, 4, 16, 64, 256); with one number, doubles |
//! | `16..1M*4` | each is 4 times the one before |
//! | `0..128+32` | each is 32 more than the one before |
//!
//! A range stops at the last value that does not exceed its end.

use std::ops::Deref;

/// The most values of one sweep.
pub const MOST_VALUES: usize = 256;

/// The numbers of a list with ranges, in the order in which they were given. There is at least one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Sweep(Vec<u64>);

impl Deref for Sweep {
    type Target = [u64];

    fn deref(&self) -> &[u64] {
        &self.0
    }
}

/// A syntax error in a sweep, with its position.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("column {column}: '{found}': {allowed}")]
pub struct SweepError {
    /// The position of the first wrong character, counted from 1.
    pub column: usize,
    /// The part of the text that is wrong.
    pub found: String,
    /// The rule that it breaks.
    pub allowed: String,
}

/// The step of a range.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum RangeStep {
    Times(u64),
    Plus(u64),
}

impl RangeStep {
    fn after(self, value: u64) -> Option<u64> {
        match self {
            RangeStep::Times(factor) => value.checked_mul(factor),
            RangeStep::Plus(step) => value.checked_add(step),
        }
    }
}

/// A part of the text, and its position.
#[derive(Debug, Clone, Copy)]
struct TextPart<'a> {
    column: usize,
    text: &'a str,
}

impl<'a> TextPart<'a> {
    fn refused(self, allowed: impl Into<String>) -> SweepError {
        SweepError { column: self.column, found: self.text.into(), allowed: allowed.into() }
    }

    /// The parts before and after the first `sign`.
    fn split(self, sign: &str) -> Option<(TextPart<'a>, TextPart<'a>)> {
        let (before, behind) = self.text.split_once(sign)?;
        let column = self.column + before.chars().count() + sign.chars().count();
        Some((TextPart { text: before, ..self }, TextPart { column, text: behind }))
    }

    /// Without spaces around it.
    fn trimmed(self) -> TextPart<'a> {
        let text = self.text.trim_start();
        let spaces = self.text.chars().count() - text.chars().count();
        TextPart { column: self.column + spaces, text: text.trim_end() }
    }

    fn number<N: Into<u64>>(
        self,
        number: impl Fn(&str) -> Result<N, String>,
    ) -> Result<u64, SweepError> {
        let part = self.trimmed();
        number(part.text).map(Into::into).map_err(|allowed| part.refused(allowed))
    }
}

impl Sweep {
    /// Parses `text`. `number` parses each single number: with unit suffixes, or within bounds; its
    /// error says what is allowed.
    ///
    /// # Errors
    /// A part is not a number or range, or there are more than [`MOST_VALUES`] values.
    pub fn parse<N: Into<u64>>(
        text: &str,
        number: impl Fn(&str) -> Result<N, String> + Copy,
    ) -> Result<Sweep, SweepError> {
        let mut values = Vec::new();
        let mut column = 1;
        for text in text.split(',') {
            let part = TextPart { column, text };
            match part.split("..") {
                None => push(&mut values, part.number(number)?, part)?,
                Some((from, behind)) => range(&mut values, part, from, behind, number)?,
            }
            column += text.chars().count() + 1;
        }
        Ok(Sweep(values))
    }
}

/// Adds the values of the range `part`, which is `from..behind`.
fn range<N: Into<u64>>(
    values: &mut Vec<u64>,
    part: TextPart<'_>,
    from: TextPart<'_>,
    behind: TextPart<'_>,
    number: impl Fn(&str) -> Result<N, String> + Copy,
) -> Result<(), SweepError> {
    let (from, (end, step)) = (from.number(number)?, ends(behind)?);
    let end = end.number(number)?;
    if end < from {
        return Err(part.refused("the end must not be below the start"));
    }
    let step = match (step, values.last()) {
        (Some(step), _) => step,
        (None, Some(before)) => RangeStep::Times(ratio(*before, from, part)?),
        (None, None) => RangeStep::Times(2),
    };
    if from == 0 && matches!(step, RangeStep::Times(_)) {
        return Err(part.refused(format!("0 has no multiples: add a step, as 0..{end}+1")));
    }
    let mut next = Some(from);
    while let Some(value) = next.filter(|value| *value <= end) {
        push(values, value, part)?;
        next = step.after(value);
    }
    Ok(())
}

/// Splits the text after `..` into the end of the range and its step, if that is given.
fn ends(behind: TextPart<'_>) -> Result<(TextPart<'_>, Option<RangeStep>), SweepError> {
    let whole = |part: TextPart<'_>, least: u64, allowed: &str| {
        let part = part.trimmed();
        let number = part.text.parse().ok().filter(|number| *number >= least);
        number.ok_or_else(|| part.refused(allowed))
    };
    if let Some((end, factor)) = behind.split("*") {
        let factor = whole(factor, 2, "a factor may be 2 or more")?;
        return Ok((end, Some(RangeStep::Times(factor))));
    }
    if let Some((end, step)) = behind.split("+") {
        let step = whole(step, 1, "a step may be 1 or more")?;
        return Ok((end, Some(RangeStep::Plus(step))));
    }
    Ok((behind, None))
}

/// The factor from `before` to `from`.
fn ratio(before: u64, from: u64, part: TextPart<'_>) -> Result<u64, SweepError> {
    let factor = (before > 0 && from.is_multiple_of(before)).then(|| from / before);
    factor.filter(|factor| *factor > 1).ok_or_else(|| {
        let text = part.text.trim();
        part.refused(format!(
            "{from} is not a multiple of the number before, {before}: add a factor or a step, as \
             {text}*2 or {text}+1"
        ))
    })
}

fn push(values: &mut Vec<u64>, value: u64, part: TextPart<'_>) -> Result<(), SweepError> {
    if values.len() == MOST_VALUES {
        return Err(part.refused(format!("there may be up to {MOST_VALUES} values in all")));
    }
    values.push(value);
    Ok(())
}

#[cfg(test)]
mod tests;
