//! Parameters that the connecting end tells the listening one: they hold.

use anyhow::{Context, Result, ensure};
use base::session::differs;
use copy::is_copy;
use rdma_conn::send_recv::Reposting;
use serde::{Deserialize, Serialize};

use crate::cli::{ConnectionArgs, RoundsArgs};
use crate::limits::{MOST_BUFFER_BYTES, MOST_SIZES};
use crate::measure::{EndOfLoad, LoadShape, ReceiverThreads};
use crate::protocol::{self, MeasuredProtocol, OTHER_VERSION, Purpose, SessionMemory};
use crate::settings::{self, Flag, SettingTerms, number, shown, switch};

/// One connection of a session, as application data of the handshake (up to 512 bytes,
/// or 436 where rings are offered there as well; hence the short names).
#[derive(Serialize, Deserialize, Debug, Clone, PartialEq)]
pub(crate) struct SessionParameters {
    /// `bench` or `pingpong`.
    #[serde(rename = "c")]
    pub(crate) command: String,
    /// Tells the connecting processes of a session apart.
    #[serde(rename = "r")]
    pub(crate) run: u64,
    /// Measurements of the process, one after the other, and which one this is.
    #[serde(rename = "ps")]
    pub(crate) parts: u32,
    #[serde(rename = "p")]
    pub(crate) part: u32,
    /// Senders of the process, and which one this is.
    #[serde(rename = "ss")]
    pub(crate) senders: u32,
    #[serde(rename = "s")]
    pub(crate) sender: u32,
    #[serde(rename = "t")]
    pub(crate) traffic: TrafficParameters,
}

/// Parameters that all connections of a measurement share.
#[derive(Serialize, Deserialize, Debug, Clone, PartialEq)]
pub(crate) struct TrafficParameters {
    /// Bytes of each message.
    #[serde(rename = "z")]
    pub(crate) size: u32,
    /// The preset that the connection's settings began with, if one was asked for.
    #[serde(rename = "e")]
    pub(crate) preset: Option<String>,
    /// Those settings of the connection that the connecting end decides.
    #[serde(rename = "x")]
    pub(crate) terms: SettingTerms,
    /// True if payloads can be checked.
    #[serde(rename = "v")]
    pub(crate) verify: bool,
    /// Organisation of the receiving end; for it to choose where nothing was asked for.
    #[serde(rename = "g")]
    pub(crate) receiving: Option<ReceiverThreads>,
    /// Rule for reposting buffers to the shared receive queue, if there is one, and its size.
    #[serde(rename = "q")]
    pub(crate) srq: Option<String>,
    #[serde(rename = "n")]
    pub(crate) srq_buffers: Option<u32>,
    /// Condition on which a sender is done, and the messages that it sends per second.
    #[serde(rename = "l")]
    pub(crate) end: Option<EndOfLoad>,
    #[serde(rename = "a")]
    pub(crate) rate: Option<f64>,
    /// Length and CRC-32 of the file that is sent.
    #[serde(rename = "f")]
    pub(crate) file: Option<(u64, u32)>,
    /// Rounds of each measurement, each of which is a part of the session.
    #[serde(rename = "d")]
    pub(crate) rounds: u32,
}

/// A number for this process that no other one has.
pub(crate) fn run_number() -> u64 {
    host::random::entropy()
}

/// Measurement that a connecting process is at, and the number of all of them.
#[derive(Debug, Clone, Copy)]
pub(crate) struct MeasurementIndex {
    /// The process's own number.
    pub(crate) run: u64,
    pub(crate) at: u32,
    pub(crate) of: u32,
}

impl MeasurementIndex {
    /// The only one.
    pub(crate) fn only() -> MeasurementIndex {
        MeasurementIndex { run: run_number(), at: 0, of: 1 }
    }

    /// The connection of one of the process's senders.
    pub(crate) fn session(
        self,
        command: &str,
        senders: u32,
        sender: u32,
        traffic: TrafficParameters,
    ) -> SessionParameters {
        let (run, parts, part) = (self.run, self.of, self.at);
        SessionParameters { command: command.into(), run, parts, part, senders, sender, traffic }
    }
}

impl SessionParameters {
    pub(crate) fn encode(&self) -> Result<Vec<u8>> {
        let bytes = serde_json::to_vec(self)?;
        ensure!(bytes.len() <= 512, "the session's parameters have {} bytes", bytes.len());
        Ok(bytes)
    }

