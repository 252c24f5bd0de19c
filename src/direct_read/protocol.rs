//! Direct Read, as a [`Protocol`].

use conn_core::direct_read::Terms;
use conn_core::handshake::ProtocolId;
use verbs_safe::Buffer;

use super::setup::{NewLink, NewSender};
use super::{Config, Receiver, Sender, setup};
use crate::device::Device;
use crate::error::{ConfigError, ConnectError};
use crate::protocol::{NoPool, Protocol, Served};

/// The Direct Read connection.
#[derive(Debug)]
pub enum DirectRead {}

impl Served for DirectRead {
    const ID: ProtocolId = ProtocolId::DIRECT_READ;
    const NAME: &'static str = "Direct Read";
    type Terms = Terms;
}

impl Protocol for DirectRead {
    type Config = Config;
    type Pool = NoPool;
    type Sender = Sender<Buffer>;
    type Receiver = Receiver;
    type NewSender = NewSender<Buffer>;
    type NewLink = NewLink;

    fn receiver(
        device: &Device,
        config: &Config,
        max_peers: u32,
        _pool: Option<&NoPool>,
    ) -> Result<Receiver, ConnectError> {
        setup::receiver(device, config, max_peers, None)
    }

    fn validate(config: &Config) -> Result<(), ConfigError> {
        config.validate()
    }

    fn new_sender(device: &Device, config: &Config) -> Result<NewSender<Buffer>, ConnectError> {
        NewSender::create(device, config)
    }

    /// Each half has the READs that both devices permit.
    fn new_link(
        device: &Device,
        _: &Config,
        receiver: &mut Receiver,
        _: Option<&NoPool>,
    ) -> Result<NewLink, ConnectError> {
        NewLink::create(device, receiver)
    }
}
