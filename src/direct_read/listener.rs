//! Accepting senders.

use std::net::TcpStream;

use conn_core::handshake::ProtocolId;

use super::{Config, ConnectError, Peer, Receiver, setup};
use crate::device::Device;
use crate::handshake::{Exchange, Stream, TIME_LIMIT};
use crate::listener::served::Sealed;
use crate::listener::{self, Served};

/// Listens for senders on a TCP port.
///
/// ```
/// use rdma_conn::direct_read::{BufferConfig, Config, Listener, Sender, connect};
///
/// let (device, config) = (rdma_conn::device::soft()?, Config::default());
/// let listener = Listener::bind("127.0.0.1:0")?;
/// let address = listener.local_addr();
/// let thread = std::thread::spawn({
///     let device = device.clone();
///     move || {
///         let mut sender: Sender = connect(address, &device, &config).unwrap();
///         let buffer = device.pd().register_buffer(5, BufferConfig::READABLE).unwrap();
///         let ticket = sender.send_async(buffer, b"five zeroes").unwrap();
///         sender.wait(ticket).unwrap().outcome
///     }
/// });
/// let mut receiver = listener.next()?.accept(&device, &config)?;
/// let reading = receiver.request_async(device.pd().register_buffer(8, BufferConfig::default())?)?;
/// assert_eq!(&*receiver.wait(reading)?, [0; 5]);
/// assert_eq!(thread.join().unwrap(), rdma_conn::direct_read::Outcome::Read);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub type Listener = listener::Listener<DirectRead>;

/// Somebody who wants such a connection, and waits for the answer.
pub type Incoming<S = TcpStream> = listener::Incoming<DirectRead, S>;

/// The Direct Read connection, as what can be listened for.
#[derive(Debug)]
pub enum DirectRead {}

impl Served for DirectRead {
    const PROTOCOL: ProtocolId = ProtocolId::DIRECT_READ;
}

impl Sealed for DirectRead {
    fn user_data(said: &[u8]) -> &[u8] {
        setup::user_data(said)
    }
}

impl<S: Stream> Incoming<S> {
    /// Accepts it, with a receiver of its own.
    ///
    /// # Errors
    /// [`ConnectError`]; the sender is told.
    pub fn accept(mut self, device: &Device, config: &Config) -> Result<Receiver, ConnectError> {
        let made = setup::receiver(device, config, 1, None);
        let mut receiver = made.inspect_err(|e| self.caller.tell(e.reason(), &e.to_string()))?;
        self.accept_into(&mut receiver, device)?;
        Ok(receiver)
    }

    /// Accepts it as one more peer of `receiver`. Nobody receives meanwhile.
    ///
    /// # Errors
    /// [`ConnectError`]; the sender is told.
    pub fn accept_into(
        mut self,
        receiver: &mut Receiver,
        device: &Device,
    ) -> Result<Peer, ConnectError> {
        let mut exchange = Exchange::new(&mut self.caller.stream, TIME_LIMIT);
        setup::accept(&mut exchange, &self.caller.hello, device, receiver, b"")
    }
}
