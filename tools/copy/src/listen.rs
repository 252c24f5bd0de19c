//! The receiving end: one sender after the other, or several at a time.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result};
use base::cli::CommonArgs;
use base::outcome::{self, CommandResult, printable, usage};
use base::signals::Interrupted;
use base::{progress, remark, say, session, signals};
use host::sync::Mutex;
use rdma_conn::device::Device;
use rdma_conn::direct_read::{Config, Incoming, Listener};
use rdma_conn::send_recv::ConnectError;

use super::ending::{CopyLimits, Hand, Ongoing, Underway};
use super::place::Root;
use super::receive::{self, ReceivedCopy};
use super::report::{CopySummary, NamedFailures, complain, line};
use super::tally::Onlooker;
use crate::cli::CopyArgs;

/// Time that a listener waits before it tries again to accept a connection.
const LITTLE: Duration = Duration::from_millis(100);

pub(super) fn listen(
    common: &CommonArgs,
    options: &CopyArgs,
    device: &Device,
    config: &Config,
    address: SocketAddr,
) -> CommandResult {
    let into = options.into.as_deref().ok_or_else(|| usage("--listen needs --into DIR"))?;
    let root = Root::open(into)?;
    let listener = Listener::bind(address).map_err(|e| session::cannot_bind(address, e))?;
    let (underway, places) = (Underway::default(), CopyLimits::of_process());
    end_at_a_signal(&underway, common, device, options.once)?;
    remark!("listening on {}", listener.local_addr());
    host::thread::scope(|scope| {
        let mut is_told = false;
        loop {
            let incoming = match listener.next() {
                Ok(incoming) => incoming,
                // The connection is still pending: there was no descriptor for it, say.
                Err(e @ ConnectError::System { .. }) => {
                    if !std::mem::replace(&mut is_told, true) {
                        complain(format_args!("cannot accept a connection ({e}): retrying"));
                    }
                    host::time::sleep(LITTLE);
                    continue;
                }
                Err(e) => {
                    session::refused(None, &e.to_string());
                    continue;
                }
            };
            is_told = false;
            let from = incoming.from();
            let incoming = match receive::welcome(incoming) {
                Ok(incoming) => incoming,
                // A refused connection is no copy, and does not count for --once.
                Err(why) => {
                    session::refused(from, &why);
                    continue;
                }
            };
            let hand = match underway.enter(from, places) {
                Ok(hand) => hand,
                Err(why) => {
                    incoming.refuse(&why);
                    session::refused(from, &why);
                    continue;
                }
            };
            if options.once {
                let served = serve(common, options, device, config, &root, (incoming, &hand));
                let Some(served) = served else { continue };
                // A signal that arrives now finds a copy at its end, which the process ends with.
                std::mem::forget(hand);
                return served;
            }
            let root = &root;
            let receives = move |incoming, hand: Hand| {
                let served = serve(common, options, device, config, root, (incoming, &hand));
                if let Some(Err(e)) = served {
                    complain(format_args!("{e:#}"));
                }
            };
            serve_aside((incoming, hand), receives, |work| scope.spawn(work));
        }
    })
}

/// Serves a sender on a thread that `spawn` starts. Where it cannot, the sender is refused.
fn serve_aside<'a, T>(
    (incoming, hand): (Incoming, Hand),
    serve: impl FnOnce(Incoming, Hand) + Send + 'a,
    spawn: impl FnOnce(Box<dyn FnOnce() + Send + 'a>) -> io::Result<T>,
) {
    let from = incoming.from();
    let guest = Arc::new(Mutex::new(Some((incoming, hand))));
    let theirs = Arc::clone(&guest);
    let work = move || {
        let Some((incoming, hand)) = theirs.lock().take() else { return };
        serve(incoming, hand);
    };
    if let Err(e) = spawn(Box::new(work))
        && let Some((incoming, _hand)) = guest.lock().take()
    {
        let why = format!("there is no thread for another copy ({e}): try again later");
        incoming.refuse(&why);
        session::refused(from, &why);
    }
}

