//! What the connecting end tells the listening one: its parameters hold.

mod ends;

use std::hash::{BuildHasher, Hasher, RandomState};

use anyhow::{Context, Result, ensure};
use serde::{Deserialize, Serialize};

use crate::bench::{EndOfLoad, Receiving, Shape};
use crate::copy;
use crate::protocol::{Protocol, Purpose, Room, Wish};
pub(crate) use ends::{
    Guest, cannot_bind, cannot_listen, dial, engaged, explain, listen, next_peer, open_device,
    refused,
};

/// What the buffers of one end may take in all: whoever connects chooses what the
/// listening end registers.
pub(crate) const MOST_BUFFER_BYTES: u64 = 4 << 30;

/// What an entry of a work queue takes: what is known of it here, and the device's own.
pub(crate) const ENTRY_BYTES: u32 = 256;

/// One connection of a session, as application data of the handshake (up to 512 bytes,
/// or 436 where rings are offered there as well; hence the short names).
#[derive(Serialize, Deserialize, Debug, Clone, PartialEq)]
pub(crate) struct Session<W> {
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
    pub(crate) traffic: Traffic<W>,
}

/// What all connections of a measurement have in common.
#[derive(Serialize, Deserialize, Debug, Clone, PartialEq)]
pub(crate) struct Traffic<W> {
    /// Bytes of each message.
    #[serde(rename = "z")]
    pub(crate) size: u32,
    /// What the connection needs of the other end.
    #[serde(rename = "x")]
    pub(crate) wish: W,
    /// Whether payloads can be checked.
    #[serde(rename = "v")]
    pub(crate) verify: bool,
    /// How the receiving end is organised; for it to choose where nothing was asked for.
    #[serde(rename = "g")]
    pub(crate) receiving: Option<Receiving>,
    /// How buffers get back into the shared receive queue, if there is one, and its size.
    #[serde(rename = "q")]
    pub(crate) srq: Option<String>,
    #[serde(rename = "n")]
    pub(crate) srq_buffers: Option<u32>,
    /// When a sender is done, and how many messages a second it sends.
    #[serde(rename = "l")]
    pub(crate) end: Option<EndOfLoad>,
    #[serde(rename = "a")]
    pub(crate) rate: Option<f64>,
    /// Length and CRC-32 of the file that is sent.
    #[serde(rename = "f")]
    pub(crate) file: Option<(u64, u32)>,
}

