//! Command lines with lists of numbers, and the command lines that they stand for: `bench --unacked
//! 1,2,4..256` is nine measurements.
//!
//! Every flag of `bench`, `pingpong` and `multicast` that has a number may have a list ([`Sweep`]
//! has the syntax). Of several lists the last one varies fastest. A command line without a list, or
//! with none but those that the flag accepts itself (`--size 16,64`), is left unchanged, unless it
//! asks for a file of results.

use std::any::TypeId;
use std::ffi::OsString;
use std::time::Duration;

use base::cli::sweep::{Sweep, SweepError};
use base::cli::values::byte_count;
use clap::{Arg, Command};

/// The commands that measure.
const MEASURE: [&str; 3] = ["bench", "pingpong", "multicast"];

/// The most measurements of one command line.
const MOST_POINTS: usize = 4096;

/// Expansion of a command line with lists.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Points {
    /// The flags that have lists, as `--unacked`.
    pub(crate) flags: Vec<String>,
    pub(crate) points: Vec<SweepPoint>,
}

/// A command line with one number for each list.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct SweepPoint {
    /// The numbers, in the order of the flags.
    pub(crate) values: Vec<String>,
    /// The whole command line, the name of the program included.
    pub(crate) words: Vec<OsString>,
}

/// A flag, and where its value is.
struct GivenFlag<'a> {
    arg: &'a Arg,
    /// The word that has the value.
    at: usize,
    /// Length of the part of that word in front of the value: `--flag=`.
    front: usize,
}

/// A flag with a list.
struct ListFlag {
    flag: String,
    at: usize,
    front: String,
    values: Vec<String>,
}

/// The points of a command line, if it has lists that the flag does not accept itself, or `--csv`.
///
/// # Errors
/// The flag, and what is wrong with its list.
pub(crate) fn parse(words: &[OsString], program: &Command) -> Result<Option<Points>, String> {
    let mut program = program.clone();
    program.build();
    let Some((at, command)) = command(words, &program) else { return Ok(None) };
    let (mut lists, mut is_swept) = (Vec::new(), false);
    for GivenFlag { arg, at, front } in given(words, at + 1, command) {
        let flag = format!("--{}", arg.get_long().unwrap_or_default());
        is_swept |= flag == "--csv";
        let Some(text) = words[at].to_str().and_then(|word| word.get(front..)) else { continue };
        let is_list = text.contains(',') || text.contains("..");
        // A word of another kind is the flag's own business.
        let begins = text.trim_start().starts_with(|c: char| c.is_ascii_digit());
        if !is_list || !begins || !is_number(arg) {
            continue;
        }
        if flag == "--rounds" {
            return Err("--rounds: it is the same for all measurements: give one number".into());
        }
        // Two sizes are one setting there.
        if flag == "--size" && words.iter().any(|word| word == "--srq-classes") {
            continue;
        }
        let accepts = arg.get_value_delimiter().is_some() && !text.contains("..");
        is_swept |= !accepts;
        let values = match is_whole(arg) {
            true => match Sweep::parse(text, byte_count) {
                Ok(values) => values.iter().map(u64::to_string).collect(),
                // The flag itself says what is wrong with its own list.
                Err(_) if accepts => continue,
                Err(e) => return Err(refused(&flag, &e)),
            },
            // The flag itself refuses what is no number.
            false => text.split(',').map(|number| number.trim().to_owned()).collect(),
        };
        let front = words[at].to_string_lossy()[..front].to_owned();
        lists.push(ListFlag { flag, at, front, values });
    }
    if !is_swept {
        return Ok(None);
    }
    let count = lists.iter().map(|list| list.values.len()).fold(1, usize::saturating_mul);
    if count > MOST_POINTS {
        return Err(format!("the lists make {count} measurements: up to {MOST_POINTS} are done"));
    }
    let points = (0..count).map(|number| point(words, &lists, number)).collect();
    Ok(Some(Points { flags: lists.into_iter().map(|list| list.flag).collect(), points }))
}

fn refused(flag: &str, error: &SweepError) -> String {
    format!("{flag}: {error}")
}

/// The point of this number: the last list varies fastest.
fn point(words: &[OsString], lists: &[ListFlag], number: usize) -> SweepPoint {
    let (mut words, mut values, mut rest) = (words.to_vec(), Vec::new(), number);
    for list in lists.iter().rev() {
        let value = &list.values[rest % list.values.len()];
        rest /= list.values.len();
        words[list.at] = format!("{}{value}", list.front).into();
        values.push(value.clone());
    }
    values.reverse();
    SweepPoint { values, words }
}

/// The command that measures, and where its name is.
fn command<'a>(words: &[OsString], program: &'a Command) -> Option<(usize, &'a Command)> {
    let values: Vec<usize> = given(words, 1, program).map(|given| given.at).collect();
    let is_name = |(at, word): &(usize, &OsString)| {
        !values.contains(at) && !word.to_string_lossy().starts_with('-')
    };
    let (at, name) = words.iter().enumerate().skip(1).find(is_name)?;
    let name = MEASURE.into_iter().find(|known| **name == **known)?;
    Some((at, program.find_subcommand(name)?))
}

/// The flags with values that are given from word `from` on.
fn given<'a>(
    words: &[OsString],
    from: usize,
    command: &'a Command,
) -> impl Iterator<Item = GivenFlag<'a>> {
    words.iter().enumerate().skip(from).filter_map(move |(at, word)| {
        let name = word.to_str()?.strip_prefix("--")?;
        let (name, value) = name.split_once('=').map_or((name, None), |(n, v)| (n, Some(v)));
        let arg = command.get_arguments().find(|arg| arg.get_long() == Some(name))?;
        if !arg.get_action().takes_values() {
            return None;
        }
        let front = word.len() - value.map_or(0, str::len);
        match value {
            Some(_) => Some(GivenFlag { arg, at, front }),
            None if at + 1 < words.len() => Some(GivenFlag { arg, at: at + 1, front: 0 }),
            None => None,
        }
    })
}

/// Reports whether the value of a flag is a number.
fn is_number(arg: &Arg) -> bool {
    let of = arg.get_value_parser().type_id();
    let parts = [TypeId::of::<f64>(), TypeId::of::<Duration>(), TypeId::of::<super::SenderRate>()];
    is_whole(arg) || parts.iter().any(|number| of == *number)
}

/// Reports whether the value of a flag is a whole number.
fn is_whole(arg: &Arg) -> bool {
    let of = arg.get_value_parser().type_id();
    [
        TypeId::of::<u8>(),
        TypeId::of::<u16>(),
        TypeId::of::<u32>(),
        TypeId::of::<u64>(),
        TypeId::of::<usize>(),
    ]
    .iter()
    .any(|number| of == *number)
}

#[cfg(test)]
mod tests;
