//! Direct Read, as a [`Protocol`].

use conn_core::handshake::ProtocolId;
use verbs_safe::Buffer;

use super::setup::{NewLink, NewSender};
use super::{Config, Receiver, Sender, setup};
use crate::device::Device;
use crate::error::ConnectError;
use crate::protocol::{DraftOf, NoPool, Protocol, Served, SetUp, sealed};

/// The Direct Read connection.
#[derive(Debug)]
pub enum DirectRead {}

impl sealed::Sealed for DirectRead {}

impl Served for DirectRead {
    const ID: ProtocolId = ProtocolId::DIRECT_READ;
    const NAME: &'static str = "Direct Read";

    fn user_data(said: &[u8], directions: usize) -> &[u8] {
        setup::user_data(said, directions)
    }
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

    fn draft<'a>(
        half: SetUp<'a, DirectRead>,
        sends: bool,
    ) -> Result<DraftOf<'a, DirectRead>, ConnectError> {
        setup::draft(half.device, half.config, half.receiver, sends)
    }
}
