//! Shared Write, as a [`Protocol`].

use conn_core::handshake::ProtocolId;
use conn_core::shared_write::terms::TERMS_LEN;

use super::setup::{NewLink, NewSender};
use super::{Config, Receiver, Sender, SharedWrite, setup};
use crate::device::Device;
use crate::error::ConnectError;
use crate::protocol::{DraftOf, NoPool, Protocol, Served, SetUp, sealed};

impl sealed::Sealed for SharedWrite {}

impl Served for SharedWrite {
    const ID: ProtocolId = ProtocolId::SHARED_WRITE;
    const NAME: &'static str = "Shared Write";

    fn user_data(said: &[u8], directions: usize) -> &[u8] {
        said.get(directions * TERMS_LEN..).unwrap_or_default()
    }
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

    fn draft<'a>(
        half: SetUp<'a, SharedWrite>,
        sends: bool,
    ) -> Result<DraftOf<'a, SharedWrite>, ConnectError> {
        setup::draft(half, sends)
    }
}
