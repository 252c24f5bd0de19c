//! Requests and replies, between two processes, over any connection that carries messages.
//!
//! The server takes any number of clients, each on a thread of its own. A request has a
//! number, and the first and the last of the numbers whose product is asked for. A client
//! keeps several requests under way, and knows by the number which one a reply is to.
//!
//! ```text
//! cargo run --example request_reply                             # both ends in one process
//! cargo run --example request_reply -- listen 127.0.0.1:4720    # in one terminal
//! cargo run --example request_reply -- connect 127.0.0.1:4720   # in another
//! RDMA_CONN_DEVICE=mlx5_0 cargo run --release --example request_reply -- listen 10.0.0.1:4720
//!
//! --protocol NAME  of both ends [send-recv]: send-recv, buffered-read, buffered-write, direct-read,
//!                  direct-write or shared-write
//! --requests N     requests of a client [10000]
//! --pipeline N     how many of them are under way at the same time [16]
//! --timeout SECONDS   how long the other end may take [10]
//! ```
//!
//! A client that keeps more requests under way than the windows of both directions hold
//! (`--requests 1000000 --pipeline 1000000`) takes no replies meanwhile: the server waits for
//! room for a reply and takes no requests, and the client's send times out. No call but the send
//! is needed for a request to go out, whatever the pipeline: nothing is gathered.

use std::collections::VecDeque;
use std::error::Error;
use std::time::{Duration, Instant};

use rdma_conn::device::{self, Device};
use rdma_conn::error::{ConnectError, RecvError};
use rdma_conn::{
    BufferedRead, BufferedWrite, Connection, DirectRead, DirectWrite, Listener, Protocol, RecvHalf,
    SendHalf, SendRecv, SharedWrite, connect, direct_read, direct_write, send_recv, shared_write,
};

type Result<T = (), E = Box<dyn Error + Send + Sync>> = std::result::Result<T, E>;

fn main() -> Result {
    let arguments: Vec<_> = std::env::args().skip(1).collect();
    run(&arguments.iter().map(String::as_str).collect::<Vec<_>>())
}

/// Arguments that the program takes.
const USAGE: &str = "usage: request_reply [listen ADDRESS | connect ADDRESS] \
    [--protocol send-recv|buffered-read|buffered-write|direct-read|direct-write|shared-write] \
    [--requests N] [--pipeline N] [--timeout SECONDS]; without an address, both ends run in this process";

/// Runs what the command line says.
pub(crate) fn run(arguments: &[&str]) -> Result {
    if arguments.iter().any(|a| ["-h", "--help"].contains(a)) {
        println!("{USAGE}");
        return Ok(());
    }
    // The environment may name a device; else it is the embedded soft0.
    let device = device::of_environment()?;
    let options = Options::parse(arguments)?;
    match options.protocol {
        "send-recv" => {
            let config = send_recv::Config { message_bytes: 64, ..Default::default() };
            options.run::<SendRecv>(&device, &config)
        }
        "buffered-read" => options.run::<BufferedRead>(&device, &Default::default()),
        "buffered-write" => options.run::<BufferedWrite>(&device, &Default::default()),
        "direct-read" => {
            let config =
                direct_read::Config { message_bytes: 64, window: 256, ..Default::default() };
            options.run::<DirectRead>(&device, &config)
        }
        "direct-write" => {
            let config =
                direct_write::Config { message_bytes: 64, buffers: 256, ..Default::default() };
            options.run::<DirectWrite>(&device, &config)
        }
        "shared-write" => {
            let config =
                shared_write::Config { message_bytes: 64, extents: 16, ..Default::default() };
            options.run::<SharedWrite>(&device, &config)
        }
        other => {
            let all = "send-recv, buffered-read, buffered-write, direct-read, direct-write and \
                       shared-write";
            Err(format!("--protocol {other}: the connections that carry messages are {all}").into())
        }
    }
}

struct Options<'a> {
    /// `listen` or `connect`, and where; or both ends in this process.
    end: Option<(&'a str, &'a str)>,
    protocol: &'a str,
    requests: u64,
    pipeline: usize,
    timeout: Duration,
}

