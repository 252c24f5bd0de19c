//! Requests and replies over the Send/Receive connection, between two processes.
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
//! ```

use std::collections::VecDeque;
use std::error::Error;
use std::time::{Duration, Instant};

use rdma_conn::device::{self, Device};
use rdma_conn::send_recv::{Config, Connection, Listener, Receiver, RecvError, connect};

/// Requests of a client.
const REQUESTS: u64 = 10_000;
/// So many of them are under way at the same time.
const PIPELINE: usize = 16;
/// A server that takes longer has a fault.
const PATIENCE: Duration = Duration::from_secs(10);

type Result<T = (), E = Box<dyn Error + Send + Sync>> = std::result::Result<T, E>;

pub(crate) fn main() -> Result {
    // The environment may name a device; else it is the embedded soft0.
    let device = device::of_environment()?;
    let config = Config { message_bytes: 64, ..Config::default() };
    let arguments: Vec<_> = std::env::args().skip(1).collect();
    let arguments: Vec<_> = arguments.iter().map(String::as_str).collect();
    match arguments[..] {
        ["listen", address] => serve(&Listener::bind(address)?, &device, &config),
        ["connect", address] => ask(connect(address, &device, &config)?),
        _ => both(&device, &config),
    }
}

/// Both ends as threads.
fn both(device: &Device, config: &Config) -> Result {
    let listener = Listener::bind("127.0.0.1:0")?;
    let address = listener.local_addr();
    std::thread::scope(|scope| {
        let serving = scope.spawn(|| answer(listener.next()?.accept(device, config)?));
        ask(connect(address, device, config)?)?;
        serving.join().expect("the server has not panicked")
    })
}

/// Serves whoever connects, until it is interrupted.
fn serve(listener: &Listener, device: &Device, config: &Config) -> Result {
    println!("listening on {}", listener.local_addr());
    std::thread::scope(|scope| {
        loop {
            // Who does not speak the protocol, or leaves at once, concerns nobody else.
            let incoming = listener.next()?;
            let from = incoming.from().map_or("a client".into(), |address| address.to_string());
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
fn answer(Connection { mut sender, mut receiver }: Connection) -> Result {
    loop {
        let message = match receiver.recv() {
            Ok(message) => message,
            // It has said goodbye, and everything was answered.
            Err(RecvError::Closed) => return Ok(sender.close()?),
            Err(e) => return Err(e.into()),
        };
        // The message lies in the receiver's buffer, and is looked at there; what a client
        // sends may be anything.
        let [number, from, to] = words(&message).ok_or("a request has three numbers")?;
        receiver.free(message);
        // Copied, and on its way: its buffer need not be kept, and nobody waits here for
        // the acknowledgement. When the client leaves too much unread, this waits.
        sender.send_async(&bytes([number, product(from, to)]))?;
    }
}

/// What is asked for.
fn product(from: u64, to: u64) -> u64 {
    // A client may ask for anything: it is not to keep the server busy for years.
    (from..=to).take(1_000).fold(1, u64::wrapping_mul)
}

/// Sends requests, and checks the replies.
fn ask(Connection { mut sender, mut receiver }: Connection) -> Result {
    let start = Instant::now();
    let mut waiting = VecDeque::new();
    for number in 0..REQUESTS {
        if waiting.len() == PIPELINE {
            take_reply(&mut receiver, &mut waiting)?;
        }
        sender.send_async(&bytes([number, number, number + 3]))?;
        waiting.push_back(number);
    }
    while !waiting.is_empty() {
        take_reply(&mut receiver, &mut waiting)?;
    }
    println!("{REQUESTS} requests in {:?}", start.elapsed());
    // Says goodbye: without it the server would wait until a keepalive goes unanswered. Then
    // hears the server's: an end that stops receiving before that has failed, for the other.
    sender.close()?;
    match receiver.recv_timeout(PATIENCE) {
        Err(RecvError::Closed) => Ok(()),
        Ok(_) => Err("a reply to no request".into()),
        Err(e) => Err(e.into()),
    }
}

fn take_reply(receiver: &mut Receiver, waiting: &mut VecDeque<u64>) -> Result {
    let reply = receiver.recv_timeout(PATIENCE)?;
    let [number, result] = words(&reply).ok_or("a reply has two numbers")?;
    // One connection keeps order, and this server as well.
    assert_eq!(Some(number), waiting.pop_front());
    assert_eq!(result, product(number, number + 3));
    Ok(())
}

/// Numbers as they are sent.
fn bytes<const N: usize>(words: [u64; N]) -> Vec<u8> {
    words.iter().flat_map(|word| word.to_le_bytes()).collect()
}

fn words<const N: usize>(bytes: &[u8]) -> Option<[u64; N]> {
    let (words, []) = bytes.as_chunks::<8>() else { return None };
    Some(<[_; N]>::try_from(words).ok()?.map(u64::from_le_bytes))
}
