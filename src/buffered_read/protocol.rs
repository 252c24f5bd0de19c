//! Buffered Read, as a [`Protocol`].

use conn_core::handshake::ProtocolId;
use conn_core::ring::fetch::MAX_READS;
use conn_core::ring::offer::HalfOffer;

use super::setup::{NewLink, NewSender};
use super::{BufferedRead, Config, Receiver, Sender};
use crate::device::Device;
use crate::error::{ConfigError, ConnectError};
use crate::protocol::{NoPool, Protocol, Served};
use crate::setup::Agreement;

impl Served for BufferedRead {
    const ID: ProtocolId = ProtocolId::BUFFERED_READ;
    const NAME: &'static str = "Buffered Read";
    type Terms = HalfOffer;
}

impl Protocol for BufferedRead {
    type Config = Config;
    type Pool = NoPool;
    type Sender = Sender;
    type Receiver = Receiver;
    type NewSender = NewSender;
    type NewLink = NewLink;

    fn receiver(
        _device: &Device,
        config: &Config,
        max_peers: u32,
        _pool: Option<&NoPool>,
    ) -> Result<Receiver, ConnectError> {
        config.validate()?;
        if max_peers == 0 {
            let rule = "at least 1";
            return Err(ConfigError { field: "max_peers", value: 0, rule }.into());
        }
        Ok(Receiver::new(config, max_peers))
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

    fn agreement(device: &Device, _: &Config, _: bool) -> Result<Agreement, ConnectError> {
        let rd_atomic = crate::raw::rd_atomic(device, MAX_READS as u8)?;
        Ok(Agreement { rd_atomic, ..Agreement::default() })
    }
}
