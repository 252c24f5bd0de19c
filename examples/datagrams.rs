//! RDMA tutorial, choice of queue pair types: unreliable datagrams (UD).
//!
//! One UD queue pair talks to any number of others: here one of the server serves three
//! clients, where RC would take three. What it costs:
//!
//! - a message has one MTU at most;
//! - each arrives with 40 bytes in front of it, the global route header (GRH);
//! - messages may be lost, or overtake each other, without an error: they are numbered,
//!   and a client waits for a reply for a limited time, and sends the request again.
//!
//! ```text
//! cargo run --example datagrams
//! ```

use std::time::{Duration, Instant};

use rdma_conn::device;
use verbs_safe::{
    AhAttr, CqConfig, Endpoint, PeerId, ProtectionDomain, QueuePairConfig, RecvQueue, RecvSide,
    SendOp, SendQueue, Transport, random_psn,
};

mod support;

use support::{Completions, Result};

const CLIENTS: usize = 3;
const MESSAGES_EACH: u32 = 100;
const MESSAGE_BYTES: usize = 64;
/// Requests in each queue.
const DEPTH: u32 = 8;
/// The sender of a datagram has to know the receiver's key.
const QKEY: u32 = 0x1d5e_ed01;
/// Time that an answer may take before it counts as lost.
const TIMEOUT: Duration = Duration::from_millis(500);

/// A datagram queue pair.
struct Node {
    send: SendQueue,
    recv: RecvQueue<()>,
    completions: Completions,
    address: Endpoint,
}

pub(crate) fn main() -> Result {
    let device = device::of_environment()?;
    let mut server = Node::new(device.pd())?;
    let most = server.send.max_datagram().unwrap_or_default();
    println!("{}: a datagram has {most} bytes at most", device.name());
    let gid = device.context().choose_gid(1, None)?;
    // A sender needs the address of the receiver (which it gets outside of RDMA, as
    // always), and makes a handle of it. Nothing is connected.
    let at_server = device.pd().create_ah(&server.address, AhAttr::new(gid.index as u8))?;

    let mut clients = Vec::new();
    for _ in 0..CLIENTS {
        let mut client = Node::new(device.pd())?;
        let peer = client.send.add_peer(&at_server, server.address.qp_num, QKEY)?;
        clients.push((client, peer));
    }
    let done = std::sync::atomic::AtomicBool::new(false);
    let lost = std::thread::scope(|scope| {
        let serving = scope.spawn(|| {
            while !done.load(std::sync::atomic::Ordering::Relaxed) {
                server.serve(device.pd())?;
            }
            Result::Ok(())
        });
        let mut lost: Result<u32> = Ok(0);
        for number in 0..MESSAGES_EACH {
            for (client, peer) in &mut clients {
                lost = lost.and_then(|lost| Ok(lost + client.ask(*peer, number)?));
            }
        }
        done.store(true, std::sync::atomic::Ordering::Relaxed);
        serving.join().unwrap_or_else(|_| Err("the server panicked".into()))?;
        lost
    })?;
    println!("one queue pair answered {CLIENTS} others {MESSAGES_EACH} times each; {lost} lost");
    Ok(())
}

impl Node {
    fn new(pd: &ProtectionDomain) -> Result<Node> {
        let context = pd.context();
        let cq = context.create_cq(CqConfig::new(2 * DEPTH))?;
        // The 40 bytes of the route header are not counted here: verbs-safe adds them.
        let recv = RecvSide::Own { slots: DEPTH, slot_bytes: MESSAGE_BYTES };
        let config = QueuePairConfig {
            transport: Transport::Ud { qkey: QKEY },
            max_send_wr: DEPTH,
            send_slots: DEPTH,
            send_slot_bytes: MESSAGE_BYTES,
            recv,
            ..QueuePairConfig::new(&cq, &cq)
        };
        let pair = pd.create_qp(&config, ())?;
        let psn = random_psn();
        pair.control.activate(psn)?;
        let address = pair.control.endpoint(1, context.choose_gid(1, None)?, psn)?;
        let mut recv = pair.recv.ok_or("it was made with receives")?;
        recv.post(&(0..DEPTH).collect::<Vec<_>>())?;
        Ok(Node { send: pair.send, recv, completions: Completions::new(&cq), address })
    }

    /// Sends a message with its number as the immediate.
    fn post(&mut self, to: PeerId, message: &[u8], number: u32) -> Result {
        let slot = self.send.next_slot().ok_or("as many slots as requests")?;
        slot[..message.len()].copy_from_slice(message);
        let op = SendOp::SendImm { len: message.len() as u32, imm: number };
        self.send.stage_to(to, op, true)?;
        self.send.post()?;
        Ok(())
    }

    /// Answers the requests. The completion and the route header give the sender's address.
    fn serve(&mut self, pd: &ProtectionDomain) -> Result {
        let mut asked = Vec::new();
        let any = self.completions.poll(|completion| {
            if completion.queue_id() == self.send.queue_id() {
                return Ok(self.send.retire(&completion).map(drop)?);
            }
            let number = completion.imm().ok_or("every message has its number")?;
            let source = completion.source().ok_or("a datagram has a source")?;
            let message = self.recv.take(completion)?;
            let address = pd.create_reply_ah(1, &source, message.grh().as_ref())?;
            asked.push((address, source.qp_num, number, message.to_vec()));
            let slot = self.recv.reclaim(message).ok_or("the message is still held")?;
            Ok(self.recv.post(&[slot])?)
        })?;
        // A server with many clients would keep their addresses; this one makes them anew.
        for (address, qp_num, number, message) in asked {
            let peer = self.send.add_peer(&address, qp_num, QKEY)?;
            self.post(peer, &message, number)?;
            self.send.remove_peer(peer);
        }
        if !any {
            std::thread::yield_now();
        }
        Ok(())
    }

    /// Sends one message, and waits for its answer; how often that was lost on the way.
    fn ask(&mut self, server: PeerId, number: u32) -> Result<u32> {
        let content = [number as u8 ^ self.address.qp_num as u8; MESSAGE_BYTES];
        for lost in 0..10 {
            self.post(server, &content, number)?;
            let (start, mut answered) = (Instant::now(), false);
            while !answered && start.elapsed() < TIMEOUT {
                let any = self.completions.poll(|completion| {
                    if completion.queue_id() == self.send.queue_id() {
                        return Ok(self.send.retire(&completion).map(drop)?);
                    }
                    let found = completion.imm();
                    let message = self.recv.take(completion)?;
                    // A late reply to an earlier message is ignored.
                    if found == Some(number) {
                        answered = *message == content;
                    }
                    let slot = self.recv.reclaim(message).ok_or("it is still held")?;
                    Ok(self.recv.post(&[slot])?)
                })?;
                if !any {
                    std::thread::yield_now();
                }
            }
            if answered {
                return Ok(lost);
            }
        }
        Err(format!("message {number} was lost ten times").into())
    }
}
