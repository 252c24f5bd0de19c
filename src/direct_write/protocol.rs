//! Direct Write, as a [`Protocol`].

use conn_core::direct_write::terms::TERMS_LEN;
use conn_core::handshake::ProtocolId;

use super::setup::{NewLink, NewSender};
use super::{Config, DirectWrite, Receiver, Sender, setup};
use crate::device::Device;
use crate::error::ConnectError;
use crate::protocol::{DraftOf, NoPool, Protocol, Served, SetUp, sealed};

impl sealed::Sealed for DirectWrite {}

impl Served for DirectWrite {
    const ID: ProtocolId = ProtocolId::DIRECT_WRITE;
    const NAME: &'static str = "Direct Write";

    fn user_data(said: &[u8], directions: usize) -> &[u8] {
        said.get(directions * TERMS_LEN..).unwrap_or_default()
    }
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

    fn draft<'a>(
        half: SetUp<'a, DirectWrite>,
        sends: bool,
    ) -> Result<DraftOf<'a, DirectWrite>, ConnectError> {
        setup::draft(half, sends)
    }
}