impl<'a> Options<'a> {
    fn parse(arguments: &[&'a str]) -> Result<Options<'a>> {
        let mut options = Options {
            end: None,
            protocol: "send-recv",
            requests: 10_000,
            pipeline: 16,
            timeout: Duration::from_secs(10),
        };
        let mut arguments = arguments.iter();
        while let Some(&name) = arguments.next() {
            let value = *arguments.next().ok_or(format!("{name} takes a value"))?;
            let bad = |e: &dyn Error| format!("{name} {value}: {e}");
            match name {
                "listen" | "connect" => options.end = Some((name, value)),
                "--protocol" => options.protocol = value,
                "--requests" => options.requests = value.parse().map_err(|e| bad(&e))?,
                "--pipeline" => options.pipeline = value.parse().map_err(|e| bad(&e))?,
                "--timeout" => {
                    let seconds = value.parse().map_err(|e| bad(&e))?;
                    options.timeout = Duration::try_from_secs_f64(seconds).map_err(|e| bad(&e))?;
                }
                _ => return Err(format!("unknown argument {name}\n{USAGE}").into()),
            }
        }
        if options.pipeline == 0 {
            return Err("--pipeline 0: at least one request is under way".into());
        }
        Ok(options)
    }

    fn run<P: Protocol>(&self, device: &Device, config: &P::Config) -> Result {
        match self.end {
            Some(("listen", address)) => serve::<P>(&Listener::bind(address)?, device, config),
            Some((_, address)) => self.ask::<P>(connect(address, device, config)?),
            None => self.both::<P>(device, config),
        }
    }

    /// Both ends as threads.
    fn both<P: Protocol>(&self, device: &Device, config: &P::Config) -> Result {
        let listener = Listener::<P>::bind("127.0.0.1:0")?;
        std::thread::scope(|scope| {
            let serving = scope.spawn(|| answer(listener.next()?.accept(device, config)?));
            self.ask::<P>(connect(listener.local_addr(), device, config)?)?;
            serving.join().expect("the server has not panicked")
        })
    }
}

/// Serves each client that connects, until it is interrupted.
fn serve<P: Protocol>(listener: &Listener<P>, device: &Device, config: &P::Config) -> Result {
    println!("listening on {}", listener.local_addr());
    std::thread::scope(|scope| {
        loop {
            // A client of another protocol, or one that leaves at once, concerns no other.
            let incoming = match listener.next() {
                Ok(incoming) => incoming,
                Err(e @ ConnectError::Handshake(_)) => {
                    eprintln!("refused a client: {e}");
                    continue;
                }
                Err(e) => return Err(e.into()),
            };
            let from = incoming.from().map_or("a client".into(), |from| from.to_string());
            match incoming.accept(device, config) {
                Ok(connection) => {
                    scope.spawn(move || match answer(connection) {
                        Ok(()) => println!("{from} has said goodbye"),
                        Err(e) => println!("{from}: {e}"),
                    });
                }
                Err(e) => eprintln!("refused {from}: {e}"),
            }
        }
    })
}

/// Answers one client. The two halves of a connection share nothing: they could be used by
/// two threads as well.
fn answer<P: Protocol>(mut connection: Connection<P>) -> Result {
    loop {
        let [number, from, to] = match connection.receiver.recv() {
            Ok(request) => numbers(&request),
            // It has said goodbye, and everything was answered.
            Err(RecvError::Closed) => return Ok(connection.sender.close()?),
            Err(e) => return Err(e.into()),
        };
        // Copied, and on its way. When the client leaves too much unread, this waits.
        connection.sender.send(&bytes([number, product(from, to)]))?;
    }
}

/// Computes the product that a request asks for.
fn product(from: u64, to: u64) -> u64 {
    // A client may ask for anything: it is not to keep the server busy for years.
    (from..=to).take(1_000).fold(1, u64::wrapping_mul)
}

impl Options<'_> {
    /// Sends requests, and checks the replies.
    fn ask<P: Protocol>(&self, mut connection: Connection<P>) -> Result {
        let start = Instant::now();
        let mut waiting = VecDeque::new();
        for number in 0..self.requests {
            if waiting.len() == self.pipeline {
                self.take_reply(&mut connection.receiver, &mut waiting)?;
            }
            let request = bytes([number, number, number + 3]);
            connection.sender.send_timeout(&request, self.timeout).map_err(|e| {
                let under_way = waiting.len();
                format!("{e}, with {under_way} requests under way: take replies meanwhile")
            })?;
            waiting.push_back(number);
        }
        while !waiting.is_empty() {
            self.take_reply(&mut connection.receiver, &mut waiting)?;
        }
        println!("{} requests in {:?}", self.requests, start.elapsed());
        // Without a goodbye the server would wait until a keepalive goes unanswered.
        connection.sender.close_timeout(self.timeout)?;
        match connection.receiver.recv_timeout(self.timeout) {
            Err(RecvError::Closed) => Ok(()),
            Ok(_) => Err("a message that was not asked for".into()),
            Err(e) => Err(e.into()),
        }
    }

    fn take_reply(&self, from: &mut impl RecvHalf, waiting: &mut VecDeque<u64>) -> Result {
        let [number, result] = numbers(&from.recv_timeout(self.timeout)?);
        // One connection keeps order, and this server as well.
        assert_eq!(Some(number), waiting.pop_front());
        assert_eq!(result, product(number, number + 3));
        Ok(())
    }
}

/// Numbers as they are sent.
fn bytes<const N: usize>(words: [u64; N]) -> Vec<u8> {
    words.iter().flat_map(|word| word.to_le_bytes()).collect()
}

/// The numbers of a message; of another length, it is no message of this example. What a peer
/// sends may be anything.
fn numbers<const N: usize>(bytes: &[u8]) -> [u64; N] {
    let (words, []) = bytes.as_chunks::<8>() else { return [u64::MAX; N] };
    <[_; N]>::try_from(words).map_or([u64::MAX; N], |words| words.map(u64::from_le_bytes))
}