    pub(crate) fn decode<K: MeasuredProtocol>(
        bytes: &[u8],
        command: &str,
    ) -> Result<SessionParameters> {
        let check_command = |theirs: &str| {
            let remedy = "run the same command at both ends";
            ensure!(theirs == command, differs("the command", theirs, command, remedy));
            Ok(())
        };
        if is_copy(bytes) {
            check_command("copy")?;
        }
        let session: SessionParameters = serde_json::from_slice(bytes).context(OTHER_VERSION)?;
        check_command(&session.command)?;
        session.check::<K>()?;
        Ok(session)
    }

    /// Checks that this end can have what it makes room for. The rest is checked when the
    /// connection is made.
    fn check<K: MeasuredProtocol>(&self) -> Result<()> {
        let senders = 1..=LoadShape::MAX_SENDERS;
        ensure!(
            senders.contains(&self.senders) && self.sender < self.senders,
            "sender {} of {}: there may be {} to {}",
            self.sender,
            self.senders,
            senders.start(),
            senders.end()
        );
        ensure!(self.part < self.parts, "measurement {} of {}", self.part, self.parts);
        let rate = self.traffic.rate.unwrap_or(1.0);
        ensure!((1e-9..=f64::MAX).contains(&rate), "{rate} messages a second: at least 1e-9");
        let rounds = self.traffic.rounds;
        ensure!(
            (1..=RoundsArgs::MOST).contains(&rounds) && self.parts.is_multiple_of(rounds),
            "{} measurements in {rounds} rounds",
            self.parts
        );
        let sizes = self.parts / rounds;
        ensure!(sizes <= MOST_SIZES, "{sizes} sizes: a session may have up to {MOST_SIZES}");
        let TrafficParameters { size, ref terms, .. } = self.traffic;
        K::check_told(&protocol::told::<K>(size, terms)?, size)?;
        let shape = self.traffic.shape::<K>(self.senders, None);
        self.traffic.check_room::<K>(shape, self.command == "pingpong")
    }

    /// Returns the number of the size that it is at, and the number of sizes.
    pub(crate) fn size_of_sizes(&self) -> (u32, u32) {
        let rounds = self.traffic.rounds.max(1);
        (self.part / rounds, self.parts / rounds)
    }

    /// Returns the seed of this sender's payloads, below 2^22: those of two senders differ.
    pub(crate) fn stream(&self) -> u64 {
        (self.run & 0xfff) << 10 | u64::from(self.sender)
    }
}

impl TrafficParameters {
    /// Describes the messages on a connection of this configuration; the command adds the rest.
    pub(crate) fn new<K: MeasuredProtocol>(
        args: &ConnectionArgs,
        config: &K::Settings,
        size: u32,
        verify: bool,
    ) -> TrafficParameters {
        TrafficParameters {
            size,
            preset: args.given.preset.clone(),
            terms: settings::terms(K::SETTINGS, config),
            verify,
            receiving: None,
            srq: None,
            srq_buffers: None,
            end: None,
            rate: None,
            file: None,
            rounds: 1,
        }
    }

    /// This number of senders, and their receivers as the connecting end has asked for, or else as
    /// the listening end was told.
    pub(crate) fn shape<K: MeasuredProtocol>(
        &self,
        senders: u32,
        listening: Option<ReceiverThreads>,
    ) -> LoadShape {
        let reposting = |name: &String| Reposting::ALL.into_iter().find(|r| r.name() == name);
        let receiving = self.receiving.or(listening);
        LoadShape {
            senders,
            receiving: receiving.unwrap_or(ReceiverThreads::chosen(K::WHICH, senders)),
            srq: self.srq.as_ref().and_then(reposting),
            srq_buffers: self.srq_buffers,
        }
    }

    /// Checks that there may be memory for these senders and receivers, and for messages that go
    /// `back` or do not.
    pub(crate) fn check_room<K: MeasuredProtocol>(
        &self,
        shape: LoadShape,
        back: bool,
    ) -> Result<()> {
        let config = protocol::told::<K>(self.size, &self.terms)?;
        let SessionMemory { bytes, what, flags } = K::room(&config, shape, back);
        ensure!(
            bytes <= MOST_BUFFER_BYTES,
            "{what} are {} MiB, and {} MiB is the most: {flags} has to be smaller",
            bytes.div_ceil(1 << 20),
            MOST_BUFFER_BYTES >> 20
        );
        Ok(())
    }

