//! `pingpong --op udp`: a datagram, and its answer.

use std::net::SocketAddr;
use std::time::Duration;

use anyhow::{Result, ensure};
use hdrhistogram::Histogram;

use super::plan::{UdpChannel, UdpLed, UdpPlan, has_ended};
use super::socket::{GsoSocket, came, give_way};

/// Time without an answer after which a datagram counts as lost.
const LOST: Duration = Duration::from_millis(100);
/// Silence after which this end looks whether the other one has said that it has sent all.
const QUIET: Duration = Duration::from_millis(1);
/// Round trips before the measured ones: a tenth of them, and at most this number.
const WARM_UP: u64 = 1_000;
/// The longest time that is told apart, in nanoseconds.
const LONGEST_NS: u64 = 60_000_000_000;

/// Sends first, and measures.
#[expect(clippy::disallowed_methods, reason = "the socket does not block")]
pub(super) fn lead(
    plan: &UdpPlan,
    socket: &GsoSocket,
    to: SocketAddr,
    trips: u64,
    spins: bool,
    control: &mut UdpChannel,
) -> Result<UdpLed> {
    let udp = socket.plain();
    udp.connect(to)?;
    let (mut out, mut back) = (vec![0x5a; plan.datagram()], vec![0; 1 << 16]);
    let mut latencies = Histogram::new_with_bounds(1, LONGEST_NS, 3)?;
    let warm_up = WARM_UP.min(trips / 10);
    let (mut begun, mut sent) = (host::time::now(), 0);
    for trip in 0..warm_up + trips {
        if trip == warm_up {
            (begun, sent) = (host::time::now(), 0);
        }
        if trip % 64 == 0 && base::signals::is_interrupted() {
            break;
        }
        out[..8].copy_from_slice(&trip.to_le_bytes());
        let start = host::time::now();
        udp.send(&out)?;
        sent += 1;
        loop {
            if came(udp.recv(&mut back).map(drop))? {
                if back[..8] == out[..8] {
                    if trip >= warm_up {
                        latencies
                            .saturating_record((host::time::since(start) / 2).as_nanos() as u64);
                    }
                    break;
                }
                continue;
            }
            give_way(spins);
            if host::time::since(start) > LOST {
                control.end_at_signal()?;
                ensure!(control.is_there(), base::frame::GONE);
                break;
            }
        }
    }
    Ok(UdpLed { elapsed: host::time::since(begun), sent, latencies: Some(latencies) })
}

/// Answers, until the other end has done.
#[expect(clippy::disallowed_methods, reason = "the socket does not block")]
pub(super) fn follow(
    plan: &UdpPlan,
    socket: &GsoSocket,
    to: SocketAddr,
    spins: bool,
    control: &mut UdpChannel,
) -> Result<u64> {
    let udp = socket.plain();
    udp.connect(to)?;
    let (mut back, mut answered) = (vec![0; 1 << 16], 0);
    let mut last = host::time::now();
    loop {
        let mut length = 0;
        if came(udp.recv(&mut back).map(|came| length = came))? {
            if length == plan.datagram() {
                // One that is lost is the other end's to notice.
                let _ = came(udp.send(&back[..length]).map(drop))?;
                answered += 1;
            }
            last = host::time::now();
            continue;
        }
        give_way(spins);
        if host::time::since(last) > QUIET {
            last = host::time::now();
            if has_ended(control)? {
                return Ok(answered);
            }
        }
    }
}
