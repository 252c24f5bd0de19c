//! RDMA tutorial, example 4: a shared receive queue, and the senders of its messages.
//!
//! A server with a queue pair for each of its clients would need receive buffers for each
//! of them, of which few are in use at a time. A shared receive queue (SRQ) lends buffers
//! to whichever queue pair receives a message: here 4 queue pairs share 8 buffers.
//!
//! A buffer then does not show which client filled it. The client sends its rank as the
//! immediate, 4 bytes that are delivered with the message.
//!
//! ```text
//! cargo run --example srq
//! ```

use rdma_conn::device;
use verbs_safe::{CqConfig, QueuePairConfig, RecvPoster, RecvSide, SendOp, SendQueue};

mod support;

use support::{Completions, Result, connect};

const CLIENTS: u32 = 4;
const MESSAGES_EACH: u64 = 200;
const MESSAGE_BYTES: usize = 64;
/// Buffers of all queue pairs together.
const BUFFERS: u32 = 8;
/// Requests in each send queue.
const DEPTH: u32 = 4;

pub(crate) fn main() -> Result {
    let device = device::of_environment()?;
    let (context, pd) = (device.context(), device.pd());

    // The server's queues: one for receives, however many queue pairs there are, and one
    // for the completions of all of them.
    let (mut buffers, _) = pd.create_shared_pool(BUFFERS, MESSAGE_BYTES, ())?;
    buffers.post(&(0..BUFFERS).collect::<Vec<_>>())?;
    let srq = buffers.shared().ok_or("it is a shared one")?.clone();
    let server_cq = context.create_cq(CqConfig::new(BUFFERS + CLIENTS * DEPTH))?;

    let (mut server_sends, mut clients) = (Vec::new(), Vec::new());
    for rank in 0..CLIENTS {
        let server = QueuePairConfig {
            max_send_wr: DEPTH,
            send_slots: DEPTH,
            send_slot_bytes: MESSAGE_BYTES,
            recv: RecvSide::Shared(&srq),
            ..QueuePairConfig::new(&server_cq, &server_cq)
        };
        let client_cq = context.create_cq(CqConfig::new(2 * DEPTH))?;
        let client = QueuePairConfig {
            recv: RecvSide::Own { slots: DEPTH, slot_bytes: MESSAGE_BYTES },
            send_cq: &client_cq,
            recv_cq: &client_cq,
            ..server
        };
        let (server, client) = (pd.create_qp(&server, ())?, pd.create_qp(&client, ())?);
        connect(&server.control, &client.control)?;
        server_sends.push(server.send);
        let mut recv = client.recv.ok_or("it was made with receives")?;
        recv.post(&(0..DEPTH).collect::<Vec<_>>())?;
        clients.push((rank, client.send, recv, Completions::new(&client_cq)));
    }

    std::thread::scope(|scope| {
        let server =
            scope.spawn(move || serve(server_sends, buffers, Completions::new(&server_cq)));
        // One thread asks for all clients, so that their messages are mixed.
        for number in 0..MESSAGES_EACH {
            for (rank, send, recv, completions) in &mut clients {
                ask(*rank, number, send, recv, completions)?;
            }
        }
        server.join().unwrap_or_else(|_| Err("the server panicked".into()))
    })?;
    println!(
        "{}: {CLIENTS} clients sent {MESSAGES_EACH} messages each into {BUFFERS} buffers, and had \
         their own back",
        device.name()
    );
    Ok(())
}

/// Answers each message over the queue pair that received it.
fn serve(
    mut sends: Vec<SendQueue>,
    mut buffers: RecvPoster<()>,
    mut completions: Completions,
) -> Result {
    let mut retired = 0;
    while retired < MESSAGES_EACH * u64::from(CLIENTS) {
        completions.wait(|completion| {
            if let Some(send) = sends.iter_mut().find(|s| s.queue_id() == completion.queue_id()) {
                send.retire(&completion)?;
                retired += 1;
                return Ok(());
            }
            // A message, into one of the shared buffers. The immediate says whose.
            let rank = completion.imm().ok_or("every message has an immediate")?;
            let send = sends.get_mut(rank as usize).ok_or("a rank of no client")?;
            let message = buffers.take(completion)?;
            let slot = send.next_slot().ok_or("a client waits for its answer")?;
            slot[..message.len()].copy_from_slice(&message);
            send.stage(SendOp::SendImm { len: message.len() as u32, imm: rank }, true)?;
            send.post()?;
            // The buffer goes back to the queue of all.
            let buffer = buffers.reclaim(message).ok_or("the message is still held")?;
            Ok(buffers.post(&[buffer])?)
        })?;
    }
    Ok(())
}

/// Sends one message with the client's rank, and waits for the answer.
fn ask(
    rank: u32,
    number: u64,
    send: &mut SendQueue,
    recv: &mut verbs_safe::RecvQueue<()>,
    completions: &mut Completions,
) -> Result {
    let content = [(number * 7 + u64::from(rank) * 50) as u8; MESSAGE_BYTES];
    send.next_slot().ok_or("the last one was answered")?.copy_from_slice(&content);
    send.stage(SendOp::SendImm { len: MESSAGE_BYTES as u32, imm: rank }, true)?;
    send.post()?;
    let (mut sent, mut answered) = (false, false);
    while !(sent && answered) {
        completions.wait(|completion| {
            if completion.queue_id() == send.queue_id() {
                send.retire(&completion)?;
                sent = true;
                return Ok(());
            }
            let from = completion.imm();
            let message = recv.take(completion)?;
            if from != Some(rank) || *message != content {
                return Err(format!("client {rank} got another's message").into());
            }
            answered = true;
            let buffer = recv.reclaim(message).ok_or("the message is still held")?;
            Ok(recv.post(&[buffer])?)
        })?;
    }
    Ok(())
}
