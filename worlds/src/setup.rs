//! Settings of each connection, out of a case's.

use std::time::Duration;

use rdma_conn::conn_core::direct_read::AckMode;
use rdma_conn::device::Device;
use rdma_conn::error::ConnectError;
use rdma_conn::qp::Transport;
use rdma_conn::ring::{Layout, RingShape};
use rdma_conn::send_recv::{Reposting, SharedConfig, SharedPool};
use rdma_conn::{
    BufferedRead, BufferedWrite, Common, DirectRead, DirectWrite, Protocol, SendRecv, SharedWrite,
    WaitStrategy, buffered_read, buffered_write, direct_read, direct_write, send_recv,
    shared_write,
};

use crate::case::{BufferKind, RETRIES, Settings, WaitKind};

/// A connection that worlds set up, and the counters of its halves.
pub trait Tuned: Protocol {
    /// Settings for `senders` at one receiver.
    fn config(settings: &Settings, senders: u32) -> Self::Config;

    /// Buffers that the connections of a receiver share.
    ///
    /// # Errors
    /// As of a receiver.
    fn pool(
        device: &Device,
        settings: &Settings,
        senders: u32,
    ) -> Result<Option<Self::Pool>, ConnectError> {
        let _ = (device, settings, senders);
        Ok(None)
    }

    /// Messages that a sender has accepted, and their bytes.
    fn sent(sender: &Self::Sender) -> (u64, u64);

    /// Messages that a sender still has when all are acknowledged: none.
    fn unreturned(sender: &Self::Sender) -> u64;

    /// Messages that a receiver has handed out, and their bytes.
    fn received(receiver: &Self::Receiver) -> (u64, u64);

    /// Buffers that a receiver has lost.
    fn lost(receiver: &Self::Receiver) -> u64 {
        let _ = receiver;
        0
    }
}

/// The counters that all halves have.
macro_rules! counted {
    ($module:ident) => {
        fn sent(sender: &$module::Sender) -> (u64, u64) {
            let stats = sender.stats();
            (stats.messages, stats.bytes)
        }

        fn received(receiver: &$module::Receiver) -> (u64, u64) {
            let stats = receiver.stats();
            (stats.messages, stats.bytes)
        }
    };
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
    counted!(send_recv);

    fn unreturned(sender: &send_recv::Sender) -> u64 {
        sender.unflushed()
    }

    fn lost(receiver: &send_recv::Receiver) -> u64 {
        receiver.stats().unaccounted_buffers
    }

    fn pool(
        device: &Device,
        s: &Settings,
        senders: u32,
    ) -> Result<Option<SharedPool>, ConnectError> {
        if s.buffers != BufferKind::Pool {
            return Ok(None);
        }
        let config = SharedConfig::new(&Self::config(s, senders), senders);
        let reposting = Reposting::ALL[s.batch as usize % Reposting::ALL.len()];
        SharedPool::new(device, SharedConfig { reposting, ..config }).map(Some)
    }

    fn config(s: &Settings, _: u32) -> send_recv::Config {
        send_recv::Config {
            common: common(s),
            message_bytes: s.message_bytes,
            unacked: s.window,
            batch: s.batch.min(s.window),
            signal_every: s.signal_every.min(s.window),
            recv_depth: 1 + s.window / 2,
            credits: s.buffers != BufferKind::Uncontrolled,
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
    counted!(buffered_read);

    /// A sender keeps no list of messages.
    fn unreturned(_: &buffered_read::Sender) -> u64 {
        0
    }

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
    counted!(buffered_write);

    fn unreturned(sender: &buffered_write::Sender) -> u64 {
        sender.unflushed()
    }

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
    counted!(direct_read);

    fn unreturned(sender: &direct_read::Sender) -> u64 {
        sender.unacked() as u64
    }

    fn lost(receiver: &direct_read::Receiver) -> u64 {
        receiver.stats().unaccounted_buffers
    }

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
    counted!(direct_write);

    fn unreturned(sender: &direct_write::Sender) -> u64 {
        sender.unflushed()
    }

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
    counted!(shared_write);

    fn unreturned(sender: &shared_write::Sender) -> u64 {
        sender.unflushed()
    }

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
