//! Counts the work requests of a round trip: both ends are in one thread, so that each count is
//! exact. `docs/originals.md` compares them with those of the thesis' code.
//!
//! ```text
//! cargo run --release --example round_trip # all three
//! cargo run --release --example round_trip -- buffered-read 16 10000
//! valgrind --tool=callgrind --toggle-collect='round_trip::one_way' \
//!     target/release/examples/round_trip buffered-read 16 10000
//! ```
//!
//! `one_way` is the path of a message, from the send until the receiver has it. A receiver that
//! looks before that, as one does that waits for an answer, is counted apart. Under callgrind, the
//! calls of the device's functions are the polls and the doorbells of that path.

use rdma_conn::{
    BufferedRead, Connection, DirectRead, Protocol, RecvHalf, SendHalf, SendRecv, buffered_read,
    direct_read, send_recv,
};

type Result<T = ()> = std::result::Result<T, Box<dyn std::error::Error>>;

fn main() -> Result {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    for (protocol, Requests { on_the_path, beside_it }) in run_all(&arguments)? {
        println!(
            "{protocol}: requests of a round trip: {on_the_path} on the path, {beside_it} beside it"
        );
    }
    Ok(())
}

/// [`run`] of the protocol that the arguments name, or of each if there are none.
pub(crate) fn run_all<'a>(arguments: &[&'a str]) -> Result<Vec<(&'a str, Requests)>> {
    match arguments {
        [] => ["send-recv", "direct-read", "buffered-read"]
            .into_iter()
            .map(|protocol| Ok((protocol, run(&[protocol])?)))
            .collect(),
        [protocol, ..] => Ok(vec![(*protocol, run(arguments)?)]),
    }
}

/// Work requests of a round trip, of both ends, on the average.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Requests {
    pub(crate) on_the_path: f64,
    /// Requests of receivers that look before the message is sent: their reposts, credits and
    /// READs.
    pub(crate) beside_it: f64,
}

/// The arguments are a protocol, the bytes of a message (16), and round trips (1,000).
pub(crate) fn run(arguments: &[&str]) -> Result<Requests> {
    let [protocol, numbers @ ..] = arguments else {
        return Err("name a protocol: send-recv, direct-read or buffered-read".into());
    };
    let bytes = numbers.first().map_or(Ok(16), |n| n.parse())?;
    let trips = numbers.get(1).map_or(Ok(1000), |n| n.parse())?;
    match *protocol {
        "send-recv" => {
            // Those of `rdma-conn pingpong`.
            let (message_bytes, recv_depth) = (bytes as u32, 16);
            let config = send_recv::Config {
                message_bytes,
                unacked: 8,
                batch: 1,
                recv_depth,
                ..Default::default()
            };
            count::<SendRecv>(&config, bytes, trips)
        }
        "direct-read" => count::<DirectRead>(&direct_read::Config::default(), bytes, trips),
        "buffered-read" => count::<BufferedRead>(&buffered_read::Config::default(), bytes, trips),
        other => Err(format!("{other}: it is send-recv, direct-read or buffered-read").into()),
    }
}

/// A half that counts its work requests.
trait Counted {
    fn requests(&self) -> u64;
}

macro_rules! counted {
    ($($half:ty),*) => {
        $(impl Counted for $half {
            fn requests(&self) -> u64 {
                self.stats().work_requests
            }
        })*
    };
}

counted!(send_recv::Sender, direct_read::Sender, buffered_read::Sender);
counted!(send_recv::Receiver, direct_read::Receiver, buffered_read::Receiver);

fn count<P>(config: &P::Config, bytes: usize, trips: u32) -> Result<Requests>
where
    P: Protocol<Sender: Counted, Receiver: Counted>,
{
    let device = rdma_conn::device::soft()?;
    let (mut a, mut b) = rdma_conn::pair::<P>(&device, &device, config)?;
    let message = vec![7; bytes];
    let (mut on_the_path, mut beside_it) = (0, 0);
    for _ in 0..trips {
        let there = trip(&mut a, &mut b, &message)?;
        let back = trip(&mut b, &mut a, &message)?;
        on_the_path += there.0 + back.0;
        beside_it += there.1 + back.1;
    }
    let each = |requests: u64| requests as f64 / f64::from(trips);
    Ok(Requests { on_the_path: each(on_the_path), beside_it: each(beside_it) })
}

/// One message goes from `from` to `to`: requests on the path, and beside it.
fn trip<P>(from: &mut Connection<P>, to: &mut Connection<P>, message: &[u8]) -> Result<(u64, u64)>
where
    P: Protocol<Sender: Counted, Receiver: Counted>,
{
    let requests =
        |from: &Connection<P>, to: &Connection<P>| from.sender.requests() + to.receiver.requests();
    let before = requests(from, to);
    if to.receiver.try_recv().is_ok() {
        return Err("a message that was not sent".into());
    }
    let waited = requests(from, to);
    one_way(&mut from.sender, &mut to.receiver, message)?;
    Ok((requests(from, to) - waited, waited - before))
}

/// The path of a message. Not inlined: callgrind finds it by its name.
#[inline(never)]
fn one_way<S: SendHalf, R: RecvHalf>(sender: &mut S, receiver: &mut R, message: &[u8]) -> Result {
    sender.send(message)?;
    let arrived = receiver.recv()?;
    if arrived.len() != message.len() {
        return Err("a message of another length".into());
    }
    receiver.free(arrived);
    Ok(())
}
