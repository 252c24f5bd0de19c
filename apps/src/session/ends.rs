//! The way to the other end, and what to do when there is none.

use std::io::ErrorKind;
use std::net::{SocketAddr, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use anyhow::{Context, Result, anyhow};
use host::sync::SetOnDrop;
use rdma_conn::conn_core::handshake::Reason;
use rdma_conn::device::{self, Device, OpenError};
use rdma_conn::handshake::HandshakeError;
use rdma_conn::listener::{Incoming, Listener};
use rdma_conn::send_recv::ConnectError;

use super::address;
use super::card;
use super::parameters::Session;
use super::refusal::{End, read_by};
use crate::cli::{Common, Ends};
use crate::outcome::{Failure, printable, usage};
use crate::protocol::Kind;
use crate::session::{Channel, GLANCE as GLANCE_AT_SIGNALS};
use crate::signals;

/// Longest time in which a connection is made.
const DIAL_LIMIT: Duration = Duration::from_secs(10);
/// Until it is tried again to accept a connection, where there was nothing left to accept
/// it with.
const RECOVERY: Duration = Duration::from_millis(200);
/// Number of these tries.
const RECOVERIES: u32 = 50;

/// The device that was asked for, fit for the ends that were asked for.
pub(crate) fn open_device(common: &Common, ends: &Ends) -> Result<Device> {
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
pub(crate) fn bad_distance(name: &str) -> Option<String> {
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
fn check_gid(device: &Device, common: &Common) -> Result<()> {
    match device.context().choose_gid(1, common.gid_index) {
        Err(_) if let Some(index) = common.gid_index => Err(usage(format!(
            "--gid-index {index}: {} has no such GID: `rdma-conn devices` lists those that it has",
            device.name()
        ))),
        _ => Ok(()),
    }
}

/// Listens, and says where.
pub(crate) fn listen<K: Kind>(address: SocketAddr) -> Result<Listener<K>> {
    let listener = Listener::bind(address).map_err(|e| cannot_bind(address, e))?;
    remark!("listening on {}", listener.local_addr());
    Ok(listener)
}

/// Returns the failure of a listener that could not be made, with advice.
pub(crate) fn cannot_bind(address: SocketAddr, error: ConnectError) -> Failure {
    let kind = match &error {
        ConnectError::System { error, .. } => error.kind(),
        _ => ErrorKind::Other,
    };
    cannot_listen(address, kind, error.into())
}

/// Returns the failure of an address that cannot be listened on, with advice.
pub(crate) fn cannot_listen(address: SocketAddr, kind: ErrorKind, error: Failure) -> Failure {
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

/// A pending connection that asks for this command.
pub(crate) struct Pending<K: Kind> {
    pub(crate) incoming: Incoming<K>,
    pub(crate) session: Session,
    /// The stream that it arrived on, for control messages.
    pub(crate) wire: Channel,
}

impl<K: Kind> Pending<K> {
    /// Refuses it, with the reason; it does not count.
    pub(crate) fn refuse(self, why: &str) {
        refused(self.incoming.from(), why);
        self.incoming.refuse(why);
    }

    /// The peer's address.
    pub(crate) fn from(&self) -> Option<SocketAddr> {
        self.incoming.from()
    }
}

/// Reports a refused connection at the listening end.
pub(crate) fn refused(from: Option<SocketAddr>, why: &str) {
    let why = printable(&read_by(End::Listening, why));
    match from {
        Some(from) => remark!("refused a connection from {from}: {why}"),
        None => remark!("refused a connection: {why}"),
    }
}

/// The next peer that speaks our language and runs the same command, if one connects within
/// `time`; others are refused with the reason, and do not count.
///
/// # Errors
/// The operating system has failed to accept connections for long; or a signal has arrived.
pub(crate) fn next_peer<K: Kind>(
    listener: &Listener<K>,
    command: &str,
    time: Duration,
) -> Result<Option<Pending<K>>> {
    let (mut failures, start) = (0, host::time::now());
    loop {
        if let Some(interrupted) = signals::interrupted() {
            return Err(interrupted.into());
        }
        match listener
            .next_timeout(time.saturating_sub(host::time::since(start)).min(GLANCE_AT_SIGNALS))
        {
            Ok(None) if host::time::since(start) < time => continue,
            Ok(None) => return Ok(None),
            Ok(Some(incoming)) => match known::<K>(&incoming, command) {
                Ok((session, wire)) => return Ok(Some(Pending { incoming, session, wire })),
                Err(e) => {
                    refused(incoming.from(), &format!("{e:#}"));
                    incoming.refuse(&format!("{e:#}"));
                }
            },
            Err(e @ ConnectError::System { .. }) if failures == RECOVERIES => {
                return Err(e).context("cannot accept a connection: too many open files?");
            }
            Err(e @ ConnectError::System { .. }) => {
                tracing::warn!(error = %e, "tries again to accept");
                failures += 1;
                host::time::sleep(RECOVERY);
                continue;
            }
            Err(e) => refused(None, &e.to_string()),
        }
        failures = 0;
        // However many connections are refused meanwhile.
        if host::time::since(start) >= time {
            return Ok(None);
        }
    }
}

/// Time within which the thread that refuses connections sees that the work is done.
const GLANCE: Duration = Duration::from_millis(20);

/// Does `work`, and refuses the connections that arrive meanwhile, with the reason: none would be
/// admitted before the work ends, and none should have to wait to learn that.
pub(crate) fn engaged<K: Kind, T>(
    listener: &Listener<K>,
    command: &str,
    why: &str,
    work: impl FnOnce() -> T,
) -> T {
    let is_over = AtomicBool::new(false);
    host::thread::scope(|scope| {
        let refuse = || {
            while !is_over.load(Ordering::Relaxed) {
                match next_peer::<K>(listener, command, GLANCE) {
                    Ok(pending) => pending.into_iter().for_each(|pending| pending.refuse(why)),
                    Err(e) if e.is::<signals::Interrupted>() => return,
                    Err(e) => return tracing::warn!(error = %e, "no more connections are answered"),
                }
            }
        };
        if let Err(e) = scope.spawn(refuse) {
            tracing::warn!(error = %e, "no thread refuses the connections that arrive meanwhile");
        }
        // Also when the work panics: the thread would be waited for.
        let _over = SetOnDrop(&is_over);
        work()
    })
}

/// Returns the session that a connection asks for, and the channel on its stream.
fn known<K: Kind>(incoming: &Incoming<K>, command: &str) -> Result<(Session, Channel)> {
    let session = Session::decode::<K>(incoming.application(), command)?;
    let stream = incoming.stream().try_clone().context("no descriptor is left")?;
    Ok((session, Channel::new(stream)?))
}

/// Dials the listening end.
pub(crate) fn dial(address: SocketAddr) -> Result<TcpStream> {
    let stream = TcpStream::connect_timeout(&address, DIAL_LIMIT);
    let stream = stream.map_err(|e| unreachable(address, e))?;
    stream.set_nodelay(true)?;
    Ok(stream)
}

/// Returns the failure of an address that cannot be reached, with advice.
fn unreachable(address: SocketAddr, error: std::io::Error) -> Failure {
    match error.kind() {
        ErrorKind::ConnectionRefused => {
            anyhow!("nothing listens on {address}: start the other end with --listen first")
        }
        _ => Failure::from(error)
            .context(format!("cannot reach {address}: check the address and the network")),
    }
}

/// Returns the failure of a connection that the end at `address` did not let us make, with advice.
pub(crate) fn explain(error: ConnectError, address: SocketAddr, command: &str) -> Failure {
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
            anyhow!("{address} refused: {}", read_by(End::Connecting, text))
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
        _ => Failure::from(error).context(format!("cannot connect to {address}")),
    }
}

/// The text of a set-up that has failed because the devices of the two ends do not reach each
/// other, as this end has found or the other one.
pub(crate) fn out_of_reach(error: &Failure) -> Option<String> {
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
