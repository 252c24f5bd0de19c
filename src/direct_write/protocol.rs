//! Direct Write, as a [`Protocol`].

use conn_core::direct_write::terms::Terms;
use conn_core::handshake::ProtocolId;

use super::setup::{NewLink, NewSender};
use super::{Config, DirectWrite, Receiver, Sender, setup};
use crate::device::Device;
use crate::error::{ConfigError, ConnectError};
use crate::protocol::{NoPool, Protocol, Served};

impl Served for DirectWrite {
    const ID: ProtocolId = ProtocolId::DIRECT_WRITE;
    const NAME: &'static str = "Direct Write";
    type Terms = Terms;
}

impl Protocol for DirectWrite {
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
}