    /// The settings, so that two can be compared by name.
    pub(crate) fn flags<K: MeasuredProtocol>(&self, purpose: Purpose) -> Vec<Flag> {
        let or_off = |value: Option<String>| value.unwrap_or_else(|| "off".into());
        let receiving = self.receiving.map_or("as the other end likes", ReceiverThreads::flag);
        let file = self.file.map(|(bytes, crc)| format!("a file of {bytes} bytes ({crc:08x})"));
        let preset = self.preset.as_deref().unwrap_or(purpose.preset().name());
        let mut flags = vec![("--size", shown(&self.size)), ("--preset", preset.to_owned())];
        flags.extend(settings::by_flag(K::SETTINGS, &self.terms));
        flags.extend([
            ("--no-verify", switch(!self.verify)),
            (RECEIVING, receiving.into()),
            ("--srq", or_off(self.srq.clone())),
            ("--srq-buffers", or_off(self.srq_buffers.map(|n| n.to_string()))),
            ("--rounds", shown(&self.rounds)),
            ("--rate", or_off(self.rate.map(|rate| rate.to_string()))),
            ("--input", or_off(file)),
        ]);
        flags.extend(self.end.map(EndOfLoad::flag));
        flags
    }

    /// Describes a difference from another one, if there is any.
    pub(crate) fn difference<K: MeasuredProtocol>(
        &self,
        other: &TrafficParameters,
        purpose: Purpose,
    ) -> Option<String> {
        if self == other {
            return None;
        }
        let (ours, theirs) = (self.flags::<K>(purpose), other.flags::<K>(purpose));
        let mut pairs = ours.iter().zip(&theirs);
        Some(match pairs.find(|(ours, theirs)| ours != theirs) {
            Some((ours, theirs)) => {
                format!("{} {}, and not {} {}", ours.0, ours.1, theirs.0, theirs.1)
            }
            None => "other settings".into(),
        })
    }
}

/// Returns the flags given at this end that are the connecting end's to choose: those that the
/// connection was told, and those that every command understands.
pub(crate) fn asked<K: MeasuredProtocol>(
    args: &ConnectionArgs,
    size: Option<u32>,
    no_verify: bool,
) -> Vec<Flag> {
    let mut flags: Vec<Flag> = number("--size", size).into_iter().collect();
    flags.extend(number("--preset", args.given.preset.as_ref()));
    flags.extend(settings::asked(K::SETTINGS, &args.given));
    flags.extend(no_verify.then(|| ("--no-verify", switch(true))));
    flags
}

/// The name of how receiving is organised, among the flags.
const RECEIVING: &str = "the receiving end";

/// The contradiction between what was asked for at this end, and what the connecting end
/// wants.
pub(crate) fn contradiction(asked: &[Flag], wanted: &[Flag]) -> Option<String> {
    asked.iter().find_map(|(flag, here)| {
        let there = wanted.iter().find(|(name, _)| name == flag).map(|(_, value)| value);
        let there = there.map_or("no such flag", String::as_str);
        (there != here).then(|| {
            let remedy = remedy(flag, here);
            differs(flag, there, here, &remedy)
        })
    })
}

/// Returns the remedy for a contradiction. The connecting end's value may be no more than its
/// default.
fn remedy(flag: &str, here: &str) -> String {
    match (flag, here) {
        (RECEIVING, _) => "leave it out at one of them".into(),
        (flag, "on") => format!("give both ends {flag}, or leave it out where you --listen"),
        (flag, here) => format!("give both ends {flag} {here}, or leave it out where you --listen"),
    }
}

/// The contradiction between the sizes that this end was told, if any, and the number of
/// those that the connecting end has.
pub(crate) fn other_sizes(here: &[u32], there: u32) -> Option<String> {
    if here.is_empty() || here.len() == there as usize {
        return None;
    }
    let listed: Vec<String> = here.iter().map(u32::to_string).collect();
    let sizes = |n| if n == 1 { "1 size".into() } else { format!("{n} sizes") };
    let remedy = remedy("--size", &listed.join(","));
    Some(differs("", &sizes(there as usize), &sizes(here.len()), &remedy))
}

#[cfg(test)]
mod tests;
