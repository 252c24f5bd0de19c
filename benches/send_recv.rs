//! Cost of one message, through the connection and by raw verbs, within one thread: `cargo bench
//! --bench send_recv`, or with a name filter behind `--`. For comparisons side by side see the
//! bench `ratios`.
#![forbid(unsafe_code)]

use std::time::{Duration, Instant};

use criterion::{BenchmarkId, Criterion, Throughput, criterion_group, criterion_main};
use rdma_conn::device::{self, Device};
use rdma_conn::send_recv::{Config, Preset, Receiver, RecvError, SendError, Sender};
use rdma_conn::verbs_safe::baseline::{RawLoop, RawLoopConfig};
use rdma_conn::{RecvHalf, SendHalf, SendRecv, join, receiver};

const SIZES: [u32; 3] = [16, 512, 8192];

fn one_message(c: &mut Criterion) {
    let device = device::of_environment().expect("the device opens");
    for size in SIZES {
        let mut group = c.benchmark_group(format!("one message of {size} B"));
        group.throughput(Throughput::Bytes(size.into()));
        for preset in [Preset::Unbatched, Preset::Batched] {
            let config = Config { message_bytes: size, ..Config::preset(preset) };
            let mut raw = RawLoop::new(device.context(), raw(&config)).expect("a raw loop");
            group.bench_function(BenchmarkId::new("raw verbs", preset.name()), |b| {
                b.iter_custom(|messages| raw.run(messages).expect("the raw loop runs"));
            });
            let (mut near, mut far) = ends(&device, &config);
            group.bench_function(BenchmarkId::new("connection", preset.name()), |b| {
                b.iter_custom(|messages| pass(&mut near, &mut far, size as usize, messages));
            });
        }
        group.finish();
    }
}

/// The raw loop with the settings of the connection.
fn raw(config: &Config) -> RawLoopConfig {
    RawLoopConfig {
        size: config.message_bytes,
        batch: config.batch,
        unacked: config.unacked,
        signal_every: (config.unacked / 4).clamp(1, 64),
        slots: config.recv_depth,
        inline: true,
        ..RawLoopConfig::default()
    }
}

fn ends(device: &Device, config: &Config) -> (Sender, Receiver) {
    let mut far = receiver::<SendRecv>(device, config, 1).expect("a receiver");
    let near = join::<SendRecv>(&mut far, device, device, config).expect("a sender");
    (near, far)
}

/// Sends until there is no room, receives until there is nothing.
fn pass(near: &mut Sender, far: &mut Receiver, size: usize, messages: u64) -> Duration {
    let message = vec![7; size];
    let start = Instant::now();
    let (mut sent, mut received) = (0, 0);
    while received < messages {
        while sent < messages {
            match near.try_send(&message) {
                Ok(_) => sent += 1,
                Err(SendError::Full(_)) => break,
                Err(e) => panic!("{e}"),
            }
        }
        near.flush().expect("posted");
        loop {
            match far.try_recv() {
                Ok(message) => far.free(message),
                Err(RecvError::Empty) => break,
                Err(e) => panic!("{e}"),
            }
            received += 1;
        }
    }
    start.elapsed()
}

criterion_group! {
    name = benches;
    config = Criterion::default().sample_size(20).measurement_time(Duration::from_secs(2));
    targets = one_message
}
criterion_main!(benches);