/// A flag and its value, as people write them.
pub(crate) type Flag = (&'static str, String);

/// A number for this process that no other one has.
pub(crate) fn run_number() -> u64 {
    RandomState::new().build_hasher().finish()
}

impl<W: Wish> Session<W> {
    pub(crate) fn encode(&self) -> Result<Vec<u8>> {
        let bytes = serde_json::to_vec(self)?;
        ensure!(bytes.len() <= 512, "the session's parameters have {} bytes", bytes.len());
        Ok(bytes)
    }

    pub(crate) fn decode(bytes: &[u8], command: &str) -> Result<Session<W>> {
        let check_command = |theirs: &str| {
            ensure!(
                theirs == command,
                "the connecting end runs {theirs}, the listening end {command}: run the same command at both ends"
            );
            Ok(())
        };
        if copy::is_greeting(bytes) {
            check_command("copy")?;
        }
        let session: Session<W> = serde_json::from_slice(bytes).context(
            "the connecting program is not this version of rdma-conn: run the same one at both ends",
        )?;
        check_command(&session.command)?;
        session.check()?;
        Ok(session)
    }

    /// What this end makes room for must be what it can have. The rest is checked when
    /// the connection is made.
    fn check(&self) -> Result<()> {
        let senders = 1..=Shape::MAX_SENDERS;
        ensure!(
            senders.contains(&self.senders) && self.sender < self.senders,
            "sender {} of {}: there may be {} to {}",
            self.sender,
            self.senders,
            senders.start(),
            senders.end()
        );
        ensure!(self.part < self.parts, "measurement {} of {}", self.part, self.parts);
        self.traffic.wish.check(self.traffic.size)?;
        self.traffic.check_room(self.senders, self.command == "pingpong")
    }

    /// What the payloads of this sender are made from, below 2^22: those of two senders
    /// differ.
    pub(crate) fn stream(&self) -> u64 {
        (self.run & 0xfff) << 10 | u64::from(self.sender)
    }
}

impl<W: Wish> Traffic<W> {
    /// What a connection of this configuration carries; the rest is added by the command.
    pub(crate) fn new(wish: W, size: u32, verify: bool) -> Traffic<W> {
        Traffic {
            size,
            wish,
            verify,
            receiving: None,
            srq: None,
            srq_buffers: None,
            end: None,
            rate: None,
            file: None,
        }
    }

    /// Whether there may be memory for so many senders, and for messages that go back or
    /// do not.
    pub(crate) fn check_room(&self, senders: u32, back: bool) -> Result<()> {
        let shared = self.srq.as_ref().and(self.srq_buffers);
        let Room { bytes, what, flags } = self.wish.room(senders, shared, back);
        ensure!(
            bytes <= MOST_BUFFER_BYTES,
            "{what} are {} MiB, and {} MiB is the most: {flags} has to be smaller",
            bytes.div_ceil(1 << 20),
            MOST_BUFFER_BYTES >> 20
        );
        Ok(())
    }

    /// The settings, so that two can be compared by name.
    pub(crate) fn flags(&self, purpose: Purpose) -> Vec<Flag> {
        let or_off = |value: Option<String>| value.unwrap_or_else(|| "off".into());
        let receiving = self.receiving.map_or("as the other end likes", Receiving::flag);
        let file = self.file.map(|(bytes, crc)| format!("a file of {bytes} bytes ({crc:08x})"));
        let mut flags = vec![("--size", shown(&self.size))];
        flags.extend(self.wish.flags(purpose));
        flags.extend([
            ("--no-verify", switch(!self.verify)),
            (RECEIVING, receiving.into()),
            ("--srq", or_off(self.srq.clone())),
            ("--srq-buffers", or_off(self.srq_buffers.map(|n| n.to_string()))),
            ("--rate", or_off(self.rate.map(|rate| rate.to_string()))),
            ("--input", or_off(file)),
        ]);
        flags.extend(self.end.map(EndOfLoad::flag));
        flags
    }

    /// Where another one differs.
    pub(crate) fn difference(&self, other: &Traffic<W>, purpose: Purpose) -> Option<String> {
        if self == other {
            return None;
        }
        let (ours, theirs) = (self.flags(purpose), other.flags(purpose));
        let mut pairs = ours.iter().zip(&theirs);
        Some(match pairs.find(|(ours, theirs)| ours != theirs) {
            Some((ours, theirs)) => {
                format!("{} {}, and not {} {}", ours.0, ours.1, theirs.0, theirs.1)
            }
            None => "other settings".into(),
        })
    }
}

/// What was asked for at this end, and is the connecting end's to choose: what the
/// connection was told, and what every command understands.
pub(crate) fn asked(connection: Vec<Flag>, size: Option<u32>, no_verify: bool) -> Vec<Flag> {
    let mut flags: Vec<Flag> = number("--size", size).into_iter().collect();
    flags.extend(connection);
    flags.extend(no_verify.then(|| ("--no-verify", switch(true))));
    flags
}

/// A value as people write it.
pub(crate) fn shown(value: &impl ToString) -> String {
    value.to_string()
}

/// A flag without a value, as one with it.
pub(crate) fn switch(on: bool) -> String {
    if on { "on" } else { "off" }.to_owned()
}

/// A flag with its number, if it was given.
pub(crate) fn number<T: ToString>(flag: &'static str, value: Option<T>) -> Option<Flag> {
    value.map(|value| (flag, value.to_string()))
}

/// The name of how receiving is organised, among the flags.
pub(crate) const RECEIVING: &str = "the receiving end";

/// The contradiction between what was asked for at this end, and what the connecting end
/// wants.
pub(crate) fn contradiction(asked: &[Flag], wanted: &[Flag]) -> Option<String> {
    asked.iter().find_map(|(flag, here)| {
        let there = wanted.iter().find(|(name, _)| name == flag).map(|(_, value)| value);
        let there = there.map_or("no such flag", String::as_str);
        (there != here).then(|| {
            let remedy = remedy(flag, here);
            format!("the connecting end has {flag} {there}, the listening end {here}: {remedy}")
        })
    })
}

/// What to do about a contradiction. What the connecting end has may be no more than its
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
    Some(format!(
        "the connecting end has {}, the listening end {}: {}",
        sizes(there as usize),
        sizes(here.len()),
        remedy("--size", &listed.join(","))
    ))
}

/// How a protocol number shows that the other end was started with other flags.
pub(crate) fn other_protocol(number: u8) -> Option<String> {
    let raw = rdma_conn::conn_core::handshake::ProtocolId::RAW.0;
    if number == raw {
        return Some("it uses raw verbs: give --op at both ends or at none".into());
    }
    let theirs = Protocol::ALL.iter().find(|protocol| protocol.number().0 == number)?;
    Some(format!("it has --protocol {}: give both ends the same", theirs.name()))
}

#[cfg(test)]
mod tests {
    use rdma_conn::send_recv::SendRecv;

    use super::*;
    use crate::protocol::Kind;

    type Wanted = <SendRecv as Kind>::Wish;

    fn session() -> Session<Wanted> {
        Session {
            command: "pingpong".into(),
            run: u64::MAX,
            parts: u32::MAX,
            part: u32::MAX - 1,
            senders: 1024,
            sender: 1023,
            traffic: Traffic {
                size: u32::MAX,
                wish: Wanted {
                    message_bytes: u32::MAX,
                    unacked: u32::MAX,
                    batch: u32::MAX,
                    preset: Some("sequential".into()),
                    pack_bytes: u32::MAX,
                    recv_window: 16_384,
                    credits: false,
                },
                verify: false,
                receiving: Some(Receiving::SingleReceiver),
                srq: Some("combining".into()),
                srq_buffers: Some(u32::MAX),
                end: Some(EndOfLoad::After(std::time::Duration::from_nanos(86_399_999_999_999))),
                rate: Some(f64::MAX),
                file: Some((u64::MAX, u32::MAX)),
            },
        }
    }

