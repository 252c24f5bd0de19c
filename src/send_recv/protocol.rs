//! Send/Receive, as a [`Protocol`].

use conn_core::handshake::ProtocolId;

use super::setup::{NewLink, NewSender};
use super::{Config, Receiver, SendRecv, Sender, SharedPool, setup};
use crate::device::Device;
use crate::error::ConnectError;
use crate::protocol::{DraftOf, Protocol, Served, SetUp, sealed};

impl sealed::Sealed for SendRecv {}

impl Served for SendRecv {
    const ID: ProtocolId = ProtocolId::SEND_RECV;
    const NAME: &'static str = "Send/Receive";

    fn user_data(said: &[u8], _directions: usize) -> &[u8] {
        said
    }
}

impl Protocol for SendRecv {
    type Config = Config;
    type Pool = SharedPool;
    type Sender = Sender;
    type Receiver = Receiver;
    type NewSender = NewSender;
    type NewLink = NewLink;

    fn receiver(
        device: &Device,
        config: &Config,
        max_peers: u32,
        pool: Option<&SharedPool>,
    ) -> Result<Receiver, ConnectError> {
        setup::receiver(device, config, max_peers, pool)
    }

    fn draft<'a>(
        half: SetUp<'a, SendRecv>,
        sends: bool,
    ) -> Result<DraftOf<'a, SendRecv>, ConnectError> {
        setup::draft(half, sends)
    }
}
