//! What the tests of Buffered Write share.

use std::time::Duration;

use rdma_conn::WaitStrategy;
use rdma_conn::buffered_write::{Config, Tail};
use rdma_conn::ring::{Layout, RingShape};

use super::NEVER;

/// A ring of a page, which goes round soon; without a keepalive that could hide a lost
/// wake-up.
pub fn small(layout: Layout, tail: Tail) -> Config {
    let message_bytes = if layout == Layout::Mirrored { 4088 } else { 2040 };
    Config {
        ring: RingShape { ring_bytes: 4096, message_bytes, layout },
        tail,
        keepalive: NEVER,
        ..Config::default()
    }
}

/// Both layouts, all ways to tell a tail (one with hardly a credit), sleeping and spinning.
pub fn all() -> Vec<Config> {
    let mut all = Vec::new();
    for layout in [Layout::Mirrored, Layout::Plain] {
        for tail in [Tail::Immediate { window: 2 }, Tail::Immediate { window: 64 }, Tail::Written] {
            for wait in [WaitStrategy::Spin, WaitStrategy::Block, WaitStrategy::Adaptive] {
                all.push(Config { wait, ..small(layout, tail) });
            }
        }
    }
    all
}

/// As [`all`], for peers that die: whoever waits asks after them soon.
pub fn inquisitive(config: Config) -> Config {
    Config { keepalive: Duration::from_millis(20), transport: super::impatient(), ..config }
}
