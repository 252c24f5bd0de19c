//! A server that loses a request now and then, and a simulated world that finds it.
//!
//! One thread of the server takes requests, and another one answers them. The first version answers
//! the requests in a list, and then empties it: a request that has arrived in between is lost. That
//! takes a client whose next request arrives before the server's thread continues, which is rare,
//! and no test that runs once shows it. In a world, a seed decides which thread runs at each point:
//! some seeds lose a request, and each of them does so again. The three seconds that the client
//! then waits for a reply are virtual, and take no time.
//!
//! ```text
//! cargo run --features simulation --example simulated_world
//! ```

use std::error::Error;
use std::sync::Arc;
use std::time::Duration;

use rdma_conn::error::RecvError;
use rdma_conn::simulation::{
    self, Condvar, Failure, Limits, Mutex, Nature, Report, WorldDevice, WorldKind,
};
use rdma_conn::{Connection, RecvHalf, SendHalf, SendRecv, device, pair};

type Result<T = (), E = Box<dyn Error + Send + Sync>> = std::result::Result<T, E>;

/// Requests of the client, one after the other.
const REQUESTS: u64 = 10;
/// Time that the client waits for a reply.
const PATIENCE: Duration = Duration::from_secs(3);
/// Seeds that a server is tried with.
const SEEDS: u64 = 200;

#[derive(Clone, Copy, PartialEq)]
enum Version {
    LosesRequests,
    Repaired,
}

pub(crate) fn main() -> Result {
    let found = (0..SEEDS).find_map(|seed| {
        let (report, ended) = in_world(seed, Version::LosesRequests);
        ended.err().map(|failure| (seed, report, failure))
    });
    let (seed, report, failure) = found.ok_or("no seed finds the lost request")?;
    println!("seed {seed} fails after {:?}: {failure}", report.time);
    println!("the last events:\n    {}", report.events.join("\n    "));
    let (again, ended) = in_world(seed, Version::LosesRequests);
    assert_eq!((again, ended), (report, Err(failure)), "a seed repeats");

    for seed in 0..SEEDS {
        let (report, ended) = in_world(seed, Version::Repaired);
        ended.map_err(|failure| format!("seed {seed}: {failure}\n{}", report.events.join("\n")))?;
    }
    println!("repaired, {SEEDS} seeds pass");
    Ok(())
}

/// Runs client and server in the world of a seed.
fn in_world(seed: u64, version: Version) -> (Report, Result<(), Failure>) {
    let limits = Limits { events: 24, ..Limits::default() };
    simulation::run(seed, Nature::default(), limits, move || program(version).expect("no error"))
}

/// Nothing in it but its device shows that the program runs in a world.
fn program(version: Version) -> Result {
    let world = WorldDevice::new(WorldKind::Near);
    let device = device::open(Some(world.name()))?;
    let (client, server) = pair::<SendRecv>(&device, &device, &Default::default())?;
    let serving = simulation::spawn("server", move || serve(server, version))?;
    ask(client)?;
    serving.join().expect("the server has not panicked")
}

/// Sends the requests, and checks the replies.
fn ask(mut connection: Connection<SendRecv>) -> Result {
    for request in 0..REQUESTS {
        connection.sender.send(&request.to_le_bytes())?;
        let reply = connection.receiver.recv_timeout(PATIENCE);
        let reply = reply.map_err(|e| format!("no reply to request {request}: {e}"))?;
        assert_eq!(u64::from_le_bytes((*reply).try_into()?), request * request);
    }
    Ok(connection.sender.close()?)
}

/// Requests that have arrived.
#[derive(Default)]
struct Inbox {
    state: Mutex<InboxState>,
    changed: Condvar,
}

#[derive(Default)]
struct InboxState {
    requests: Vec<u64>,
    /// The client has said goodbye.
    is_closed: bool,
}

/// Takes requests until the client says goodbye, with a thread that answers them.
fn serve(connection: Connection<SendRecv>, version: Version) -> Result {
    let Connection { sender, mut receiver, .. } = connection;
    let inbox = Arc::new(Inbox::default());
    let requests = Arc::clone(&inbox);
    let answering = simulation::spawn("answers", move || answer(sender, &requests, version))?;
    let end = loop {
        match receiver.recv() {
            Ok(request) => {
                let request = u64::from_le_bytes((*request).try_into()?);
                simulation::note(|| format!("request {request} has arrived"));
                inbox.state.lock().requests.push(request);
            }
            Err(e) => break e,
        }
        inbox.changed.notify_one();
    };
    inbox.state.lock().is_closed = true;
    inbox.changed.notify_one();
    answering.join().expect("the thread has not panicked")?;
    if end == RecvError::Closed { Ok(()) } else { Err(end.into()) }
}

fn answer(mut sender: impl SendHalf, inbox: &Inbox, version: Version) -> Result {
    loop {
        let mut state = inbox.state.lock();
        while state.requests.is_empty() && !state.is_closed {
            inbox.changed.wait(&mut state);
        }
        if state.requests.is_empty() {
            drop(state);
            return Ok(sender.close()?);
        }
        let requests = match version {
            Version::LosesRequests => state.requests.clone(),
            Version::Repaired => std::mem::take(&mut state.requests),
        };
        drop(state);
        for request in requests {
            sender.send(&(request * request).to_le_bytes())?;
            simulation::note(|| format!("request {request} was answered"));
        }
        if version == Version::LosesRequests {
            // The bug: the client has its reply, and its next request may be here.
            inbox.state.lock().requests.clear();
            simulation::note(|| "the list is empty".to_owned());
        }
    }
}
