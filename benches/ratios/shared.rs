//! Four senders, one receiver: a shared receive queue against a queue for each, and
//! the three ways in which buffers get back.

use std::time::Instant;

use rdma_conn::device::{self, Device};
use rdma_conn::send_recv::{Config, Preset, Receiver, Reposting, Sender, SharedConfig, SharedPool};
use rdma_conn::{RecvHalf, SendHalf, SendRecv, join, join_shared, receiver_shared};

use super::{ROUNDS, median, rate};

const SENDERS: u32 = 4;
/// The shared queue has this part of the buffers that separate queues have.
const SHARE: u32 = 2;

pub(crate) fn run() {
    println!(
        "{SENDERS} senders to one receiving thread, M messages/s, against a receive queue for each (at least 0.9)"
    );
    let device = device::soft().expect("soft0 opens");
    for (size, messages) in [(16, 300_000), (512, 250_000), (8192, 40_000)] {
        let config = config(size);
        let ways =
            [None, Some(Reposting::Lock), Some(Reposting::Thread), Some(Reposting::Combining)];
        let mut rates = ways.map(|_| Vec::new());
        let mut registered = ways.map(|_| 0);
        for _ in 0..ROUNDS {
            for (i, way) in ways.into_iter().enumerate() {
                let (rate, bytes) = measure(&device, &config, way, messages);
                rates[i].push(rate / 1e6);
                registered[i] = bytes;
            }
        }
        let medians = rates.map(median);
        for (i, way) in ways.into_iter().enumerate() {
            let name = way.map_or("separate queues", Reposting::name);
            let ratio = medians[i] / medians[0];
            println!(
                "  {size:>5} B  {name:<16} {:>7.2} M/s = {ratio:.2}  ({:.2} MB registered for receiving)",
                medians[i],
                registered[i] as f64 / 1e6
            );
        }
    }
}

fn config(size: u32) -> Config {
    Config { message_bytes: size, recv_depth: 256, ..Config::preset(Preset::Unbatched) }
}

/// Messages per second, and bytes registered for receiving.
fn measure(device: &Device, config: &Config, way: Option<Reposting>, messages: u64) -> (f64, u64) {
    let pool = way.map(|reposting| pool(device, config, reposting));
    let mut far =
        receiver_shared::<SendRecv>(device, config, SENDERS, pool.as_ref()).expect("a receiver");
    let senders: Vec<Sender> = (0..SENDERS)
        .map(|_| match &pool {
            None => join::<SendRecv>(&mut far, device, device, config).expect("a sender"),
            Some(pool) => {
                join_shared::<SendRecv>(&mut far, pool, device, device, config).expect("a sender")
            }
        })
        .collect();
    let bytes = far.registered_bytes() + pool.as_ref().map_or(0, SharedPool::registered_bytes);
    (flow(senders, far, config.message_bytes as usize, messages), bytes)
}

fn pool(device: &Device, config: &Config, reposting: Reposting) -> SharedPool {
    let shared = SharedConfig {
        buffers: SENDERS * config.recv_depth / SHARE,
        buffer_bytes: config.message_bytes,
        max_peers: SENDERS,
        reposting,
        repost_batch: 32,
    };
    SharedPool::new(device, shared).expect("a shared pool")
}

fn flow(senders: Vec<Sender>, mut far: Receiver, size: usize, messages: u64) -> f64 {
    std::thread::scope(|scope| {
        for mut sender in senders {
            scope.spawn(move || {
                let message = vec![7; size];
                for _ in 0..messages {
                    sender.send(&message).expect("sent");
                }
                sender.close().expect("closed");
            });
        }
        let all = messages * u64::from(SENDERS);
        let start = Instant::now();
        for _ in 0..all {
            let message = far.recv().expect("received");
            far.free(message);
        }
        let rate = rate(all, start.elapsed());
        while far.recv().is_ok() {}
        rate
    })
}
