//! Streams of bytes to compare, each with both ends in this process.

use std::error::Error;

use rdma_conn::device::Device;
use rdma_conn::io::ByteStream;
use rdma_conn::{
    BufferedRead, BufferedWrite, DirectRead, DirectWrite, Protocol, SendRecv, SharedWrite, pair,
};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpStream, UnixStream};

pub(crate) type Result<T = (), E = Box<dyn Error + Send + Sync>> = std::result::Result<T, E>;

/// Stream, with all that HTTP needs of it.
pub(crate) trait Io: AsyncRead + AsyncWrite + Send + Unpin {}

impl<T: AsyncRead + AsyncWrite + Send + Unpin> Io for T {}

pub(crate) type BoxIo = Box<dyn Io>;

/// A way to connect two ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Transport {
    SendRecv,
    BufferedRead,
    BufferedWrite,
    DirectRead,
    DirectWrite,
    SharedWrite,
    Unix,
    Tcp,
}

impl Transport {
    pub(crate) const ALL: [Transport; 8] = [
        Transport::SendRecv,
        Transport::BufferedRead,
        Transport::BufferedWrite,
        Transport::DirectRead,
        Transport::DirectWrite,
        Transport::SharedWrite,
        Transport::Unix,
        Transport::Tcp,
    ];

    pub(crate) fn name(self) -> &'static str {
        match self {
            Transport::SendRecv => "Send/Receive",
            Transport::BufferedRead => "Buffered Read",
            Transport::BufferedWrite => "Buffered Write",
            Transport::DirectRead => "Direct Read",
            Transport::DirectWrite => "Direct Write",
            Transport::SharedWrite => "Shared Write",
            Transport::Unix => "Unix socket",
            Transport::Tcp => "TCP, loopback",
        }
    }

    /// Both ends of a stream.
    pub(crate) async fn ends(self, device: &Device) -> Result<[BoxIo; 2]> {
        Ok(match self {
            Transport::SendRecv => streams::<SendRecv>(device)?,
            Transport::BufferedRead => streams::<BufferedRead>(device)?,
            Transport::BufferedWrite => streams::<BufferedWrite>(device)?,
            Transport::DirectRead => streams::<DirectRead>(device)?,
            Transport::DirectWrite => streams::<DirectWrite>(device)?,
            Transport::SharedWrite => streams::<SharedWrite>(device)?,
            Transport::Unix => {
                let (left, right) = UnixStream::pair()?;
                [Box::new(left), Box::new(right)]
            }
            Transport::Tcp => {
                let listener = TcpListener::bind("127.0.0.1:0").await?;
                let address = listener.local_addr()?;
                let (left, right) = tokio::join!(TcpStream::connect(address), listener.accept());
                let (left, (right, _)) = (left?, right?);
                left.set_nodelay(true)?;
                right.set_nodelay(true)?;
                [Box::new(left), Box::new(right)]
            }
        })
    }
}

fn streams<P: Protocol>(device: &Device) -> Result<[BoxIo; 2]> {
    let (left, right) = pair::<P>(device, device, &P::Config::default())?;
    Ok([left, right].map(|end| Box::new(ByteStream::<P>::new(end)) as BoxIo))
}
