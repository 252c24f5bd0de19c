//! The connections by name, and the flags that each has a use for.

use std::ffi::OsStr;

use base::outcome::{CommandResult, usage};
use clap::builder::{PossibleValue, TypedValueParser};
#[cfg(test)]
use rdma_conn::conn_core::handshake::ProtocolId;

use crate::settings::{
    Setting, buffered_read, buffered_write, direct_read, direct_write, send_recv, shared_write,
};

/// Kind of connection (`--protocol`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ProtocolKind {
    SendRecv,
    BufferedRead,
    BufferedWrite,
    DirectRead,
    DirectWrite,
    SharedWrite,
}

/// Flags of `bench` that are about how one connection is used.
const OF_BENCH: [(ProtocolKind, &str); 5] = [
    (ProtocolKind::SendRecv, "--srq"),
    (ProtocolKind::SendRecv, "--srq-buffers"),
    (ProtocolKind::SendRecv, "--rate auto"),
    (ProtocolKind::BufferedRead, "--sending-threads"),
    (ProtocolKind::BufferedRead, "--receiving-threads"),
];

impl ProtocolKind {
    pub(crate) const ALL: [ProtocolKind; 6] = [
        ProtocolKind::SendRecv,
        ProtocolKind::BufferedRead,
        ProtocolKind::BufferedWrite,
        ProtocolKind::DirectRead,
        ProtocolKind::DirectWrite,
        ProtocolKind::SharedWrite,
    ];

    /// Name of the connection on the command line and in the JSON.
    pub(crate) const fn name(self) -> &'static str {
        match self {
            ProtocolKind::SendRecv => "send-recv",
            ProtocolKind::BufferedRead => "buffered-read",
            ProtocolKind::BufferedWrite => "buffered-write",
            ProtocolKind::DirectRead => "direct-read",
            ProtocolKind::DirectWrite => "direct-write",
            ProtocolKind::SharedWrite => "shared-write",
        }
    }

    /// Its number in the handshake, which the library knows.
    #[cfg(test)]
    pub(crate) fn number(self) -> ProtocolId {
        match self {
            ProtocolKind::SendRecv => ProtocolId::SEND_RECV,
            ProtocolKind::BufferedRead => ProtocolId::BUFFERED_READ,
            ProtocolKind::BufferedWrite => ProtocolId::BUFFERED_WRITE,
            ProtocolKind::DirectRead => ProtocolId::DIRECT_READ,
            ProtocolKind::DirectWrite => ProtocolId::DIRECT_WRITE,
            ProtocolKind::SharedWrite => ProtocolId::SHARED_WRITE,
        }
    }

    /// Number of times that a message of an idle connection crosses the network, one crossing after
    /// the other, until the receiver has it (docs/protocols/README.md, "Hops"). `None` if this
    /// depends on when the receiver looks.
    pub(crate) fn hops(self) -> Option<u32> {
        match self {
            ProtocolKind::SendRecv
            | ProtocolKind::BufferedWrite
            | ProtocolKind::DirectWrite
            | ProtocolKind::SharedWrite => Some(1),
            ProtocolKind::DirectRead => Some(3),
            ProtocolKind::BufferedRead => None,
        }
    }

    /// Reports whether all senders to one receiver share one ring.
    pub(crate) fn shares_a_ring(self) -> bool {
        self == ProtocolKind::SharedWrite
    }

    /// Reports whether the connection uses `flag`, one of the flags that not every connection has.
    fn understands(self, flag: &str) -> bool {
        fn sets<C>(settings: &[Setting<C>], flag: &str) -> bool {
            settings.iter().any(|setting| setting.flag == flag)
        }
        OF_BENCH.contains(&(self, flag))
            || match self {
                ProtocolKind::SendRecv => sets(send_recv::SETTINGS, flag),
                ProtocolKind::BufferedRead => sets(buffered_read::SETTINGS, flag),
                ProtocolKind::BufferedWrite => sets(buffered_write::SETTINGS, flag),
                ProtocolKind::DirectRead => sets(direct_read::SETTINGS, flag),
                ProtocolKind::DirectWrite => sets(direct_write::SETTINGS, flag),
                ProtocolKind::SharedWrite => sets(shared_write::SETTINGS, flag),
            }
    }

    /// The one of this name.
    pub(crate) fn named(name: &str) -> Option<ProtocolKind> {
        ProtocolKind::ALL.iter().copied().find(|protocol| protocol.name() == name)
    }

    /// All names, for people.
    pub(crate) fn names() -> String {
        ProtocolKind::ALL.iter().map(|p| p.name()).collect::<Vec<_>>().join(", ")
    }

    /// Refuses flags that this connection has no use for, by name.
    pub(crate) fn check_flags(self, given: &[impl AsRef<str>]) -> CommandResult {
        let mut given = given.iter().map(AsRef::<str>::as_ref);
        let Some(flag) = given.find(|flag| !self.understands(flag)) else { return Ok(()) };
        let knows = |other: &&ProtocolKind| other.understands(flag);
        let others: Vec<&str> = ProtocolKind::ALL.iter().filter(knows).map(|p| p.name()).collect();
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
    type Value = ProtocolKind;

    fn parse_ref(
        &self,
        command: &clap::Command,
        arg: Option<&clap::Arg>,
        value: &OsStr,
    ) -> Result<ProtocolKind, clap::Error> {
        protocol.parse_ref(command, arg, value)
    }

    fn possible_values(&self) -> Option<Box<dyn Iterator<Item = PossibleValue> + '_>> {
        Some(Box::new(ProtocolKind::ALL.iter().map(|protocol| PossibleValue::new(protocol.name()))))
    }
}

/// A connection. A verb is none.
fn protocol(text: &str) -> Result<ProtocolKind, String> {
    if let Some(protocol) = ProtocolKind::named(text) {
        return Ok(protocol);
    }
    match text {
        "send" | "write" | "write-imm" | "read" => Err(format!(
            "by the verb alone, without a connection, bench and pingpong have --op {text}"
        )),
        _ => Err(format!("there are {}", ProtocolKind::names())),
    }
}

#[cfg(test)]
mod tests;
