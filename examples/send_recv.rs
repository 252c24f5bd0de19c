//! RDMA tutorial, example 1: an echo by SEND and RECEIVE.
//!
//! A client sends messages, a server sends each of them back. SEND has *channel
//! semantics*: the receiver posts buffers beforehand, and learns of a message by the
//! completion of one of them. The two ends are threads of this program, and would be two
//! machines just so.
//!
//! ```text
//! cargo run --example send_recv
//! RDMA_CONN_DEVICE=mlx5_0 cargo run --release --example send_recv
//! ```

use std::error::Error;
use std::time::Instant;

use rdma_conn::device;
use verbs_safe::{
    CompletionBatch, CompletionQueue, ConnectAttr, CqConfig, QueuePair, QueuePairConfig, RecvQueue,
    RecvSide, SendOp, SendQueue, random_psn,
};

/// Bytes of a message (the tutorial's `msg_size`).
const MESSAGE_BYTES: usize = 64;
/// Messages that are on their way at the same time (`num_concurr_msgs`): the more, the
/// higher the rate, and the more memory it takes.
const CONCURRENT: u32 = 8;
/// Messages in all.
const MESSAGES: u64 = 1000;

type Result<T = ()> = std::result::Result<T, Failure>;

pub(crate) fn main() -> Result {
    // Step 1: a context, that is, an open device. (RDMA_CONN_DEVICE names it; otherwise
    // it is the embedded soft0.)
    let device = device::of_environment()?;
    let context = device.context();

    // Step 2: a protection domain. What belongs to different ones cannot meet.
    let pd = context.alloc_pd()?;

    // Step 3, memory regions, is part of step 5: a queue pair of verbs-safe has a
    // registered ring that it sends from, and a registered pool that it receives into.

    // Step 4: completion queues, one at each end. They must have room for all that may
    // complete: each end's sends and receives.
    let server_cq = context.create_cq(CqConfig::new(2 * CONCURRENT))?;
    let client_cq = context.create_cq(CqConfig::new(2 * CONCURRENT))?;

    // Step 5: queue pairs. RC, the reliable connection, is the default.
    let buffers = RecvSide::Own { slots: CONCURRENT, slot_bytes: MESSAGE_BYTES };
    let config = |cq| QueuePairConfig {
        max_send_wr: CONCURRENT,
        send_slots: CONCURRENT,
        send_slot_bytes: MESSAGE_BYTES,
        recv: buffers,
        ..QueuePairConfig::new(cq, cq)
    };
    let server = pd.create_qp(&config(&server_cq), ())?;
    let client = pd.create_qp(&config(&client_cq), ())?;

    // Step 6: the port. On InfiniBand a peer is reached by the LID of its port, on
    // Ethernet (RoCE) by its GID.
    let port = context.port(1)?;
    let gid = context.choose_gid(1, None)?;

    // Step 7: connect. The endpoints are exchanged outside of RDMA, over a socket mostly
    // (`rdma_conn::raw` does it so); here main knows both.
    let (server_psn, client_psn) = (random_psn(), random_psn());
    let server_end = server.control.endpoint(1, gid, server_psn)?;
    let client_end = client.control.endpoint(1, gid, client_psn)?;
    let gid_index = gid.index as u8;
    let attr = |psn| ConnectAttr { mtu: port.active_mtu, ..ConnectAttr::new(gid_index, psn) };
    server.control.connect(&client_end, &attr(server_psn))?;
    client.control.connect(&server_end, &attr(client_psn))?;

    // Receives are posted before the first message can arrive.
    let (mut server, mut client) =
        (ConnectedEnd::new(server, server_cq)?, ConnectedEnd::new(client, client_cq)?);
    let start = Instant::now();
    std::thread::scope(|scope| {
        let serving = scope.spawn(move || server.echo());
        client.ask()?;
        serving.join().unwrap_or_else(|_| Err("the server panicked".into()))
    })?;
    let per_s = MESSAGES as f64 / start.elapsed().as_secs_f64();
    println!(
        "{}: {MESSAGES} messages of {MESSAGE_BYTES} B, {CONCURRENT} at a time, echoed: {per_s:.0}/s",
        device.name()
    );
    Ok(())
}

/// One end, connected.
struct ConnectedEnd {
    send: SendQueue,
    recv: RecvQueue<()>,
    cq: CompletionQueue,
    batch: CompletionBatch,
}

impl ConnectedEnd {
    fn new(pair: QueuePair, cq: CompletionQueue) -> Result<ConnectedEnd> {
        let mut recv = pair.recv.ok_or("it was made with receives")?;
        recv.post(&(0..CONCURRENT).collect::<Vec<_>>())?;
        Ok(ConnectedEnd { send: pair.send, recv, cq, batch: CompletionBatch::new(32) })
    }

    /// The server: echoes every message.
    fn echo(&mut self) -> Result {
        let mut echoed = 0;
        // Until the last answer has been acknowledged, not only posted.
        while echoed < MESSAGES || self.send.retired_total() < MESSAGES {
            for message in self.take()? {
                self.post(&message)?;
                echoed += 1;
            }
        }
        Ok(())
    }

    /// The client: keeps CONCURRENT messages on their way, and checks the echoes.
    fn ask(&mut self) -> Result {
        let (mut sent, mut answered) = (0, 0);
        while answered < MESSAGES {
            while sent < MESSAGES && sent - answered < u64::from(CONCURRENT) {
                self.post(&content(sent))?;
                sent += 1;
            }
            for message in self.take()? {
                // RC delivers in order, so that it is known which one this must be.
                if message != content(answered) {
                    return Err(format!("message {answered} was changed by the echo").into());
                }
                answered += 1;
            }
        }
        Ok(())
    }

    /// Sends a message: fills the next slot of the send ring, stages a work request for
    /// it, and posts that. It is signalled: it will complete.
    fn post(&mut self, message: &[u8]) -> Result {
        let slot = self.send.next_slot().ok_or("as many slots as messages on their way")?;
        slot[..message.len()].copy_from_slice(message);
        self.send.stage(SendOp::Send { len: message.len() as u32 }, true)?;
        self.send.post()?;
        Ok(())
    }

    /// Polls until something has completed, and returns the messages among it.
    fn take(&mut self) -> Result<Vec<Vec<u8>>> {
        let mut messages = Vec::new();
        while self.cq.poll(&mut self.batch)? == 0 {
            std::thread::yield_now(); // the other end may need this processor
        }
        for completion in self.batch.drain() {
            if let Some(error) = completion.error() {
                return Err(error.into());
            }
            if completion.queue_id() == self.send.queue_id() {
                // One of our sends: its slot is free again.
                self.send.retire(&completion)?;
                continue;
            }
            // A message. Its buffer goes back to the receive queue once it is copied.
            let buffer = self.recv.take(completion)?;
            messages.push(buffer.to_vec());
            let slot = self.recv.reclaim(buffer).ok_or("the message is still held")?;
            self.recv.post(&[slot])?;
        }
        Ok(messages)
    }
}

/// Returns the bytes of message `number`.
fn content(number: u64) -> Vec<u8> {
    (0..MESSAGE_BYTES as u64).map(|i| (number * 31 + i) as u8).collect()
}

/// Reason why an example has ended, for people: what `main` returns is printed by `Debug`.
pub(crate) struct Failure(Box<dyn Error + Send + Sync>);

impl std::fmt::Debug for Failure {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        std::fmt::Display::fmt(&self.0, f)
    }
}

impl<E: Into<Box<dyn Error + Send + Sync>>> From<E> for Failure {
    fn from(error: E) -> Failure {
        Failure(error.into())
    }
}
