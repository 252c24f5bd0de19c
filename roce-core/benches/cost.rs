//! Cost of a packet: nanoseconds to write, parse, seal and check, by bytes of payload.
//!
//! ```text
//! cargo bench -p roce-core                  with the instructions that it is compiled for
//! cargo bench -p roce-core --features std   with those that the processor has
//! ```
//!
//! Each figure is the least of several runs: what disturbs a run makes it longer. On an Intel
//! processor with AVX-512, in a virtual machine:
//!
//! | payload | ICRC without `std` | with `std` | an identification that was not expected |
//! |---|---|---|---|
//! | 0 | 19 ns | 25 ns | 47 ns more |
//! | 1 KiB | 209 ns | 45 ns | 48 ns more |
//! | 4 KiB | 785 ns | 75 ns | 47 ns more |
//!
//! The columns `check IPv4` have these identifications, and 0 is expected.

use std::error::Error;
use std::hint::black_box;
use std::time::Instant;

use roce_core::{
    codec,
    headers::{Bth, Headers, Reth},
    icrc::Flow,
    lengths::{ICRC, MAX_HEADERS},
    opcode::Opcode,
    psn::Psn,
};

/// Runs, of which the shortest counts, and calls in each.
const RUNS: usize = 50;
const CALLS: u32 = 2000;

fn main() -> Result<(), Box<dyn Error>> {
    let headers = headers();
    let mut start = [0; MAX_HEADERS];
    let len = codec::write(&headers, &mut start)?;
    println!("write headers: {:.1} ns", ns(|| codec::write(black_box(&headers), &mut start)));
    let v4 = flow("10.0.0.1:4791", "10.0.0.2:4791")?;
    let v6 = flow("[fd00::1]:4791", "[fd00::2]:4791")?;
    println!("payload  parse   seal  check IPv4, id 0  id 1  check IPv6");
    for payload in [0, 64, 256, 1024, 4096] {
        let mut packet = [&start[..len], &vec![0x24; payload], &[0; ICRC]].concat();
        let parse = ns(|| codec::parse(black_box(&packet)).is_ok());
        let seal = ns(|| v4.seal(0, black_box(&mut packet)));
        let check_0 = ns(|| v4.check(0, black_box(&packet)));
        v4.seal(1, &mut packet)?;
        let check_1 = ns(|| v4.check(0, black_box(&packet)));
        v6.seal(0, &mut packet)?;
        let check_6 = ns(|| v6.check(0, black_box(&packet)));
        println!("{payload:7} {parse:6.1} {seal:6.1} {check_0:17.1} {check_1:5.1} {check_6:11.1}");
    }
    Ok(())
}

fn headers() -> Headers {
    let mut headers = Headers::new(Bth::new(Opcode::RcWriteOnly, 17, Psn::new(5)));
    headers.reth = Some(Reth { va: 4096, rkey: 1, len: 4096 });
    headers
}

fn flow(source: &str, dest: &str) -> Result<Flow, Box<dyn Error>> {
    Ok(Flow::new(source.parse()?, dest.parse()?).ok_or("two families")?)
}

/// Nanoseconds of a call.
fn ns<T>(mut call: impl FnMut() -> T) -> f64 {
    let run = |_| {
        let start = Instant::now();
        for _ in 0..CALLS {
            black_box(call());
        }
        start.elapsed().as_nanos() as f64 / f64::from(CALLS)
    };
    (0..RUNS).map(run).fold(f64::INFINITY, f64::min)
}
