//! A connection's counts of its own work are those of the device: the work requests of both ends,
//! and what the receiver was not ready for.
//!
//! soft0 counts every work request. rxe counts packets: a request here fits into one, and
//! has one that acknowledges it, which arrives long before anything is repeated. (Its count
//! of SENDs leaves out some.) Other devices count neither.
//!
//! Alone on rxe0: counters of the device are compared, and no other test has packets under way.
//!
//! Shows: one protocol.

mod support;

use rdma_conn::Common;
use std::sync::Mutex;
use std::time::Instant;

use rdma_conn::device::{Counters, Device};
use rdma_conn::send_recv::{
    CloseReason, Config, Preset, Receiver, Reposting, SendError, Sender, SharedConfig, SharedPool,
    Transport,
};
use rdma_conn::verbs_safe::WcStatus;
use rdma_conn::{RecvHalf, SendHalf, SendRecv, join, join_shared, receiver, receiver_shared};
use support::{NEVER, PATIENCE, bounded, can_count, counters, device, settled_counters, small};

const MESSAGES: u64 = 500;

/// The counters are the device's: one test at a time may use it.
static DEVICE: Mutex<()> = Mutex::new(());

/// Work requests executed since `before`, as the device counts them.
fn executed(device: &Device, before: &Counters) -> Option<u64> {
    let counted = counters(device).since(before);
    counted.work_requests.or(counted.sent_packets.map(|packets| packets / 2))
}

/// Checks that what was claimed is counted in the end, for a device may count after it completes;
/// and no more than that.
fn assert_executed(device: &Device, before: &Counters, claimed: u64, what: &str) {
    let deadline = Instant::now() + PATIENCE / 2;
    while executed(device, before) < Some(claimed) && Instant::now() < deadline {
        std::thread::yield_now();
    }
    let seen = settled_counters(device).since(before);
    assert_eq!(executed(device, before), Some(claimed), "{what}: {seen:?}");
}

/// Receives and frees all of them.
fn drain(inbox: &mut Receiver, messages: u64) {
    for _ in 0..messages {
        let message = inbox.recv().unwrap();
        inbox.free(message);
    }
}

/// Sends all of them; they have been acknowledged when it returns.
fn fill(sender: &mut Sender, messages: u64) {
    for number in 0..messages {
        sender.send(&number.to_le_bytes()).unwrap();
    }
    sender.wait_all().unwrap();
}

/// Runs traffic of `senders` to one receiver, and compares. What both ends claim, taken
/// while both are there: what is posted to a peer that has gone is not executed.
fn compare(what: &str, config: &Config, senders: u32, how: Option<Reposting>) -> u64 {
    let device = &device();
    let before = settled_counters(device);
    let pool = how.map(|reposting| {
        let shared = SharedConfig {
            buffers: senders * (config.recv_depth + SharedConfig::KEPT - 1),
            buffer_bytes: config.message_bytes,
            max_peers: senders,
            reposting,
            repost_batch: 4,
        };
        SharedPool::new(device, shared).unwrap()
    });
    let mut inbox = receiver_shared::<SendRecv>(device, config, senders, pool.as_ref()).unwrap();
    let mut ends: Vec<Sender> = (0..senders)
        .map(|_| match &pool {
            Some(pool) => {
                join_shared::<SendRecv>(&mut inbox, pool, device, device, config).unwrap()
            }
            None => join::<SendRecv>(&mut inbox, device, device, config).unwrap(),
        })
        .collect();
    std::thread::scope(|scope| {
        for end in &mut ends {
            scope.spawn(|| fill(end, MESSAGES));
        }
        drain(&mut inbox, MESSAGES * u64::from(senders));
    });
    let sent: u64 = ends.iter().map(|end| end.stats().work_requests).sum();
    let claimed = sent + inbox.stats().work_requests;
    assert_executed(device, &before, claimed, what);
    assert_eq!(counters(device).since(&before).rnr_events, Some(0), "{what}");
    claimed
}

/// About retries: no request is repeated because the answer takes its time, of up to 8.6 s.
fn patient() -> Transport {
    Transport { timeout: 21, ..support::living() }
}

/// Every mode: what it is called, its configuration, its senders, its pool.
fn modes() -> Vec<(&'static str, Config, u32, Option<Reposting>)> {
    let of = |preset| Config {
        common: Common { keepalive: NEVER, transport: patient(), ..Config::preset(preset).common },
        ..Config::preset(preset)
    };
    let small =
        Config { batch: 2, common: Common { transport: patient(), ..small(8).common }, ..small(8) };
    vec![
        ("sequential", of(Preset::Sequential), 1, None),
        ("unbatched", of(Preset::Unbatched), 1, None),
        ("batched", of(Preset::Batched), 1, None),
        ("packed", Config { pack_bytes: 512, ..of(Preset::Batched) }, 1, None),
        ("one receiver of many", small, 3, None),
        ("shared, lock", small, 3, Some(Reposting::Lock)),
        ("shared, thread", small, 3, Some(Reposting::Thread)),
        ("shared, combining", small, 3, Some(Reposting::Combining)),
    ]
}

#[test]
fn device_counters_match_the_claims_of_each_mode() {
    let _alone = DEVICE.lock().unwrap();
    bounded(|| {
        if !can_count(&device(), "operations of each mode") {
            return;
        }
        for (mode, config, senders, how) in modes() {
            assert!(compare(mode, &config, senders, how) > MESSAGES / 64);
        }
    });
}

#[test]
fn packing_is_seen_by_the_device() {
    let _alone = DEVICE.lock().unwrap();
    bounded(|| {
        if !can_count(&device(), "operations of packed messages") {
            return;
        }
        let config = Config {
            common: Common { keepalive: NEVER, transport: patient(), ..support::common() },
            pack_bytes: 1020,
            ..support::config::<Config>()
        };
        let claimed = compare("packed", &config, 1, None);
        // 85 messages of 8 bytes and a length of 4 fill a pack; the receiver's credits
        // take a few more.
        assert!(claimed < MESSAGES / 4, "{claimed} work requests for {MESSAGES} messages");
    });
}

#[test]
fn a_receiver_that_never_looks_is_found_unready_once_a_try() {
    let _alone = DEVICE.lock().unwrap();
    bounded(|| {
        let device = device();
        if !can_count(&device, "tries at an unready receiver") {
            return;
        }
        for rnr_retry in [1, 3] {
            let transport = Transport { rnr_retry, min_rnr_timer: 1, ..patient() };
            let config = Config {
                credits: false,
                common: Common { transport, ..small(2).common },
                ..small(2)
            };
            let mut inbox = receiver::<SendRecv>(&device, &config, 1).unwrap();
            let mut sender = join::<SendRecv>(&mut inbox, &device, &device, &config).unwrap();
            let before = counters(&device);
            let error = loop {
                if let Err(e) = sender.send_acked(b"unasked for") {
                    break e;
                }
            };
            let SendError::Ended(CloseReason::PeerLost(error)) = error else { panic!("{error:?}") };
            assert_eq!(error.cause.status, WcStatus::RNR_RETRY_EXC);
            let events = counters(&device).since(&before).rnr_events;
            assert_eq!(events, Some(u64::from(rnr_retry) + 1), "the first try, and the others");
        }
    });
}
