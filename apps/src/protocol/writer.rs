//! A sender whose messages are copied, as the commands use it.

use anyhow::Result;
use rdma_conn::SendHalf;

use super::worked::Worked;
use super::{MeasuredSender, by_half};
use crate::measure::Work;

/// A sender, and where a message is made that is copied afterwards: a peer may read the memory
/// that it is sent from at any time, so that no slice of it is lent.
pub(crate) struct Writer<S> {
    sender: S,
    scratch: Vec<u8>,
}

impl<S> From<S> for Writer<S> {
    fn from(sender: S) -> Writer<S> {
        Writer { sender, scratch: Vec::new() }
    }
}

impl<S: SendHalf + Worked> MeasuredSender for Writer<S> {
    by_half!(sender);

    #[inline]
    fn send_with(&mut self, bytes: usize, mut fill: impl FnMut(&mut [u8])) -> Result<()> {
        if self.scratch.len() < bytes {
            self.scratch.resize(bytes, 0);
        }
        fill(&mut self.scratch[..bytes]);
        self.sender.send(&self.scratch[..bytes])?;
        Ok(())
    }

    fn work(&self) -> Work {
        self.sender.work()
    }
}

/// Items of [`MeasuredProtocol`](super::MeasuredProtocol) for a connection with a [`Writer`]: its
/// settings are the library's `Config`, and it receives by the library's `Receiver`.
macro_rules! by_writer {
    () => {
        type Settings = Config;
        type SendEnd = $crate::protocol::writer::Writer<Sender>;
        type RecvEnd = Receiver;

        const SETTINGS: &'static [$crate::settings::Setting<Config>] = settings::SETTINGS;

        fn common(
            config: &mut Config,
        ) -> (&mut rdma_conn::WaitStrategy, &mut rdma_conn::send_recv::Transport) {
            (&mut config.common.wait, &mut config.common.transport)
        }

        fn config(settings: &Config) -> &Config {
            settings
        }

        fn send_end(sender: Sender, _: &rdma_conn::device::Device, _: &Config) -> Self::SendEnd {
            sender.into()
        }

        fn recv_end(
            receiver: Receiver,
            _: &rdma_conn::device::Device,
            _: &Config,
            _: u32,
        ) -> Receiver {
            receiver
        }

        fn receiver_of(end: &mut Receiver) -> &mut Receiver {
            end
        }
    };
}
pub(super) use by_writer;
