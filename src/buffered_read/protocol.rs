//! Buffered Read, as a [`Protocol`].

use conn_core::handshake::ProtocolId;

use super::setup::{NewLink, NewSender};
use super::{BufferedRead, Config, Receiver, Sender, setup};
use crate::device::Device;
use crate::error::{ConfigError, ConnectError};
use crate::protocol::{DraftOf, NoPool, Protocol, Served, SetUp, sealed};
use crate::ring;

impl sealed::Sealed for BufferedRead {}

impl Served for BufferedRead {
    const ID: ProtocolId = ProtocolId::BUFFERED_READ;
    const NAME: &'static str = "Buffered Read";

    fn user_data(said: &[u8], _directions: usize) -> &[u8] {
        ring::terms::user_data(said)
    }
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

    fn draft<'a>(
        half: SetUp<'a, BufferedRead>,
        sends: bool,
    ) -> Result<DraftOf<'a, BufferedRead>, ConnectError> {
        setup::draft(half, sends)
    }
}
