//! The way to the other end, and what to do when there is none.

use std::io::ErrorKind;
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use anyhow::{Result, anyhow};
use rdma_conn::conn_core::handshake::Reason;
use rdma_conn::device::{self, Device, OpenError};
use rdma_conn::handshake::HandshakeError;
use rdma_conn::send_recv::ConnectError;

use super::address;
use super::card;
use super::refusal::{SessionEnd, read_by};
use crate::cli::{CommonArgs, EndsArgs};
use crate::outcome::{CommandError, printable, usage};

/// Longest time in which a connection is made.
const DIAL_LIMIT: Duration = Duration::from_secs(10);

/// The device that was asked for, fit for the ends that were asked for.
pub fn open_device(common: &CommonArgs, ends: &EndsArgs) -> Result<Device> {
    let name = address::name(common, ends)?;
    let device = match card::open(name.as_deref()) {
        Ok(device) => device,
        Err(OpenError::Unknown { name, .. }) if bad_distance(&name).is_some() => {
            return Err(usage(bad_distance(&name).unwrap_or_default()));
        }
        Err(e @ OpenError::Unknown { .. }) => {
            return Err(usage(format!("{e}: `rdma-conn devices` tells what keeps others away")));
        }
        Err(e) => return Err(e.into()),
    };
    let two_ends = ends.listen.is_some() || ends.connect.is_some();
    if let (true, Some(why)) = (two_ends, device.confined()) {
        return Err(usage(format!(
            "{} connects the ends of one process only here: {why}: leave --listen and --connect \
             out, or name another device (`rdma-conn devices` lists them, and says what to do)",
            device.name()
        )));
    }
    if (common.device.is_none() || name != common.device) && !common.json {
        remark!("device: {}", device.name());
    }
    check_gid(&device, common)?;
    Ok(device)
}

/// Returns the error text for a bad distance in a device's name, if the name begins like that of a
/// device at a distance.
pub fn bad_distance(name: &str) -> Option<String> {
    let given = name.strip_prefix(device::SOFT)?.strip_prefix('@')?;
    if given.starts_with("card=") {
        return None;
    }
    let digits = given.trim_end_matches(|c: char| !c.is_ascii_digit());
    let unit = &given[digits.len()..];
    let per = match unit {
        "ms" => Some(1000),
        "s" => Some(1_000_000),
        "" | "us" => Some(1),
        _ => None,
    };
    let us = digits.parse::<u64>().ok().zip(per).and_then(|(n, per)| n.checked_mul(per));
    let example = us.unwrap_or(5).clamp(1, MOST_DISTANCE_US);
    Some(format!(
        "--device {name}: the distance may be a whole number of us or ns, up to \
         {MOST_DISTANCE_US}us: soft0@{example}us"
    ))
}

/// The longest round trip of a device at a distance, in microseconds.
const MOST_DISTANCE_US: u64 = 10_000_000;

/// A GID index that does not exist is the command line's fault.
fn check_gid(device: &Device, common: &CommonArgs) -> Result<()> {
    match device.context().choose_gid(1, common.gid_index) {
        Err(_) if let Some(index) = common.gid_index => Err(usage(format!(
            "--gid-index {index}: {} has no such GID: `rdma-conn devices` lists those that it has",
            device.name()
        ))),
        _ => Ok(()),
    }
}

/// Returns the failure of a listener that could not be made, with advice.
pub fn cannot_bind(address: SocketAddr, error: ConnectError) -> CommandError {
    let kind = match &error {
        ConnectError::System { error, .. } => error.kind(),
        _ => ErrorKind::Other,
    };
    cannot_listen(address, kind, error.into())
}

/// Returns the failure of an address that cannot be listened on, with advice.
pub fn cannot_listen(address: SocketAddr, kind: ErrorKind, error: CommandError) -> CommandError {
    let advice = match kind {
        ErrorKind::AddrInUse => "another program has the port: end it, or choose another port",
        ErrorKind::AddrNotAvailable => {
            "this machine has no such address: use one of its own, or 0.0.0.0 for all of them"
        }
        ErrorKind::PermissionDenied => "ports below 1024 are root's: choose a higher one",
        _ => return error.context(format!("cannot listen on {address}")),
    };
    anyhow!("cannot listen on {address}: {advice}")
}

/// Reports a refused connection at the listening end.
pub fn refused(from: Option<SocketAddr>, why: &str) {
    let why = printable(&read_by(SessionEnd::Listening, why));
    match from {
        Some(from) => remark!("refused a connection from {from}: {why}"),
        None => remark!("refused a connection: {why}"),
    }
}

/// Dials the listening end.
#[expect(clippy::disallowed_methods, reason = "the set-up waits for it, for at most `DIAL_LIMIT`")]
pub fn dial(address: SocketAddr) -> Result<TcpStream> {
    let stream = TcpStream::connect_timeout(&address, DIAL_LIMIT);
    let stream = stream.map_err(|e| unreachable(address, e))?;
    stream.set_nodelay(true)?;
    Ok(stream)
}

/// Returns the failure of an address that cannot be reached, with advice.
fn unreachable(address: SocketAddr, error: std::io::Error) -> CommandError {
    match error.kind() {
        ErrorKind::ConnectionRefused => {
            anyhow!("nothing listens on {address}: start the other end with --listen first")
        }
        _ => CommandError::from(error)
            .context(format!("cannot reach {address}: check the address and the network")),
    }
}

/// Returns the failure of a connection that the end at `address` did not let us make, with advice.
pub fn explain(error: ConnectError, address: SocketAddr, command: &str) -> CommandError {
    let start = format!("start `rdma-conn {command} --listen` there");
    if let ConnectError::System { error, .. } = error {
        return unreachable(address, error);
    }
    match &error {
        ConnectError::Handshake(HandshakeError::Refused { reason: Reason::PROTOCOL, .. })
            if command == "copy" =>
        {
            anyhow!(
                "{address} refused: another command of rdma-conn listens there: {start}, or name \
                 the port of one"
            )
        }
        ConnectError::Handshake(HandshakeError::Refused { reason: Reason::UNREACHABLE, text }) => {
            anyhow!("{address} refused: {text} (--device)")
        }
        ConnectError::Handshake(found @ HandshakeError::OutOfReach(_)) => {
            anyhow!("cannot connect to {address}: {found} (--device)")
        }
        ConnectError::Handshake(HandshakeError::Refused { text, .. }) => {
            anyhow!("{address} refused: {}", read_by(SessionEnd::Connecting, text))
        }
        ConnectError::Handshake(HandshakeError::TimedOut(time)) => anyhow!(
            "{address} has not answered for {time:?}: is it busy with another session? If it is \
             another program, {start}"
        ),
        ConnectError::Handshake(HandshakeError::Malformed(_)) => {
            anyhow!("another program has {address}: {start}, or name its port")
        }
        ConnectError::Handshake(HandshakeError::Stream(e)) => {
            anyhow!("{address} has hung up ({e}): if it is another program, {start}")
        }
        _ => CommandError::from(error).context(format!("cannot connect to {address}")),
    }
}

/// The text of a set-up that has failed because the devices of the two ends do not reach each
/// other, as this end has found or the other one.
pub fn out_of_reach(error: &CommandError) -> Option<String> {
    match error.downcast_ref::<ConnectError>()? {
        ConnectError::Handshake(
            found @ (HandshakeError::OutOfReach(_)
            | HandshakeError::Refused { reason: Reason::UNREACHABLE, .. }),
        ) => Some(found.to_string()),
        _ => None,
    }
}

#[cfg(test)]
mod tests;
