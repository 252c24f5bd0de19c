//! The whole path of a message through the machines of one end, as often as asked, for
//! `instructions.sh` to count: `instructions send 1000`, `instructions receive 1000`, and
//! `instructions ring 1000` for a record through a ring.
//!
//! The figures of the `batched` preset: 256 messages under way, signalled every 32nd,
//! reposted and granted in 32s. What the driver would do in between (post, poll) is an
//! opaque no-op.
#![cfg_attr(not(test), deny(clippy::disallowed_methods, clippy::disallowed_types))]

use std::{env, error::Error, hint::black_box};

use conn_core::{
    control::Control,
    credit::{CreditGrantor, CreditWindow},
    pool::{BufferPool, PoolConfig, PoolSlot},
    ring::{Consumer, ConsumerConfig, Geometry, Producer, Taken},
    wr::{SendTracker, SendTrackerConfig, WrClass},
};

const WINDOW: u32 = 256;
const BATCH: u32 = 32;
/// Completions that a poll finds. (A poll asks for up to 32; the fewer it finds, the
/// more the questions after it cost a message.)
const POLLED: usize = 8;

type MainResult = Result<(), Box<dyn Error>>;

fn main() -> MainResult {
    let arguments: Vec<String> = env::args().collect();
    let [_, way, messages] = &arguments[..] else {
        return Err("usage: instructions send|receive|ring MESSAGES".into());
    };
    match way.as_str() {
        "send" => send(messages.parse()?),
        "receive" => receive(messages.parse()?),
        "ring" => ring(messages.parse()?),
        other => Err(format!("not send, receive or ring: {other}").into()),
    }
}

/// The credit is taken and the request planned; every 32nd completes, and a credit arrives every 32
/// messages.
#[inline(never)]
fn send(messages: u64) -> MainResult {
    let config = SendTrackerConfig { depth: WINDOW, control_slots: 8, signal_every: BATCH };
    let mut tracker = black_box(SendTracker::new(config)?);
    let mut window = black_box(CreditWindow::new(WINDOW)?);
    let mut limit = u64::from(WINDOW);
    for _ in 0..messages {
        window.consume(1)?;
        let planned = black_box(tracker.plan(WrClass::Data)?);
        if planned.signalled {
            tracker.complete(black_box(planned.id))?;
            limit += u64::from(BATCH);
            let immediate = black_box(limit as u32 & 0x7fff_ffff);
            if let Control::Credit(wire) = Control::decode(immediate)? {
                window.on_credit(wire)?;
            }
        }
    }
    assert_eq!(black_box(window).sent(), messages);
    Ok(())
}

/// Messages are received and lent as polled, and freed; buffers are reposted and
/// granted in 32s.
#[inline(never)]
fn receive(messages: u64) -> MainResult {
    let storage = vec![PoolSlot::new(); WINDOW as usize].into_boxed_slice();
    let mut pool = black_box(BufferPool::new(storage, PoolConfig { repost_batch: BATCH })?);
    let mut grantor = black_box(CreditGrantor::new(WINDOW, BATCH)?);
    let (mut device, mut ids) = ([0; WINDOW as usize], [0; BATCH as usize]);
    pool.take_repost(&mut device);
    for poll in 0..messages.div_ceil(POLLED as u64) {
        let first = (poll * POLLED as u64 % u64::from(WINDOW)) as usize;
        let arrived = black_box(&device[first..first + POLLED]);
        for &id in arrived {
            grantor.on_receive()?;
            pool.lend(id)?;
        }
        for &id in black_box(arrived) {
            pool.free(id)?;
        }
        if pool.due() {
            let count = pool.take_repost(black_box(&mut ids));
            grantor.on_reposted(count as u32)?;
        }
        if let Some(credit) = grantor.due() {
            black_box(Control::Credit(credit).encode());
            grantor.mark_granted(credit)?;
        }
    }
    assert!(black_box(grantor).received() >= messages);
    Ok(())
}

/// Records of 16 bytes are reserved, committed, taken and freed, as many at a time as a
/// poll finds messages; the head is told when it is due. What is written to the ring's
/// memory and read from it passes through.
#[inline(never)]
fn ring(messages: u64) -> MainResult {
    let geometry = Geometry::mirrored(1 << 16, 1 << 13)?;
    let mut sender = black_box(Producer::new(geometry));
    let config = ConsumerConfig { head_threshold: geometry.capacity() / 4 };
    let mut receiver = black_box(Consumer::new(geometry, config));
    for _ in 0..messages.div_ceil(POLLED as u64) {
        let mut words = [0; POLLED];
        for word in &mut words {
            let len = black_box(16);
            let grant = sender.reserve(len)?;
            black_box(grant.payload());
            *word = sender.commit(grant, len)?.header.word;
        }
        receiver.on_tail_landed(black_box(sender.tail()))?;
        for word in black_box(words) {
            black_box(receiver.next_header());
            if let Taken::Record(record) = receiver.take(word)? {
                black_box(record.payload);
            }
            receiver.on_all_freed();
        }
        if let Some(head) = receiver.head_due() {
            receiver.mark_told(head);
            sender.on_head(black_box(head))?;
        }
    }
    assert_eq!(black_box(receiver).read_pointer(), sender.tail());
    Ok(())
}
