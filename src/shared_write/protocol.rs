//! Shared Write, as a [`Protocol`].

use conn_core::handshake::ProtocolId;
use conn_core::shared_write::terms::Terms;

use super::setup::{NewLink, NewSender};
use super::{Config, Receiver, Sender, SharedWrite, setup};
use crate::device::Device;
use crate::error::{ConfigError, ConnectError};
use crate::protocol::{NoPool, Protocol, Served};
use crate::setup::Agreement;

impl Served for SharedWrite {
    const ID: ProtocolId = ProtocolId::SHARED_WRITE;
    const NAME: &'static str = "Shared Write";
    type Terms = Terms;
}

impl Protocol for SharedWrite {
    type Config = Config;
    type Pool = NoPool;
    type Sender = Sender;
    type Receiver = Receiver;
    type NewSender = NewSender;
    type NewLink = NewLink;

    fn receiver(
        device: &Device,
        config: &Config,
        max_peers: u32,
        _pool: Option<&NoPool>,
    ) -> Result<Receiver, ConnectError> {
        setup::receiver(device, config, max_peers)
    }

    fn validate(config: &Config) -> Result<(), ConfigError> {
        config.validate()
    }

    fn new_sender(device: &Device, config: &Config) -> Result<NewSender, ConnectError> {
        NewSender::create(device, config)
    }

    fn new_link(
        device: &Device,
        config: &Config,
        receiver: &mut Receiver,
        _: Option<&NoPool>,
    ) -> Result<NewLink, ConnectError> {
        NewLink::create(device, config, receiver)
    }

    fn agreement(_: &Device, _: &Config, _: bool) -> Result<Agreement, ConnectError> {
        Ok(Agreement { rd_atomic: setup::RD_ATOMIC, ..Agreement::default() })
    }
}
