//! The connections by name, and the flags that each has a use for.

use std::ffi::OsStr;

use base::outcome::{CommandResult, usage};
use clap::builder::{PossibleValue, TypedValueParser};
#[cfg(test)]
use rdma_conn::conn_core::handshake::ProtocolId;

use crate::settings::{
    FlagSpec, Setting, buffered_read, buffered_write, direct_read, direct_write, send_recv,
    shared_write,
};

/// Kind of connection (`--protocol`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Protocol {
    SendRecv,
    BufferedRead,
    BufferedWrite,
    DirectRead,
    DirectWrite,
    SharedWrite,
}

/// Flags of `bench` that are about how one connection is used.
const OF_BENCH: [(Protocol, &str); 5] = [
    (Protocol::SendRecv, "--srq"),
    (Protocol::SendRecv, "--srq-buffers"),
    (Protocol::SendRecv, "--rate auto"),
    (Protocol::BufferedRead, "--sending-threads"),
    (Protocol::BufferedRead, "--receiving-threads"),
];

impl Protocol {
    pub(crate) const ALL: [Protocol; 6] = [
        Protocol::SendRecv,
        Protocol::BufferedRead,
        Protocol::BufferedWrite,
        Protocol::DirectRead,
        Protocol::DirectWrite,
        Protocol::SharedWrite,
    ];

    /// Name of the connection on the command line and in the JSON.
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Protocol::SendRecv => "send-recv",
            Protocol::BufferedRead => "buffered-read",
            Protocol::BufferedWrite => "buffered-write",
            Protocol::DirectRead => "direct-read",
            Protocol::DirectWrite => "direct-write",
            Protocol::SharedWrite => "shared-write",
        }
    }

    /// Its number in the handshake, which the library knows.
    #[cfg(test)]
    pub(crate) fn number(self) -> ProtocolId {
        match self {
            Protocol::SendRecv => ProtocolId::SEND_RECV,
            Protocol::BufferedRead => ProtocolId::BUFFERED_READ,
            Protocol::BufferedWrite => ProtocolId::BUFFERED_WRITE,
            Protocol::DirectRead => ProtocolId::DIRECT_READ,
            Protocol::DirectWrite => ProtocolId::DIRECT_WRITE,
            Protocol::SharedWrite => ProtocolId::SHARED_WRITE,
        }
    }

    /// Number of times that a message of an idle connection crosses the network, one crossing after
    /// the other, until the receiver has it (docs/protocols/README.md, "Hops"). `None` if this
    /// depends on when the receiver looks.
    pub(crate) fn hops(self) -> Option<u32> {
        match self {
            Protocol::SendRecv
            | Protocol::BufferedWrite
            | Protocol::DirectWrite
            | Protocol::SharedWrite => Some(1),
            Protocol::DirectRead => Some(3),
            Protocol::BufferedRead => None,
        }
    }

    /// Reports whether all senders to one receiver share one ring.
    pub(crate) fn shares_a_ring(self) -> bool {
        self == Protocol::SharedWrite
    }

    /// The flags of its settings.
    pub(crate) fn flags(self) -> Vec<FlagSpec> {
        fn of<C>(settings: &[Setting<C>]) -> Vec<FlagSpec> {
            let flags = settings.iter().map(|setting| setting.flag);
            flags.filter(|flag| !flag.name.is_empty()).collect()
        }
        match self {
            Protocol::SendRecv => of(send_recv::SETTINGS),
            Protocol::BufferedRead => of(buffered_read::SETTINGS),
            Protocol::BufferedWrite => of(buffered_write::SETTINGS),
            Protocol::DirectRead => of(direct_read::SETTINGS),
            Protocol::DirectWrite => of(direct_write::SETTINGS),
            Protocol::SharedWrite => of(shared_write::SETTINGS),
        }
    }

    /// Those of all connections, each once.
    pub(super) fn all_flags() -> Vec<FlagSpec> {
        let mut flags: Vec<FlagSpec> = Vec::new();
        for flag in Protocol::ALL.into_iter().flat_map(Protocol::flags) {
            if flags.iter().all(|known| known.name != flag.name) {
                flags.push(flag);
            }
        }
        flags
    }

    /// Reports whether the connection uses `flag`, one of the flags that not every connection has.
    fn understands(self, flag: &str) -> bool {
        OF_BENCH.contains(&(self, flag)) || self.flags().iter().any(|known| known.name == flag)
    }

    /// The one of this name.
    pub(crate) fn named(name: &str) -> Option<Protocol> {
        Protocol::ALL.iter().copied().find(|protocol| protocol.name() == name)
    }

    /// All names, for people.
    pub(crate) fn names() -> String {
        Protocol::ALL.iter().map(|p| p.name()).collect::<Vec<_>>().join(", ")
    }

    /// Refuses flags that this connection has no use for, by name.
    pub(crate) fn check_flags(self, given: &[&'static str]) -> CommandResult {
        let Some(flag) = given.iter().find(|flag| !self.understands(flag)) else { return Ok(()) };
        let knows = |other: &&Protocol| other.understands(flag);
        let others: Vec<&str> = Protocol::ALL.iter().filter(knows).map(|p| p.name()).collect();
        let remedy = match others[..] {
            [] => "leave it out".into(),
            _ => format!("leave it out, or use --protocol {}", others.join(" or ")),
        };
        Err(usage(format!("{flag} means nothing to {}: {remedy}", self.name())))
    }
}

/// Parses the name of a connection, and tells help and completions the names.
#[derive(Clone)]
pub(super) struct ProtocolParser;

impl TypedValueParser for ProtocolParser {
    type Value = Protocol;

    fn parse_ref(
        &self,
        command: &clap::Command,
        arg: Option<&clap::Arg>,
        value: &OsStr,
    ) -> Result<Protocol, clap::Error> {
        protocol.parse_ref(command, arg, value)
    }

    fn possible_values(&self) -> Option<Box<dyn Iterator<Item = PossibleValue> + '_>> {
        Some(Box::new(Protocol::ALL.iter().map(|protocol| PossibleValue::new(protocol.name()))))
    }
}

/// A connection. A verb is none.
fn protocol(text: &str) -> Result<Protocol, String> {
    if let Some(protocol) = Protocol::named(text) {
        return Ok(protocol);
    }
    match text {
        "send" | "write" | "write-imm" | "read" => Err(format!(
            "by the verb alone, without a connection, bench and pingpong have --op {text}"
        )),
        _ => Err(format!("there are {}", Protocol::names())),
    }
}

#[cfg(test)]
mod tests;
