//! What go-back-N makes of a network that loses packets: both machines of a connection, in a time of
//! their own, over a line that sends a packet in so many nanoseconds and has so long a round trip.
//!
//! ```sh
//! cargo run --release -p roce-core --example go_back_n -- 1100 40000
//! ```
//!
//! prints the rate of messages of 64 KiB at a path MTU of 4096 bytes, for some losses. It is what a
//! device that drives these machines can have at most.

use std::collections::VecDeque;

use roce_core::headers::{DEFAULT_PKEY, Headers, RnrTimer};
use roce_core::psn::Psn;
use roce_core::request::{Kind, Request};
use roce_core::requester::{self, Requester, SendSlot};
use roce_core::responder::{
    self, Access, AccessError, AtomicOp, ReceiveDone, ReceiveFault, Refusal, Responder,
    ResponseSlot, Target,
};

const MTU: u32 = 4_096;
const MESSAGE: u32 = 64 << 10;
/// Requests of the send queue, and packets of the largest window.
const QUEUE: usize = 128;
const WINDOW: u32 = 816;
/// What is simulated of each loss.
const SECOND_NS: u64 = 1_000_000_000;
const LOSSES: [f64; 5] = [0.0, 0.001, 0.01, 0.02, 0.05];

/// Memory that takes everything.
struct Sink;

impl Target for Sink {
    fn take_receive(&mut self) -> Option<u32> {
        Some(MESSAGE)
    }

    fn place(&mut self, _: u32, _: &[u8]) -> Result<(), AccessError> {
        Ok(())
    }

    fn complete_receive(&mut self, _: ReceiveDone) {}

    fn fail_receive(&mut self, _: ReceiveFault) {}

    fn check(&mut self, _: Access, _: u32, _: u64, _: u32) -> Result<(), AccessError> {
        Ok(())
    }

    fn write(&mut self, _: u32, _: u64, _: &[u8]) -> Result<(), AccessError> {
        Ok(())
    }

    fn read(&mut self, _: u32, _: u64, _: u32) -> Result<(), AccessError> {
        Ok(())
    }

    fn atomic(&mut self, _: u32, _: u64, _: AtomicOp) -> Result<u64, AccessError> {
        Ok(0)
    }

    fn atomic_write(&mut self, _: u32, _: u64, _: [u8; 8]) -> Result<(), AccessError> {
        Err(Refusal::Operation.into())
    }

    fn invalidate(&mut self, _: u32) -> Result<(), Refusal> {
        Ok(())
    }
}

/// Numbers that are drawn from a seed (xorshift64*).
struct Random(u64);

impl Random {
    fn strikes(&mut self, probability: f64) -> bool {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        let drawn = self.0.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 11;
        (drawn as f64) < probability * (1_u64 << 53) as f64
    }
}

/// Packets on their way, in the order in which they come: when, what, and bytes of payload.
type Line = VecDeque<(u64, Headers, u32)>;

/// Messages that are complete in a second.
fn messages(packet_ns: u64, round_trip_ns: u64, loss: f64) -> u64 {
    let first_psn = Psn::new(7);
    let mut requester = Requester::new(
        vec![SendSlot::new(); QUEUE],
        requester::Config {
            mtu: MTU,
            dest_qpn: 1,
            pkey: DEFAULT_PKEY,
            first_psn,
            timeout: 14,
            retry_cnt: 7,
            rnr_retry: 7,
            max_rd_atomic: 1,
            max_window: WINDOW,
            read_packets: WINDOW,
        },
    )
    .expect("a configuration of its own");
    let timer = RnrTimer::new(1).expect("10 µs");
    let config = responder::Config {
        mtu: MTU,
        dest_qpn: 1,
        pkey: DEFAULT_PKEY,
        first_psn,
        min_rnr_timer: timer,
    };
    let mut responder =
        Responder::new(vec![ResponseSlot::new(); 1], config).expect("a configuration of its own");
    let (mut there, mut back) = (Line::new(), Line::new());
    let mut random = Random(0x9e37_79b9_7f4a_7c15);
    let payload = vec![0; MTU as usize];
    let (mut now, mut free_at, mut done) = (0, 0, 0);
    while now < SECOND_NS {
        while let Some((_, headers, length)) = there.pop_front_if(|(at, ..)| *at <= now) {
            responder.on_request(&headers, &payload[..length as usize], &mut Sink);
            while let Some(response) = responder.next_response(&mut Sink) {
                back.push_back((now + round_trip_ns / 2, response.headers, response.length));
            }
        }
        while let Some((_, headers, length)) = back.pop_front_if(|(at, ..)| *at <= now) {
            requester.on_response(&headers, length, now);
        }
        while requester.next_completion().is_some() {
            done += 1;
        }
        if requester.deadline_ns().is_some_and(|at| at <= now) {
            requester.on_timer(now);
        }
        // What has come, or is due, may let packets go.
        while requester.post(Request::new(Kind::Send, MESSAGE, 0, 0)).is_ok() {}
        while free_at <= now
            && let Some(packet) = requester.next_packet(now)
        {
            free_at = now + packet_ns;
            if !random.strikes(loss) {
                there.push_back((free_at + round_trip_ns / 2, packet.headers, packet.length));
            }
        }
        let next = [
            there.front().map(|(at, ..)| *at),
            back.front().map(|(at, ..)| *at),
            requester.deadline_ns(),
            Some(free_at),
        ];
        now = next.into_iter().flatten().filter(|at| *at > now).min().unwrap_or(now + packet_ns);
    }
    done
}

fn main() {
    let mut arguments = std::env::args().skip(1).map(|text| text.parse::<u64>());
    let (Some(Ok(packet_ns)), Some(Ok(round_trip_ns)), None) =
        (arguments.next(), arguments.next(), arguments.next())
    else {
        eprintln!("two numbers: nanoseconds of a packet, and of a round trip");
        std::process::exit(2);
    };
    let whole = messages(packet_ns.max(1), round_trip_ns, 0.0);
    println!("{:>6}  {:>8}  {:>8}", "loss", "GB/s", "of all");
    for loss in LOSSES {
        let messages = messages(packet_ns.max(1), round_trip_ns, loss);
        let rate = messages as f64 * f64::from(MESSAGE) / 1e9;
        println!("{loss:>6}  {rate:>8.2}  {:>8.2}", messages as f64 / whole.max(1) as f64);
    }
}
