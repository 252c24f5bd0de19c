//! RDMA tutorial, example 4: shared receive queues for messages of different sizes.
//!
//! Buffers of a receive queue are used in the order in which they were posted, whatever
//! the message: so each of them must hold the largest one. Where most messages are small
//! that wastes memory. The way out are two shared receive queues, one with small buffers
//! and one with large ones, and a queue pair for each size: a message is sent over the one
//! whose buffers fit it.
//!
//! ```text
//! cargo run --example srq_classes
//! ```

use rdma_conn::device;
use verbs_safe::{CqConfig, QueuePairConfig, RecvPoster, RecvSide, SendOp, SendQueue};

mod support;

use support::{Completions, Result, connect};

/// Classes of messages: bytes of the longest one, and buffers for them.
const CLASSES: [(usize, u32); 2] = [(64, 32), (4096, 4)];
const MESSAGES: u64 = 400;
/// Requests in each send queue.
const DEPTH: u32 = 4;

pub(crate) fn main() -> Result {
    let device = device::of_environment()?;
    let (context, pd) = (device.context(), device.pd());
    let buffers: u32 = CLASSES.iter().map(|(_, buffers)| buffers).sum();
    let recv_cq = context.create_cq(CqConfig::new(buffers))?;
    let send_cq = context.create_cq(CqConfig::new(2 * DEPTH))?;
    let idle = context.create_cq(CqConfig::new(2))?;

    let (mut pools, mut sends, mut receivers) = (Vec::new(), Vec::new(), Vec::new());
    for (bytes, buffers) in CLASSES {
        let (mut pool, _) = pd.create_shared_pool(buffers, bytes, ())?;
        pool.post(&(0..buffers).collect::<Vec<_>>())?;
        let srq = pool.shared().ok_or("it is a shared one")?;
        let receiver = QueuePairConfig {
            max_send_wr: 1,
            send_slots: 0,
            recv: RecvSide::Shared(srq),
            ..QueuePairConfig::new(&idle, &recv_cq)
        };
        let sender = QueuePairConfig {
            max_send_wr: DEPTH,
            send_slots: DEPTH,
            send_slot_bytes: bytes,
            recv: RecvSide::None,
            ..QueuePairConfig::new(&send_cq, &idle)
        };
        let (receiver, sender) = (pd.create_qp(&receiver, ())?, pd.create_qp(&sender, ())?);
        connect(&receiver.control, &sender.control)?;
        pools.push(pool);
        sends.push(sender.send);
        receivers.push(receiver); // it is destroyed when all its parts are dropped
    }

    let bytes = std::thread::scope(|scope| {
        let receiver = scope.spawn(move || receive(pools, Completions::new(&recv_cq)));
        send(&mut sends, &mut Completions::new(&send_cq))?;
        receiver.join().unwrap_or_else(|_| Err("the receiver panicked".into()))
    })?;
    let own: usize = CLASSES.iter().map(|(bytes, buffers)| bytes * *buffers as usize).sum();
    let one_size = CLASSES[1].0 * buffers as usize;
    println!(
        "{}: {MESSAGES} messages, {bytes} bytes, into {own} bytes of buffers; of one size they \
         would be {one_size}",
        device.name()
    );
    Ok(())
}

/// Three small messages, and a large one.
fn length(number: u64) -> usize {
    if number % 4 == 3 { 1000 + number as usize } else { number as usize % 65 }
}

/// Sends each message over the queue pair whose buffers fit it, and no better.
fn send(sends: &mut [SendQueue], completions: &mut Completions) -> Result {
    for number in 0..MESSAGES {
        let length = length(number);
        let class = CLASSES.iter().position(|(bytes, _)| length <= *bytes);
        let class = class.ok_or("no buffer is so large")?;
        let send = &mut sends[class];
        let slot = send.next_slot().ok_or("the last one has completed")?;
        slot[..length].fill(number as u8);
        send.stage(SendOp::SendImm { len: length as u32, imm: number as u32 }, true)?;
        send.post()?;
        // One at a time: what is acknowledged lies in a buffer.
        while send.retired_total() < send.posted_total() {
            completions.wait(|completion| Ok(send.retire(&completion).map(drop)?))?;
        }
    }
    Ok(())
}

/// Takes all messages; the bytes that they had together.
fn receive(mut pools: Vec<RecvPoster<()>>, mut completions: Completions) -> Result<usize> {
    let (mut received, mut bytes) = (0, 0);
    while received < MESSAGES {
        completions.wait(|completion| {
            let pool = pools.iter_mut().find(|p| p.queue_id() == completion.queue_id());
            let pool = pool.ok_or("a completion of another queue")?;
            let number = completion.imm().ok_or("every message has an immediate")?;
            let message = pool.take(completion)?;
            if *message != vec![number as u8; length(number.into())] {
                return Err(format!("message {number} has other bytes than were sent").into());
            }
            received += 1;
            bytes += message.len();
            let buffer = pool.reclaim(message).ok_or("the message is still held")?;
            Ok(pool.post(&[buffer])?)
        })?;
    }
    Ok(bytes)
}
