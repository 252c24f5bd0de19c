//! Buffered Write, as a [`Protocol`].

use conn_core::handshake::ProtocolId;

use super::setup::{NewLink, NewSender};
use super::{BufferedWrite, Config, Receiver, Sender, setup};
use crate::device::Device;
use crate::error::ConnectError;
use crate::protocol::{DraftOf, NoPool, Protocol, Served, SetUp, sealed};
use crate::ring;

impl sealed::Sealed for BufferedWrite {}

impl Served for BufferedWrite {
    const ID: ProtocolId = ProtocolId::BUFFERED_WRITE;
    const NAME: &'static str = "Buffered Write";

    fn user_data(said: &[u8], _directions: usize) -> &[u8] {
        ring::terms::user_data(said)
    }
}

impl Protocol for BufferedWrite {
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

    fn draft<'a>(
        half: SetUp<'a, BufferedWrite>,
        sends: bool,
    ) -> Result<DraftOf<'a, BufferedWrite>, ConnectError> {
        setup::draft(half, sends)
    }
}
