//! `bench --op udp`: datagrams one way, under a window.

use std::net::SocketAddr;
use std::time::Duration;

use anyhow::Result;

use super::plan::{UdpChannel, UdpLed, UdpPlan, has_ended};
use super::socket::{GsoSocket, give_way};
use crate::measure::EndOfLoad;

/// Time without an answer after which all that is under way counts as lost.
const LOST: Duration = Duration::from_millis(100);
/// Silence after which this end looks whether the other one has said that it has sent all.
const QUIET: Duration = Duration::from_millis(1);

/// Sends, under a window of datagrams.
pub(super) fn send(
    plan: &UdpPlan,
    socket: &mut GsoSocket,
    (to, window): (SocketAddr, u32),
    end: EndOfLoad,
    spins: bool,
    control: &mut UdpChannel,
) -> Result<UdpLed> {
    let (length, window) = (plan.datagram(), u64::from(window));
    let contents = vec![0x5a; socket.run(length) * length];
    let (mut sent, mut answered) = (0_u64, 0_u64);
    let limit = match end {
        EndOfLoad::Messages(messages) => messages.saturating_mul(plan.datagrams()),
        EndOfLoad::After(_) => u64::MAX,
    };
    let goes_on = |sent: u64, start| sent < limit && end.goes_on(sent / plan.datagrams(), start, 1);
    let start = host::time::now();
    let mut heard = start;
    loop {
        let is_over = !goes_on(sent, start);
        if is_over && answered >= sent {
            break;
        }
        let run = (window - (sent - answered)).min(limit - sent).min(socket.run(length) as u64);
        // Half of a window is worth a call.
        let is_worth = run > 0 && (run as usize == socket.run(length) || sent == answered);
        if !is_over && is_worth && socket.send(to, &contents[..run as usize * length], length)? {
            sent += run;
        }
        let before = answered;
        socket.receive(|bytes, stride| {
            for count in bytes.chunks(stride).filter_map(|bytes| bytes.first_chunk()) {
                answered = answered.max(u64::from_le_bytes(*count)).min(sent);
            }
        })?;
        if answered > before {
            heard = host::time::now();
        } else if is_over || !is_worth {
            give_way(spins);
            if host::time::since(heard) > LOST {
                // Datagrams that have not arrived by now are lost.
                (answered, heard) = (sent, host::time::now());
                control.end_at_signal()?;
                anyhow::ensure!(control.is_there(), base::frame::GONE);
            }
        }
    }
    Ok(UdpLed { elapsed: host::time::since(start), sent, latencies: None })
}

/// Counts the received datagrams, and reports the count every quarter of a window, and when no more
/// arrive.
pub(super) fn receive(
    plan: &UdpPlan,
    socket: &mut GsoSocket,
    (to, window): (SocketAddr, u32),
    spins: bool,
    control: &mut UdpChannel,
) -> Result<u64> {
    let (mut received, mut said, every) = (0_u64, 0_u64, u64::from((window / 4).max(1)));
    let mut last = host::time::now();
    loop {
        let is_some = socket.receive(|bytes, stride| {
            let is_ours = stride.min(bytes.len()) == plan.datagram();
            received += if is_ours { bytes.len().div_ceil(stride) as u64 } else { 0 };
        })?;
        if received - said >= every || (!is_some && received > said) {
            // An answer that is lost is followed by others.
            socket.send(to, &received.to_le_bytes(), size_of::<u64>())?;
            said = received;
        }
        if is_some {
            last = host::time::now();
            continue;
        }
        give_way(spins);
        if host::time::since(last) > QUIET {
            last = host::time::now();
            if has_ended(control)? {
                return Ok(received);
            }
        }
    }
}
