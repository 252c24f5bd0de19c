//! RDMA tutorial, example 3 (and the end of 2): selective signalling, inlining, batching.
//!
//! The same messages of 8 bytes by RDMA WRITE, one technique more each time. The last
//! column is what a program gains; with a card, more than with a software device.
//!
//! ```text
//! cargo run --release --example optimizations
//! ```

use std::time::Instant;

use rdma_conn::device::{self, Device};
use verbs_safe::{CqConfig, Mapping, QueuePairConfig, RemoteAccess, SendOp, SharedRegionConfig};

mod support;

use support::{Completions, Result, connect};

const MESSAGE_BYTES: usize = 8;
const MESSAGES: u64 = 2000;
/// Messages on their way at the same time, and the depth of the send queue.
const CONCURRENT: u32 = 64;

/// Ways to reduce the cost of a message, as they are combined in one measurement.
struct Technique {
    name: &'static str,
    /// One in this number of requests is signalled: its completion is polled, and shows that all
    /// requests before it have completed, too. Never more than the depth of the queue, or it
    /// fills up with requests whose completion is not reported.
    signal_every: u64,
    /// True if the message is copied into the work request, which spares the device a read of
    /// memory. The length that fits is found by asking for it when the queue pair is made.
    inline: bool,
    /// Requests posted as one list: one doorbell, that is, one write to the device over
    /// the bus. The device fetches the rest of the list.
    batch: u64,
}

const TECHNIQUES: [Technique; 4] = [
    Technique { name: "plain", signal_every: 1, inline: false, batch: 1 },
    Technique { name: "+ selective signalling", signal_every: 16, inline: false, batch: 1 },
    Technique { name: "+ inline", signal_every: 16, inline: true, batch: 1 },
    Technique { name: "+ batches of 4", signal_every: 16, inline: true, batch: 4 },
];

pub(crate) fn main() -> Result {
    let device = device::of_environment()?;
    println!("{MESSAGES} WRITEs of {MESSAGE_BYTES} B on {}, {CONCURRENT} at a time", device.name());
    let mut plain = None;
    for technique in &TECHNIQUES {
        let rate = measure(&device, technique)?;
        let gain = rate / *plain.get_or_insert(rate);
        println!("{:24} {rate:12.0} messages/s {gain:6.2}", technique.name);
    }
    Ok(())
}

/// Messages per second.
fn measure(device: &Device, technique: &Technique) -> Result<f64> {
    let (context, pd) = (device.context(), device.pd());
    let cq = context.create_cq(CqConfig::new(CONCURRENT))?;
    let idle = context.create_cq(CqConfig::new(1))?;
    let access = RemoteAccess { write: true, ..RemoteAccess::NONE };
    let sender = QueuePairConfig {
        max_send_wr: CONCURRENT,
        send_slots: CONCURRENT,
        send_slot_bytes: MESSAGE_BYTES,
        max_inline: if technique.inline { MESSAGE_BYTES as u32 } else { 0 },
        ..QueuePairConfig::new(&cq, &cq)
    };
    let target = QueuePairConfig { max_send_wr: 1, access, ..QueuePairConfig::new(&idle, &idle) };
    let (sender, target) = (pd.create_qp(&sender, ())?, pd.create_qp(&target, ())?);
    connect(&sender.control, &target.control)?;
    let config = SharedRegionConfig { access, on_demand: false };
    let memory = pd.register_shared(Mapping::new(MESSAGE_BYTES)?, config)?;
    let remote = memory.remote(0, MESSAGE_BYTES)?;

    let mut send = sender.send;
    if technique.inline && send.max_inline() < MESSAGE_BYTES as u32 {
        println!("{} takes {} bytes inline", device.name(), send.max_inline());
    }
    let mut completions = Completions::new(&cq);
    let start = Instant::now();
    for number in 1..=MESSAGES {
        // Room for one more: wait for completions while there is none.
        while send.staged_total() - send.retired_total() == u64::from(CONCURRENT) {
            send.post()?;
            completions.wait(|completion| Ok(send.retire(&completion).map(drop)?))?;
        }
        let slot = send.next_slot().ok_or("as many slots as requests")?;
        slot.copy_from_slice(&number.to_ne_bytes());
        // What fits is handed over inline without being asked for again.
        let op = SendOp::Write { len: MESSAGE_BYTES as u32, remote };
        let signalled = number.is_multiple_of(technique.signal_every) || number == MESSAGES;
        send.stage(op, signalled)?;
        if number.is_multiple_of(technique.batch) {
            send.post()?;
        }
    }
    send.post()?;
    while send.retired_total() < MESSAGES {
        completions.wait(|completion| Ok(send.retire(&completion).map(drop)?))?;
    }
    let elapsed = start.elapsed();
    // RC writes in order: the last message is what has remained.
    let mut last = [0; MESSAGE_BYTES];
    memory.copy_out(0, &mut last)?;
    if u64::from_ne_bytes(last) != MESSAGES {
        return Err("the last message is not there".into());
    }
    Ok(MESSAGES as f64 / elapsed.as_secs_f64())
}
