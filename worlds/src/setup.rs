//! Settings of each connection, out of a case's.

use std::time::Duration;

use rdma_conn::conn_core::direct_read::AckMode;
use rdma_conn::qp::Transport;
use rdma_conn::ring::{Layout, RingShape};
use rdma_conn::{
    BufferedRead, BufferedWrite, Common, DirectRead, DirectWrite, Protocol, SendRecv, SharedWrite,
    WaitStrategy, buffered_read, buffered_write, direct_read, direct_write, send_recv,
    shared_write,
};

use crate::case::{RETRIES, Settings, WaitKind};

/// A connection that worlds set up.
pub trait Tuned: Protocol {
    /// Settings for `senders` at one receiver.
    fn config(settings: &Settings, senders: u32) -> Self::Config;
}

fn common(settings: &Settings) -> Common {
    Common {
        wait: match settings.wait {
            WaitKind::Spin => WaitStrategy::Spin,
            WaitKind::Block => WaitStrategy::Block,
            WaitKind::Adaptive => WaitStrategy::Adaptive,
        },
        keepalive: settings.keepalive(),
        linger: Duration::from_millis(settings.linger_ms),
        transport: Transport {
            timeout: settings.timeout,
            retry_count: RETRIES,
            rnr_retry: 6,
            ..Transport::default()
        },
    }
}

/// The smallest ring that holds the longest message, with the 8 bytes that it takes besides.
fn ring(settings: &Settings) -> RingShape {
    let layout = if settings.window.is_multiple_of(2) { Layout::Plain } else { Layout::Mirrored };
    let least = if layout == Layout::Plain { 2 } else { 1 } * (settings.message_bytes + 8);
    let ring_bytes = u64::from(least).next_power_of_two().max(RingShape::MIN_BYTES);
    RingShape { ring_bytes, message_bytes: settings.message_bytes, layout }
}

impl Tuned for SendRecv {
    fn config(s: &Settings, _: u32) -> send_recv::Config {
        send_recv::Config {
            common: common(s),
            message_bytes: s.message_bytes,
            unacked: s.window,
            batch: s.batch.min(s.window),
            signal_every: s.signal_every.min(s.window),
            recv_depth: 1 + s.window / 2,
            poll_batch: 1 + s.window,
            pack_bytes: if s.other_way && s.message_bytes >= 8 {
                s.message_bytes.min(64)
            } else {
                0
            },
            ..send_recv::Config::default()
        }
    }
}

impl Tuned for BufferedRead {
    fn config(s: &Settings, _: u32) -> buffered_read::Config {
        buffered_read::Config {
            common: common(s),
            ring: ring(s),
            max_read_bytes: if s.other_way { 512 } else { 512 << 10 },
            reads: 1 + s.window % 4,
            prefetch: !s.window.is_multiple_of(3),
            gather_bytes: if s.batch == 1 { 0 } else { 512 },
            ..buffered_read::Config::default()
        }
    }
}

impl Tuned for BufferedWrite {
    fn config(s: &Settings, _: u32) -> buffered_write::Config {
        let send_queue = s.window.max(buffered_write::Config::MIN_SEND_QUEUE);
        buffered_write::Config {
            common: common(s),
            ring: ring(s),
            tail: match s.other_way {
                true => buffered_write::Tail::Written,
                false => buffered_write::Tail::Immediate { window: s.window },
            },
            batch_bytes: if s.batch == 1 { 0 } else { 256 },
            send_queue,
            signal_every: s.signal_every.min(send_queue),
            ..buffered_write::Config::default()
        }
    }
}

impl Tuned for DirectRead {
    fn config(s: &Settings, _: u32) -> direct_read::Config {
        direct_read::Config {
            common: common(s),
            window: s.window,
            message_bytes: s.message_bytes,
            ack: match (s.other_way, s.batch) {
                (false, 1) => AckMode::Write,
                (false, _) => AckMode::FencedWrite,
                (true, 1) => AckMode::Send,
                (true, _) => AckMode::Cumulative,
            },
            reads: 1 + s.signal_every as u8,
            ..direct_read::Config::default()
        }
    }
}

impl Tuned for DirectWrite {
    fn config(s: &Settings, _: u32) -> direct_write::Config {
        let send_queue = (2 * s.window).max(direct_write::Config::MIN_SEND_QUEUE);
        direct_write::Config {
            common: common(s),
            buffers: s.window,
            message_bytes: s.message_bytes,
            detection: match s.other_way {
                true => direct_write::Detection::Polled,
                false => direct_write::Detection::Immediate,
            },
            batch: s.batch.min(send_queue / 2),
            send_queue,
            signal_every: s.signal_every.min(send_queue),
            ..direct_write::Config::default()
        }
    }
}

impl Tuned for SharedWrite {
    fn config(s: &Settings, senders: u32) -> shared_write::Config {
        let send_queue = (3 * s.window).max(shared_write::Config::MIN_SEND_QUEUE);
        shared_write::Config {
            common: common(s),
            extents: (2 * senders).max(s.window),
            message_bytes: s.message_bytes,
            batch: s.batch.min(send_queue / 3),
            send_queue,
            signal_every: s.signal_every.min(send_queue),
            ..shared_write::Config::default()
        }
    }
}
