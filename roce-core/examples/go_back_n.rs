//! Throughput of go-back-N over a network that loses packets: both state machines of a connection
//! run in simulated time, over a line with a given time per packet and a given round trip.
//!
//! ```sh
//! cargo run --release -p roce-core --features oracle --example go_back_n -- 1100 40000
//! ```
//!
//! prints the rate of messages of 64 KiB at a path MTU of 4096 bytes, for some losses. It is what a
//! device that drives these machines can have at most. A third number is the time in which the
//! sender makes a packet, if it is faster than the line (or the receiver): packets then wait in a
//! queue.
#![cfg_attr(not(test), deny(clippy::disallowed_methods, clippy::disallowed_types))]

use roce_core::oracle::line::{LineParams, LineSimulation, MESSAGE};

/// Simulated time for each loss rate.
const SECOND_NS: u64 = 1_000_000_000;
/// Packets lost of a million.
const LOSSES_PPM: [u32; 5] = [0, 1_000, 10_000, 20_000, 50_000];

fn main() {
    let arguments: Result<Vec<u64>, _> =
        std::env::args().skip(1).map(|text| text.parse()).collect();
    let (line, send_ns) = match arguments.as_deref() {
        Ok(&[packet_ns, round_trip_ns]) => {
            (LineParams::new(packet_ns.max(1), round_trip_ns), packet_ns)
        }
        Ok(&[packet_ns, round_trip_ns, send_ns]) => {
            (LineParams::new(packet_ns.max(1), round_trip_ns), send_ns)
        }
        _ => {
            eprintln!("two or three numbers: nanoseconds of a packet, of a round trip, of sending");
            std::process::exit(2);
        }
    };
    println!("{:>6}  {:>8}  {:>8}", "loss", "GB/s", "of all");
    let mut whole = None;
    for loss_ppm in LOSSES_PPM {
        let line = LineParams { loss_ppm, send_ns: send_ns.max(1), ..line };
        let messages = LineSimulation::new(line, 0).run(SECOND_NS).messages[0];
        let whole = *whole.get_or_insert(messages.max(1));
        let rate = messages as f64 * f64::from(MESSAGE) / 1e9;
        let loss = f64::from(loss_ppm) / 1e6;
        println!("{loss:>6}  {rate:>8.2}  {:>8.2}", messages as f64 / whole as f64);
    }
}
