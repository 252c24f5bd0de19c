//! Waiting strategies.

use clap::ValueEnum;
use rdma_conn::WaitStrategy;

/// Waiting strategy of a thread.
#[derive(ValueEnum, Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum WaitFlag {
    /// Poll, never sleep
    Spin,
    /// Sleep on the completion channel at once
    Block,
    /// Poll for 50 µs, then sleep
    #[default]
    Adaptive,
}

impl WaitFlag {
    /// Returns the strategy of a connection's [`Common`](rdma_conn::Common).
    pub fn strategy(self) -> WaitStrategy {
        match self {
            WaitFlag::Spin => WaitStrategy::Spin,
            WaitFlag::Block => WaitStrategy::Block,
            WaitFlag::Adaptive => WaitStrategy::Adaptive,
        }
    }
}