    /// As many of everything as there is room for.
    fn fine() -> Session<Wanted> {
        let traffic = Traffic {
            size: 255,
            wish: Wanted {
                message_bytes: 256,
                unacked: 0,
                recv_window: 16_383,
                ..session().traffic.wish
            },
            srq_buffers: Some(1 << 24),
            ..session().traffic
        };
        Session { traffic, ..session() }
    }

    #[test]
    fn the_longest_one_fits_the_handshake() {
        let bytes = session().encode().unwrap();
        assert_eq!(serde_json::from_slice::<Session<Wanted>>(&bytes).unwrap(), session());
        let bytes = fine().encode().unwrap();
        assert_eq!(Session::decode(&bytes, "pingpong").unwrap(), fine());
        let error = Session::<Wanted>::decode(&bytes, "bench").unwrap_err().to_string();
        assert!(error.contains("same command"), "{error}");
        let error = Session::<Wanted>::decode(b"rdma-conn copy 5", "pipe").unwrap_err().to_string();
        assert!(error.contains("runs copy, the listening end pipe"), "{error}");
        let error = Session::<Wanted>::decode(b"{}", "bench").unwrap_err().to_string();
        assert!(error.contains("version"), "{error}");
    }

    #[test]
    fn numbers_that_nobody_has_room_for_are_refused() {
        let with = |traffic| Session { traffic, ..fine() };
        let wish = |wish| with(Traffic { wish, ..fine().traffic });
        let base = fine().traffic.wish;
        let window = |recv_window| wish(Wanted { recv_window, ..fine().traffic.wish });
        let bytes = |message_bytes| Wanted { message_bytes, ..base.clone() };
        let unacked = |unacked| Wanted { unacked, ..base.clone() };
        let own = Traffic { srq: None, ..fine().traffic };
        for bad in [
            Session { senders: 0, sender: 0, ..fine() },
            Session { senders: u32::MAX, ..fine() },
            Session { sender: 1024, ..fine() },
            Session { parts: 3, part: 3, ..fine() },
            window(0),
            window(u32::MAX),
            // More than a buffer, and more buffers than anybody may ask for.
            with(Traffic { size: 257, ..fine().traffic }),
            wish(bytes(257)),
            wish(bytes(u32::MAX)),
            wish(unacked(1)),
            with(Traffic { wish: unacked(u32::MAX), ..own.clone() }),
            with(Traffic { wish: bytes(257), ..own }),
            with(Traffic { srq_buffers: Some(u32::MAX), ..fine().traffic }),
        ] {
            assert!(
                Session::<Wanted>::decode(&bad.encode().unwrap(), "pingpong").is_err(),
                "{bad:?}"
            );
        }
    }

    #[test]
    fn a_difference_is_named() {
        let ours = session().traffic;
        assert_eq!(ours.difference(&ours.clone(), Purpose::Throughput), None);
        let wish = Wanted { unacked: 7, ..ours.wish.clone() };
        let theirs = Traffic { wish, ..ours.clone() };
        let named = ours.difference(&theirs, Purpose::Throughput).unwrap();
        assert_eq!(named, "--unacked 4294967295, and not --unacked 7");
        let wish = Wanted { message_bytes: 7, ..ours.wish.clone() };
        let hidden = Traffic { wish, ..ours.clone() };
        assert!(ours.difference(&hidden, Purpose::Throughput).is_some());
    }

    #[test]
    fn what_was_not_asked_for_is_no_contradiction() {
        let wanted = session().traffic.flags(Purpose::Throughput);
        let asked = |flag, value: &str| contradiction(&[(flag, value.into())], &wanted);
        assert_eq!(contradiction(&[], &wanted), None);
        assert_eq!(asked("--preset", "sequential"), None);
        assert_eq!(asked("--no-credits", "on"), None);
        let says = asked("--preset", "batched").unwrap();
        assert!(says.contains("--preset sequential, the listening end batched"), "{says}");
        assert!(
            says.ends_with("give both ends --preset batched, or leave it out where you --listen"),
            "{says}"
        );
        assert_eq!(
            remedy("--no-verify", "on"),
            "give both ends --no-verify, or leave it out where you --listen"
        );
        assert_eq!((other_sizes(&[], 7), other_sizes(&[16, 64], 2)), (None, None));
        let says = other_sizes(&[16, 64], 1).unwrap();
        assert!(says.contains("has 1 size, the listening end 2 sizes"), "{says}");
        assert!(says.contains("give both ends --size 16,64"), "{says}");
        assert!(asked("--messages", "5").is_some(), "it has seconds instead");
    }
}
