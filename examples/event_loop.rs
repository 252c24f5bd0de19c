//! An event loop of one's own: one thread that listens, and serves many connections, by mio.
//!
//! Nothing here needs the feature `tokio`. A half that has nothing to do says by `arm` what to wait
//! for: a descriptor, which mio polls, or a time. The server answers each request with its length.
//!
//! ```text
//! cargo run --example event_loop [-- send-recv|buffered-read|buffered-write|direct-read|
//!                                    direct-write|shared-write]
//! ```

use std::error::Error;
use std::os::fd::{AsFd, AsRawFd};
use std::time::Duration;

use mio::unix::SourceFd;
use mio::{Events, Interest, Poll, Token};
use rdma_conn::device::{self, Device};
use rdma_conn::error::{RecvError, SendError};
use rdma_conn::{
    Arm, BufferedRead, BufferedWrite, Connection, DirectRead, DirectWrite, Listener, Protocol,
    RecvHalf, SendHalf, SendRecv, SharedWrite, connect,
};

const CLIENTS: usize = 3;
const REQUESTS: usize = 1000;

type Result<T = (), E = Box<dyn Error + Send + Sync>> = std::result::Result<T, E>;

pub(crate) fn main() -> Result {
    let device = device::of_environment()?;
    match std::env::args().nth(1).as_deref() {
        None | Some("send-recv") => run::<SendRecv>(&device),
        Some("buffered-read") => run::<BufferedRead>(&device),
        Some("buffered-write") => run::<BufferedWrite>(&device),
        Some("direct-read") => run::<DirectRead>(&device),
        Some("direct-write") => run::<DirectWrite>(&device),
        Some("shared-write") => run::<SharedWrite>(&device),
        Some(other) => {
            let all = "send-recv, buffered-read, buffered-write, direct-read, direct-write, \
                       shared-write";
            Err(format!("{other}: one of {all}").into())
        }
    }
}

pub(crate) fn run<P: Protocol>(device: &Device) -> Result {
    let listener = Listener::<P>::bind("127.0.0.1:0")?;
    let address = listener.local_addr();
    std::thread::scope(|scope| {
        for _ in 0..CLIENTS {
            let client = move || ask(connect::<P>(address, device, &P::Config::default())?);
            scope.spawn(move || client().expect("the server answers"));
        }
        serve(&listener, device)
    })
}

/// A client, which waits.
fn ask<P: Protocol>(mut client: Connection<P>) -> Result {
    for number in 0..REQUESTS {
        client.sender.send(&vec![0; number % 50])?;
        client.sender.flush()?;
        let reply = client.receiver.recv_timeout(Duration::from_secs(30))?;
        assert_eq!(*reply, (number % 50).to_le_bytes());
    }
    Ok(client.sender.close()?)
}

/// One connection of the server.
struct ServedConnection<P: Protocol> {
    connection: Connection<P>,
    /// A reply that has found no room.
    reply: Option<[u8; 8]>,
    /// For each of the two halves, true if the poll has its descriptor.
    is_registered: [bool; 2],
    answered: usize,
}

/// Serves the clients until the last one has closed. No call in here waits but the poll.
fn serve<P: Protocol>(listener: &Listener<P>, device: &Device) -> Result {
    let mut poll = Poll::new()?;
    let mut events = Events::with_capacity(64);
    poll.registry().register(
        &mut SourceFd(&listener.as_fd().as_raw_fd()),
        Token(0),
        Interest::READABLE,
    )?;
    let mut all: Vec<ServedConnection<P>> = Vec::new();
    let (mut closed, mut longest) = (0, Duration::ZERO);
    while closed < CLIENTS {
        // It takes milliseconds: a time below one must not become none at all.
        let is_short = !longest.is_zero() && longest < Duration::from_millis(1);
        poll.poll(&mut events, Some(if is_short { Duration::from_millis(1) } else { longest }))?;
        // Each client is accepted in a moment; a server for strangers would do that on a thread.
        while let Some(incoming) = listener.next_timeout(Duration::ZERO)? {
            let connection = incoming.accept(device, &P::Config::default())?;
            all.push(ServedConnection {
                connection,
                reply: None,
                is_registered: [false; 2],
                answered: 0,
            });
        }
        // A silent client of the listener makes nothing readable.
        longest = Duration::from_secs(1);
        let mut at = 0;
        while at < all.len() {
            if let Some(wait) = go_on(&mut all[at], &poll)? {
                (longest, at) = (longest.min(wait), at + 1);
                continue;
            }
            let served = all.swap_remove(at);
            println!("answered {} requests", served.answered);
            served.connection.sender.close()?;
            closed += 1;
        }
    }
    Ok(())
}

/// Answers received requests, as far as there is room for replies; returns how long to wait, at
/// most, or none if the client has closed.
fn go_on<P: Protocol>(served: &mut ServedConnection<P>, poll: &Poll) -> Result<Option<Duration>> {
    let ServedConnection {
        connection: Connection { sender, receiver },
        reply,
        is_registered,
        answered,
    } = served;
    loop {
        let waits = match reply {
            Some(bytes) => match sender.try_send(&bytes[..]) {
                Ok(_) => {
                    (*reply, *answered) = (None, *answered + 1);
                    continue;
                }
                Err(SendError::Full(_)) => (0, sender.arm()?),
                Err(end) => return Err(end.into()),
            },
            None => match receiver.try_recv() {
                Ok(request) => {
                    *reply = Some(request.len().to_le_bytes());
                    continue;
                }
                Err(RecvError::Empty) => (1, receiver.arm()?),
                Err(RecvError::Closed) => return Ok(None),
                Err(end) => return Err(end.into()),
            },
        };
        return match waits {
            (_, Arm::Ready) => continue,
            (_, Arm::Poll(after)) => Ok(Some(after)),
            // A half's descriptor is always the same one: it is registered once. (This loop looks
            // at all connections, and needs no tokens.)
            (half, Arm::Fd(descriptor)) => {
                if !std::mem::replace(&mut is_registered[half], true) {
                    let fd = descriptor.as_raw_fd();
                    poll.registry().register(&mut SourceFd(&fd), Token(0), Interest::READABLE)?;
                }
                Ok(Some(Duration::MAX))
            }
        };
    }
}
