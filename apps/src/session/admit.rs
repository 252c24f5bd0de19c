//! Peers of a listening end: which are admitted, and what becomes of the others.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use anyhow::{Context, Result};
use base::session::{GLANCE as GLANCE_AT_SIGNALS, cannot_bind, refused};
use base::{remark, signals};
use host::sync::SetOnDrop;
use rdma_conn::listener::{Incoming, Listener};
use rdma_conn::send_recv::ConnectError;

use super::control::SessionChannel;
use super::parameters::SessionParameters;
use crate::protocol::MeasuredProtocol;

/// Until it is tried again to accept a connection, where there was nothing left to accept
/// it with.
const RECOVERY: Duration = Duration::from_millis(200);
/// Number of these tries.
const RECOVERIES: u32 = 50;

/// Listens, and says where.
pub(crate) fn listen<K: MeasuredProtocol>(address: SocketAddr) -> Result<Listener<K>> {
    let listener = Listener::bind(address).map_err(|e| cannot_bind(address, e))?;
    remark!("listening on {}", listener.local_addr());
    Ok(listener)
}

/// A pending connection that asks for this command.
pub(crate) struct PendingSession<K: MeasuredProtocol> {
    pub(crate) incoming: Incoming<K>,
    pub(crate) session: SessionParameters,
    /// The stream that it arrived on, for control messages.
    pub(crate) wire: SessionChannel,
}

impl<K: MeasuredProtocol> PendingSession<K> {
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

/// The next peer that speaks our language and runs the same command, if one connects within
/// `time`; others are refused with the reason, and do not count.
///
/// # Errors
/// The operating system has failed to accept connections for long; or a signal has arrived.
pub(crate) fn next_peer<K: MeasuredProtocol>(
    listener: &Listener<K>,
    command: &str,
    time: Duration,
) -> Result<Option<PendingSession<K>>> {
    let (mut failures, start) = (0, host::time::now());
    loop {
        signals::go_on()?;
        match listener
            .next_timeout(time.saturating_sub(host::time::since(start)).min(GLANCE_AT_SIGNALS))
        {
            Ok(None) if host::time::since(start) < time => continue,
            Ok(None) => return Ok(None),
            Ok(Some(incoming)) => match known::<K>(&incoming, command) {
                Ok((session, wire)) => return Ok(Some(PendingSession { incoming, session, wire })),
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

/// The next peer that `judge` and `accept` let in, with what `accept` makes of it, if one connects
/// within `time`; others are refused with the reason, and do not count.
///
/// # Errors
/// As of [`next_peer`].
pub(crate) fn admitted<K: MeasuredProtocol, T>(
    listener: &Listener<K>,
    command: &str,
    time: Duration,
    judge: impl Fn(&SessionParameters) -> Result<(), String>,
    accept: impl Fn(Incoming<K>, &SessionParameters) -> Result<T>,
) -> Result<Option<(T, SessionParameters, SessionChannel)>> {
    let start = host::time::now();
    let left = || time.saturating_sub(host::time::since(start));
    while let Some(pending) = next_peer::<K>(listener, command, left())? {
        if let Err(why) = judge(&pending.session) {
            pending.refuse(&why);
            continue;
        }
        let PendingSession { incoming, session, wire } = pending;
        let from = incoming.from();
        match accept(incoming, &session) {
            Ok(made) => return Ok(Some((made, session, wire))),
            Err(e) => refused(from, &format!("{e:#}")),
        }
    }
    Ok(None)
}

/// Time within which the thread that refuses connections sees that the work is done.
const GLANCE: Duration = Duration::from_millis(20);

/// Does `work`, and refuses the connections that arrive meanwhile, with the reason: none would be
/// admitted before the work ends, and none should have to wait to learn that.
pub(crate) fn engaged<K: MeasuredProtocol, T>(
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
fn known<K: MeasuredProtocol>(
    incoming: &Incoming<K>,
    command: &str,
) -> Result<(SessionParameters, SessionChannel)> {
    let session = SessionParameters::decode::<K>(incoming.application(), command)?;
    let stream = incoming.stream().try_clone().context("no descriptor is left")?;
    Ok((session, SessionChannel::new(stream)?))
}

#[cfg(test)]
mod tests;
