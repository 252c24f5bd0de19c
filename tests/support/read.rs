//! Helpers that the tests of Buffered Read share.

use rdma_conn::buffered_read::{Config, Receiver, Sender};
use rdma_conn::device::Device;
use rdma_conn::{BufferedRead, join, receiver};

/// One direction on the device that everything runs on: the halves of the other one would
/// say goodbye first.
pub fn connected(config: &Config) -> (Sender, Receiver) {
    connected_on(&super::device(), config)
}

/// As [`connected`], on that device.
pub fn connected_on(device: &Device, config: &Config) -> (Sender, Receiver) {
    let mut receiver = receiver::<BufferedRead>(device, config, 1).unwrap();
    let sender = join::<BufferedRead>(&mut receiver, device, device, config).unwrap();
    (sender, receiver)
}
