//! `pingpong --compat ibv_rc_pingpong`: either end of rdma-core's program.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use base::outcome::{CommandResult, as_usage, usage};
use rdma_conn::conn_core::rc_pingpong::{DONE, DecodeError, Destination, MESSAGE_LEN};
use rdma_conn::handshake::{READY_LIMIT, TIME_LIMIT};
use rdma_conn::raw::RawEnd;
use rdma_conn::verbs_safe::Endpoint;

use super::control::RawChannel;
use super::end::{self, Local};
use super::follow;
use super::lead::{self};
use super::led::TripCounts;
use super::measure::delivered_line;
use super::plan::{RawPlan, RawTask};
use super::rendezvous::{ClientListener, Language};
use super::report::{report, with_times};
use crate::cli::{CommonArgs, PingpongArgs, RawOp, WaitFlag};
use crate::measure::ResultLine;
use crate::session;

const PROGRAM: &str = "ibv_rc_pingpong";
/// The program's own settings, where nothing else is asked for.
const SIZE: u32 = 4096;
const ITERATIONS: u64 = 1000;
const RECV_DEPTH: u32 = 500;

pub(crate) fn ibv_rc_pingpong(common: &CommonArgs, options: &PingpongArgs) -> CommandResult {
    let (listen, connect) = (options.ends.listen, options.ends.connect);
    if listen.is_none() && connect.is_none() {
        return Err(usage(
            "--compat is about another program at the other end: add --listen ADDR or --connect ADDR",
        ));
    }
    let plan = plan(options)?;
    let device = session::open_device(common, &options.ends)?;
    let local = Local {
        device: &device,
        gid_index: common.gid_index,
        spin: options.connection.wait == WaitFlag::Spin,
        polling_threads: false,
    };
    let trips = options.iterations.unwrap_or(ITERATIONS);
    let line = match (connect, listen) {
        (Some(address), _) => lead(local, &plan, options.mtu, trips, address)?,
        (None, Some(address)) => listen_at(local, &plan, options.mtu, trips, address)?,
        (None, None) => return Ok(()),
    };
    let task = if connect.is_some() { RawTask::Pingpong } else { RawTask::Bench };
    let mut report = report(common.json, task, &options.ends);
    report.add(&line)?;
    report.finish();
    Ok(())
}

/// One message in flight, as the program has it. Its payloads are unknown, and not checked.
fn plan(options: &PingpongArgs) -> Result<RawPlan> {
    let size = match options.size[..] {
        [] => SIZE,
        [size] => size,
        _ => return Err(usage("--compat takes one --size")),
    };
    if options.no_verify {
        return Err(usage("--compat checks no payloads: leave --no-verify out"));
    }
    let new = RawPlan::new(
        RawTask::Pingpong,
        RawOp::Send,
        &options.raw,
        &options.connection,
        size,
        false,
    );
    let recv_depth = options.connection.given.recv_depth.unwrap_or(RECV_DEPTH);
    let plan = RawPlan { recv_depth, verify: false, ..new };
    plan.check().map_err(as_usage)?;
    Ok(plan)
}

/// The client: it sends first.
fn lead(
    local: Local<'_>,
    plan: &RawPlan,
    mtu_bytes: u32,
    trips: u64,
    address: SocketAddr,
) -> Result<ResultLine> {
    let mut stream = session::dial(address)?;
    let mut end = end::join(local, plan, |end| {
        let told = exchange_as_client(&mut stream, &destination(end)).with_context(|| {
            format!("another program has {address}: start {PROGRAM} there, or name its port")
        })?;
        let peer = endpoint(&told)?;
        end.join(&peer, mtu_bytes)?;
        // The server has connected its queue pair before it answered.
        stream.write_all(&DONE).context("the other end has gone")?;
        Ok(peer)
    })?;
    drop(stream);
    let trips = TripCounts { warm_up: 0, measured: trips };
    let (mut wire, _open) = RawChannel::silent()?;
    let latencies = lead::lead(plan, &mut end, &mut wire, trips, local)?;
    let messages = 2 * trips.measured;
    let line = delivered_line(local, plan, &end, messages, latencies.elapsed);
    Ok(compat(with_times(line, plan.op, latencies.classes.first())))
}

