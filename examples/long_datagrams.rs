//! RDMA tutorial, choice of queue pair types: unreliable datagrams (UD), order and loss repaired.
//!
//! The example `datagrams` shows what UD lacks. Here software adds it: messages of any length are
//! cut into datagrams, which are numbered, acknowledged, and sent again if they are lost. The
//! protocol is that of `conn_core::datagram`, which knows nothing of queue pairs; this is the loop
//! that drives it. On soft0 the network loses one datagram of twenty, repeats one, and reorders
//! one.
//!
//! `rdma-conn bench --op send --transport ud --reliable` measures the same.
//!
//! ```text
//! cargo run --example long_datagrams
//! ```

use std::time::Instant;

use conn_core::datagram::{Fragment, FragmentReceiver, FragmentSender, SenderConfig};
use rdma_conn::device::{self, NetworkFaults, set_network_faults};
use verbs_safe::{
    AhAttr, CqConfig, Endpoint, PeerId, ProtectionDomain, QueuePairConfig, RecvQueue, RecvSide,
    SendOp, SendQueue, Transport, random_psn,
};

mod support;

use support::{Completions, Result};

const MESSAGES: u8 = 50;
const MESSAGE_BYTES: usize = 100_000;
/// The most fragments under way; each end posts as many receives.
const WINDOW: u32 = 32;
const QKEY: u32 = 0x1d5e_ed02;

pub(crate) fn main() -> Result {
    let device = device::of_environment()?;
    let faults = NetworkFaults {
        loss: 0.05,
        reordering: 0.05,
        duplication: 0.05,
        ..NetworkFaults::default()
    };
    set_network_faults(7, faults);
    let repeated = transfer(device.pd());
    set_network_faults(0, NetworkFaults::default());
    println!(
        "{}: {MESSAGES} messages of {MESSAGE_BYTES} bytes arrived in order; {} datagrams were sent again",
        device.name(),
        repeated?
    );
    Ok(())
}

/// Sends all messages from one queue pair to another, both driven by this thread, and returns the
/// number of datagrams that were sent again: lost ones, and those not acknowledged in time.
fn transfer(pd: &ProtectionDomain) -> Result<u64> {
    let bytes = pd.context().port(1)?.active_mtu.bytes() as usize;
    let (mut near, mut far) = (Node::new(pd, bytes)?, Node::new(pd, bytes)?);
    let (to_far, to_near) = (near.reach(pd, &far)?, far.reach(pd, &near)?);
    let storage = vec![0; WINDOW as usize * bytes];
    let config = SenderConfig { window: WINDOW, ..SenderConfig::default() };
    let mut sender = FragmentSender::new(config, bytes, storage.clone())?;
    let mut receiver = FragmentReceiver::new(WINDOW, bytes, MESSAGE_BYTES as u32, storage)?;
    let (mut sent, mut offset, mut inbox) = (0, 0, Inbox::default());
    let start = Instant::now();
    while inbox.messages < MESSAGES || !sender.is_idle() {
        let now_ns = start.elapsed().as_nanos() as u64;
        // Cut the next fragments, as far as there is room in the window.
        while sent < MESSAGES
            && let Some(next) = sender.cut(&[sent; MESSAGE_BYTES], offset)
        {
            (sent, offset) = if next == MESSAGE_BYTES { (sent + 1, 0) } else { (sent, next) };
        }
        near.send(to_far, |slot| sender.transmit(now_ns, slot))?;
        near.receive(|datagram| Ok(sender.on_ack(datagram, now_ns).map(drop)?))?;
        sender.check_peer(now_ns)?;
        let any = far.receive(|datagram| {
            if let Some(fragment) = receiver.arrive(datagram)? {
                inbox.put(fragment)?;
            }
            while let Some(fragment) = receiver.take()? {
                inbox.put(fragment)?;
            }
            Ok(())
        })?;
        if receiver.ack_is_due() || (!any && receiver.unacked() > 0) {
            let mut ack = Some(receiver.ack());
            far.send(to_near, |slot| {
                let ack = ack.take()?;
                slot[..ack.len()].copy_from_slice(&ack);
                Some(ack.len())
            })?;
        }
        if !any {
            std::thread::yield_now();
        }
    }
    Ok(sender.repeated())
}

/// The messages that have arrived, each checked when it is complete.
#[derive(Default)]
struct Inbox {
    messages: u8,
    partial: Vec<u8>,
}

impl Inbox {
    fn put(&mut self, fragment: Fragment<'_>) -> Result {
        self.partial.extend(fragment.bytes);
        if fragment.is_last() {
            if self.partial != [self.messages; MESSAGE_BYTES] {
                return Err(format!("message {} is not as it was sent", self.messages).into());
            }
            self.messages += 1;
            self.partial.clear();
        }
        Ok(())
    }
}

/// A datagram queue pair.
struct Node {
    send: SendQueue,
    recv: RecvQueue<()>,
    completions: Completions,
    address: Endpoint,
}

impl Node {
    fn new(pd: &ProtectionDomain, datagram_bytes: usize) -> Result<Node> {
        let context = pd.context();
        let cq = context.create_cq(CqConfig::new(2 * WINDOW))?;
        let config = QueuePairConfig {
            transport: Transport::Ud { qkey: QKEY },
            max_send_wr: WINDOW,
            send_slots: WINDOW,
            send_slot_bytes: datagram_bytes,
            recv: RecvSide::Own { slots: WINDOW, slot_bytes: datagram_bytes },
            ..QueuePairConfig::new(&cq, &cq)
        };
        let pair = pd.create_qp(&config, ())?;
        let psn = random_psn();
        pair.control.activate(psn)?;
        let address = pair.control.endpoint(1, context.choose_gid(1, None)?, psn)?;
        let mut recv = pair.recv.ok_or("it was made with receives")?;
        recv.post(&(0..WINDOW).collect::<Vec<_>>())?;
        Ok(Node { send: pair.send, recv, completions: Completions::new(&cq), address })
    }

    /// Creates an address handle for `peer`, so that datagrams can be sent to it.
    fn reach(&mut self, pd: &ProtectionDomain, peer: &Node) -> Result<PeerId> {
        let gid = pd.context().choose_gid(1, None)?;
        let address = pd.create_ah(&peer.address, AhAttr::new(gid.index as u8))?;
        Ok(self.send.add_peer(&address, peer.address.qp_num, QKEY)?)
    }

    /// Sends the datagrams that `next` writes, until it has no more, or the send queue is full.
    fn send(&mut self, to: PeerId, mut next: impl FnMut(&mut [u8]) -> Option<usize>) -> Result {
        while let Some(slot) = self.send.next_slot() {
            let Some(len) = next(slot) else { break };
            self.send.stage_to(to, SendOp::Send { len: len as u32 }, true)?;
        }
        self.send.post()?;
        Ok(())
    }

    /// Calls `each` with every datagram that has arrived, and reports whether any has.
    fn receive(&mut self, mut each: impl FnMut(&[u8]) -> Result) -> Result<bool> {
        let mut any = false;
        self.completions.poll(|completion| {
            if completion.queue_id() == self.send.queue_id() {
                return Ok(self.send.retire(&completion).map(drop)?);
            }
            any = true;
            let message = self.recv.take(completion)?;
            each(&message)?;
            let slot = self.recv.reclaim(message).ok_or("the message is still held")?;
            Ok(self.recv.post(&[slot])?)
        })?;
        Ok(any)
    }
}