/// Has a signal end the process: it reports what has arrived so far, and what is interrupted. That
/// is no failure where no copy is interrupted, unless one copy was `wanted`.
fn end_at_a_signal(
    underway: &Underway,
    common: &CommonArgs,
    device: &Device,
    wanted: bool,
) -> Result<()> {
    let (underway, common, device) = (underway.clone(), common.clone(), device.clone());
    signals::watch(move |signal| {
        let why = Interrupted::from_name(signal);
        underway.interrupt(why, |left| {
            left.iter().for_each(|ongoing| say_part(&common, &device, ongoing, why));
            let which = match left.len() {
                0 => {
                    let status = if wanted { why.exit_status() } else { 0 };
                    outcome::exit(status, format_args!("rdma-conn: {why}: no copy was under way"));
                }
                1 => "a copy: start it again, and its sender resumes".to_owned(),
                n => format!("{n} copies: start it again, and their senders resume"),
            };
            let where_from = "from there with the same command";
            let line = format_args!("rdma-conn: {why} in the middle of {which} {where_from}");
            outcome::exit(why.exit_status(), line);
        })
    })
}

/// Reports what has arrived of an interrupted copy.
fn say_part(common: &CommonArgs, device: &Device, ongoing: &Ongoing, why: Interrupted) {
    let Ongoing { peer, start, tally, .. } = ongoing;
    let counts = CopySummary { tally, how: None };
    let line = line(device, peer.clone(), counts, host::time::since(*start), Some(why.to_string()));
    match serde_json::to_string(&line).ok().filter(|_| common.json) {
        Some(json) => say!("{json}"),
        None => say!("{}", line.says()),
    }
}

/// Serves a sender, unless the set-up finds that the devices of the ends do not reach each other:
/// that is a refused connection, and no copy.
fn serve(
    common: &CommonArgs,
    options: &CopyArgs,
    device: &Device,
    config: &Config,
    root: &Root,
    (incoming, hand): (Incoming, &Hand),
) -> Option<CommandResult> {
    let from = incoming.from();
    let received = receive_copy(common, options, device, config, root, (incoming, hand));
    match received.as_ref().err().and_then(session::out_of_reach) {
        Some(why) => {
            session::refused(from, &why);
            None
        }
        None => Some(received),
    }
}

fn receive_copy(
    common: &CommonArgs,
    options: &CopyArgs,
    device: &Device,
    config: &Config,
    root: &Root,
    (incoming, hand): (Incoming, &Hand),
) -> CommandResult {
    let Ongoing { peer, start, tally, .. } = &*hand.ongoing;
    if !common.json {
        remark!("{peer}: has connected");
    }
    let mut onlooker = Onlooker::new(peer.clone(), tally, None);
    let work = || receive::receive(incoming, device, config, root, options, hand);
    let received = progress::told(common.json, || onlooker.line(), work);
    hand.is_at_end();
    let received = received.with_context(|| format!("the copy from {peer}"))?;
    let written = received.written(tally);
    let ReceivedCopy { not_mapped, failed, differing, finished, error, .. } = received;
    let named = NamedFailures::from_args(common);
    [&failed, &differing].iter().for_each(|noted| noted.complain(&format!("{peer}: "), named));
    let counts = CopySummary { tally, how: Some(finished.unwrap_or(written)) };
    let text = error.as_ref().map(|e| format!("{e:#}"));
    let mut line = line(device, peer.clone(), counts, host::time::since(*start), text);
    line.not_mapped = not_mapped;
    (line.failures, line.differences) = (named.list(failed.each()), named.list(differing.each()));
    if common.json {
        say!("{}", serde_json::to_string(&line)?);
    } else {
        say!("{}", line.says());
        if let Some(why) = &line.not_mapped {
            say!("{peer}: buffers, because: {}", printable(why));
        }
    }
    match (error, line.ok) {
        (Some(e), _) => Err(e.context(format!("the copy from {peer}"))),
        (None, false) => {
            Err(anyhow::anyhow!("the copy from {peer}: something is missing or differs here"))
        }
        (None, true) => Ok(()),
    }
}

#[cfg(test)]
mod tests;
