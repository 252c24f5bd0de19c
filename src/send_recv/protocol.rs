//! Send/Receive, as a [`Protocol`].

use conn_core::handshake::{Options, ProtocolId};

use super::setup::{NewLink, NewSender};
use super::{Config, Receiver, SendRecv, Sender, SharedPool, setup};
use crate::device::Device;
use crate::error::{ConfigError, ConnectError};
use crate::protocol::{Protocol, Served};
use crate::setup::{Agreement, unfit};

impl Served for SendRecv {
    const ID: ProtocolId = ProtocolId::SEND_RECV;
    const NAME: &'static str = "Send/Receive";
    type Terms = ();
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
        pool: Option<&SharedPool>,
    ) -> Result<NewLink, ConnectError> {
        NewLink::create(device, config, receiver, pool)
    }

    fn agreement(_: &Device, config: &Config, shares: bool) -> Result<Agreement, ConnectError> {
        Ok(Agreement { options: setup::options(config, shares), ..Agreement::default() })
    }

    fn check_options(ours: Options, theirs: Options) -> Result<(), ConnectError> {
        if let Some(unknown) = theirs.unknown() {
            return Err(unfit(format!("it wants options that are unknown here ({unknown:#x})")));
        }
        if ours.contains(Options::NO_CREDITS) != theirs.contains(Options::NO_CREDITS) {
            return Err(unfit("one end uses credits and the other does not: both or none"));
        }
        Ok(())
    }
}