/// The server: the first client that speaks as the program does is served.
fn listen_at(
    local: Local<'_>,
    plan: &RawPlan,
    mtu_bytes: u32,
    trips: u64,
    address: SocketAddr,
) -> Result<ResultLine> {
    let mut rendezvous = ClientListener::listen(address, Language::RcPingpong)?;
    loop {
        let (mut stream, from) = rendezvous.next()?;
        match read_destination(&mut stream, READY_LIMIT) {
            Ok(peer) => return serve(local, plan, mtu_bytes, trips, stream, &peer),
            Err(e) => session::refused(Some(from), &format!("{e:#}")),
        }
    }
}

fn serve(
    local: Local<'_>,
    plan: &RawPlan,
    mtu_bytes: u32,
    trips: u64,
    mut stream: TcpStream,
    peer: &Destination,
) -> Result<ResultLine> {
    let mut end = end::join(local, plan, |end| {
        let peer = endpoint(peer)?;
        end.join(&peer, mtu_bytes)?;
        answer_as_server(&mut stream, &destination(end))?;
        Ok(peer)
    })?;
    drop(stream);
    let (mut wire, _open) = RawChannel::silent()?;
    let start = host::time::now();
    let came = follow::follow(plan, &mut end, &mut wire, Some(trips), local)?;
    Ok(compat(delivered_line(local, plan, &end, 2 * came, host::time::since(start))))
}

fn compat(line: ResultLine) -> ResultLine {
    line.with("compat", PROGRAM)
}

fn destination(end: &RawEnd) -> Destination {
    let Endpoint { qp_num, psn, lid, gid } = end.endpoint();
    Destination { lid, qp_num, psn, gid }
}

/// Returns the address that the peer has told, or an error if that has neither a GID nor a LID: its
/// program was started without a GID index.
fn endpoint(peer: &Destination) -> Result<Endpoint> {
    ensure!(
        peer.gid != [0; 16] || peer.lid != 0,
        "the other end has told no GID: start it with its option -g INDEX"
    );
    let Destination { lid, qp_num, psn, gid } = *peer;
    Ok(Endpoint { qp_num, psn, lid, gid })
}

/// Tells ours and gets the server's. The program reads a message with one `read`, so it
/// is written with one `write`.
fn exchange_as_client(stream: &mut TcpStream, ours: &Destination) -> Result<Destination> {
    stream.write_all(&ours.encode()?).context("the other end has gone")?;
    read_destination(stream, TIME_LIMIT)
}

/// Tells ours, and waits until the client is ready.
fn answer_as_server(stream: &mut TcpStream, ours: &Destination) -> Result<()> {
    stream.write_all(&ours.encode()?).context("the other end has gone")?;
    stream.set_read_timeout(Some(TIME_LIMIT))?;
    let mut done = [0; DONE.len()];
    stream.read_exact(&mut done).context("the other end did not finish its set-up")?;
    ensure!(done == DONE, "the other end is no ibv_rc_pingpong: it does not say that it is done");
    Ok(())
}

/// Reads a destination; junk is refused as soon as it shows.
fn read_destination(stream: &mut TcpStream, limit: Duration) -> Result<Destination> {
    let end = host::time::now() + limit;
    let (mut message, mut have) = ([0; MESSAGE_LEN], 0);
    loop {
        match Destination::decode(&message[..have]) {
            Err(DecodeError::Incomplete) => {}
            decoded => return Ok(decoded?),
        }
        let left = end.saturating_duration_since(host::time::now());
        ensure!(!left.is_zero(), "the other end said nothing for {} s", limit.as_secs());
        stream.set_read_timeout(Some(left))?;
        let read = stream.read(&mut message[have..]);
        have += match read {
            Ok(0) => anyhow::bail!("the other end has gone"),
            Ok(count) => count,
            Err(e) if matches!(e.kind(), std::io::ErrorKind::Interrupted) => 0,
            Err(e) => return Err(e).context("the other end said nothing"),
        };
    }
}

#[cfg(test)]
mod tests;
