//! Processors that the threads of this process run on (`--cpu`).

use anyhow::Context;
use host::sync::OnceLock;
use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};

use crate::outcome::{CommandResult, usage};

/// A list of processors, each once, in the order in which they were given.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Cpus {
    list: Vec<usize>,
    /// As it was given.
    given: String,
}

/// Rule for the value of `--cpu`, for error messages.
const RULE: &str = "it may be processors' numbers, as in 0,2-5";

/// Parses what `--cpu` takes.
pub fn list(text: &str) -> Result<Cpus, String> {
    let mut cpus = Vec::new();
    for part in text.split(',') {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        let number = |text: &str| text.parse::<usize>().map_err(|_| RULE.to_owned());
        let (first, last) = (number(first)?, number(last)?);
        if first > last || last >= CpuSet::MAX_CPU {
            return Err(RULE.into());
        }
        cpus.extend(first..=last);
    }
    let mut seen = std::collections::HashSet::new();
    cpus.retain(|cpu| seen.insert(*cpu));
    Ok(Cpus { list: cpus, given: text.to_owned() })
}

impl Cpus {
    /// For the JSON.
    pub fn text(&self) -> String {
        self.list.iter().map(usize::to_string).collect::<Vec<_>>().join(",")
    }

    fn set(cpus: &[usize]) -> CpuSet {
        let mut set = CpuSet::new();
        cpus.iter().for_each(|cpu| set.set(*cpu));
        set
    }
}

/// Numbers in ascending order, as `--cpu` takes them: 0,2-5.
fn ranges(numbers: impl IntoIterator<Item = usize>) -> String {
    let mut ranges: Vec<(usize, usize)> = Vec::new();
    for number in numbers {
        match ranges.last_mut() {
            Some((_, last)) if *last + 1 == number => *last = number,
            _ => ranges.push((number, number)),
        }
    }
    let shown = ranges.iter().map(|(first, last)| match first == last {
        true => first.to_string(),
        false => format!("{first}-{last}"),
    });
    shown.collect::<Vec<_>>().join(",")
}

/// The list that holds for this process.
static LIST: OnceLock<Cpus> = OnceLock::new();

/// Has this thread, and those that it starts, run on the listed processors.
pub fn pin_process(cpus: Option<&Cpus>) -> CommandResult {
    let Some(cpus) = cpus else { return Ok(()) };
    let allowed = sched_getaffinity(None).context("which processors this process may use")?;
    if let Some(cpu) = cpus.list.iter().find(|cpu| !allowed.is_set(**cpu)) {
        let mine = ranges((0..CpuSet::MAX_CPU).filter(|cpu| allowed.is_set(*cpu)));
        return Err(usage(format!(
            "--cpu {}: this process may not run on {cpu}: it may on {mine}",
            cpus.given
        )));
    }
    sched_setaffinity(None, &Cpus::set(&cpus.list)).context("choosing processors")?;
    LIST.get_or_init(|| cpus.clone());
    Ok(())
}

/// Has this thread, the one of this number, run on one of the listed processors.
pub fn pin_thread(number: usize) {
    let Some(cpu) = LIST.get().and_then(|list| processor_of_thread(list, number)) else { return };
    if let Err(e) = sched_setaffinity(None, &Cpus::set(&[cpu])) {
        tracing::warn!(cpu, error = %e, "a thread was not pinned");
    }
}

/// The processor of a thread.
fn processor_of_thread(list: &Cpus, number: usize) -> Option<usize> {
    list.list.get(number.checked_rem(list.list.len())?).copied()
}

/// Returns the processors of this process as they were listed, for the JSON.
pub fn listed() -> Option<String> {
    LIST.get().map(Cpus::text)
}

#[cfg(test)]
mod tests;
