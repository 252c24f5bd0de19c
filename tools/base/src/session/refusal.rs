//! The words of a refusal. On the wire it names "the connecting end" and "the listening end";
//! [`read_by`] turns the reader's own into "this end".

use rdma_conn::conn_core::handshake::ProtocolId;
use rdma_conn::handshake::HandshakeError;

/// An end of a session.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum SessionEnd {
    Connecting,
    Listening,
}

/// Names of the ends in a refusal on the wire.
const CONNECTING: &str = "the connecting end";
const LISTENING: &str = "the listening end";

/// The words of a refusal, as one end reads them.
pub(crate) fn read_by(reader: SessionEnd, why: &str) -> String {
    let why = other_protocol(why).unwrap_or_else(|| why.to_owned());
    match reader {
        SessionEnd::Connecting => why.replace(CONNECTING, "this end"),
        SessionEnd::Listening => why.replace(LISTENING, "this end"),
    }
}

/// Two ends that want different things: `what`, as each of them has it, and what to do.
pub fn differs(what: &str, connecting: &str, listening: &str, remedy: &str) -> String {
    let what = if what.is_empty() { String::new() } else { format!("{what} ") };
    format!("{CONNECTING} has {what}{connecting}, {LISTENING} {listening}: {remedy}")
}

/// The protocols that a handshake may name.
const PROTOCOLS: [ProtocolId; 6] = [
    ProtocolId::SEND_RECV,
    ProtocolId::BUFFERED_READ,
    ProtocolId::BUFFERED_WRITE,
    ProtocolId::DIRECT_READ,
    ProtocolId::MULTICAST,
    ProtocolId::RAW,
];

/// The words for what a listening end says of another protocol than its own, which it has from the
/// library: that speaks of its own end only.
fn other_protocol(said: &str) -> Option<String> {
    let pairs =
        PROTOCOLS.iter().flat_map(|theirs| PROTOCOLS.iter().map(move |ours| (theirs, ours)));
    let is_said = |(theirs, ours): &(&ProtocolId, &ProtocolId)| {
        said == HandshakeError::OtherProtocol { theirs: theirs.0, ours: ours.0 }.to_string()
    };
    let (theirs, ours) = pairs.into_iter().find(is_said)?;
    let remedy = match (theirs, ours) {
        (&ProtocolId::MULTICAST, _) | (_, &ProtocolId::MULTICAST) => {
            "run the same command at both ends"
        }
        (&ProtocolId::RAW, _) | (_, &ProtocolId::RAW) => "give --op at both ends or at none",
        _ => "run the same command at both ends, with the same --protocol",
    };
    Some(differs("", &asked_by(*theirs), &asked_by(*ours), remedy))
}

/// The connections that `--protocol` names, by their numbers in the handshake.
pub const CONNECTIONS: [(ProtocolId, &str); 6] = [
    (ProtocolId::SEND_RECV, "send-recv"),
    (ProtocolId::BUFFERED_READ, "buffered-read"),
    (ProtocolId::BUFFERED_WRITE, "buffered-write"),
    (ProtocolId::DIRECT_READ, "direct-read"),
    (ProtocolId::DIRECT_WRITE, "direct-write"),
    (ProtocolId::SHARED_WRITE, "shared-write"),
];

/// Returns what asks for a protocol on the command line: a flag, or a command that has it by
/// default. A handshake for another protocol does not tell which.
fn asked_by(protocol: ProtocolId) -> String {
    let flag = |command: &str| {
        let named = CONNECTIONS.iter().find(|(number, _)| *number == protocol);
        let flag = named.map(|(_, name)| format!("--protocol {name}")).unwrap_or_default();
        if command.is_empty() { flag } else { format!("{command} or {flag}") }
    };
    match protocol {
        ProtocolId::RAW => "--op".into(),
        ProtocolId::MULTICAST => "the command multicast".into(),
        ProtocolId::SEND_RECV => flag("the command bench, pingpong"),
        ProtocolId::BUFFERED_READ => flag("the command pipe"),
        ProtocolId::DIRECT_READ => flag("the command copy"),
        _ => flag(""),
    }
}

#[cfg(test)]
mod tests;
