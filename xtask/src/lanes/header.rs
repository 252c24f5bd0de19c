//! The header of a test program, the comment at its top, in which the program says what it needs:
//!
//! ```text
//! //! Only on soft0: it makes simulated devices of its own.
//! //! Not on apart, wired: a completion is there when its post returns.
//! //! Also on roce: its processes reach each other through memory.
//! //! Alone on rxe0: each test compares counters of the device, after others have ended.
//! //! Shows: closing.
//! ```
//!
//! A program that says nothing is in every lane.

use anyhow::{Result, bail, ensure};

use super::lane::{LANES, SUBJECTS, TestSubject};

/// Requirements that a test program states.
#[derive(Default)]
pub(super) struct TestHeader {
    only: Option<Lanes>,
    not: Vec<Lanes>,
    also: Vec<Lanes>,
    alone: Vec<Lanes>,
    pub(super) shows: Option<&'static TestSubject>,
}

/// Lanes, and the reason that the program gives.
struct Lanes {
    names: Vec<&'static str>,
    reason: String,
}

impl Lanes {
    fn parse(text: &str) -> Result<Lanes> {
        let Some((names, reason)) = text.split_once(": ") else { bail!("no reason follows") };
        let known = |name: &str| LANES.iter().map(|lane| lane.name).find(|known| *known == name);
        let names: Option<Vec<_>> = names.split(", ").map(known).collect();
        let Some(names) = names else { bail!("a name is that of no lane") };
        Ok(Lanes { names, reason: reason.trim_end_matches('.').to_owned() })
    }

    fn reason_of(all: &[Lanes], lane: &str) -> Option<String> {
        let named = all.iter().find(|lanes| lanes.names.contains(&lane));
        named.map(|lanes| lanes.reason.clone())
    }
}

impl TestHeader {
    pub(super) fn parse(source: &str) -> Result<TestHeader> {
        let mut header = TestHeader::default();
        for line in source.lines().map_while(|line| line.strip_prefix("//!")) {
            let line = line.trim();
            match header.take(line) {
                Ok(()) => {}
                Err(e) => bail!("`{line}`: {e}"),
            }
        }
        Ok(header)
    }

    /// Takes in a line; one that begins otherwise is for readers.
    fn take(&mut self, line: &str) -> Result<()> {
        if let Some(rest) = line.strip_prefix("Only on ") {
            ensure!(self.only.replace(Lanes::parse(rest)?).is_none(), "it stands there already");
        } else if let Some(rest) = line.strip_prefix("Not on ") {
            self.not.push(Lanes::parse(rest)?);
        } else if let Some(rest) = line.strip_prefix("Also on ") {
            self.also.push(Lanes::parse(rest)?);
        } else if let Some(rest) = line.strip_prefix("Alone on ") {
            self.alone.push(Lanes::parse(rest)?);
        } else if let Some(rest) = line.strip_prefix("Shows: ") {
            let known = SUBJECTS.iter().find(|subject| subject.name == rest.trim_end_matches('.'));
            let Some(subject) = known else {
                let names: Vec<&str> = SUBJECTS.iter().map(|subject| subject.name).collect();
                bail!("subjects are {}", names.join(", "))
            };
            ensure!(self.shows.replace(subject).is_none(), "a program shows one subject");
        }
        Ok(())
    }

    /// The reason why the program is not in a lane; `None` if it is.
    pub(super) fn keeps_out(&self, lane: &str, is_opt_in: bool) -> Option<String> {
        let only = self.only.as_ref().filter(|only| !only.names.contains(&lane));
        let only = only.map(|only| only.reason.clone());
        let others = || "it does not ask for this lane".to_owned();
        let not_asked = is_opt_in && Lanes::reason_of(&self.also, lane).is_none();
        only.or_else(|| Lanes::reason_of(&self.not, lane)).or_else(|| not_asked.then(others))
    }

    /// Reports whether each test needs a process of its own in a lane.
    pub(super) fn is_alone_on(&self, lane: &str) -> bool {
        Lanes::reason_of(&self.alone, lane).is_some()
    }
}

#[cfg(test)]
mod tests;
