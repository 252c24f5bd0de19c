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
pub(crate) enum ConnectionKind {
    SendRecv,
    BufferedRead,
    BufferedWrite,
    DirectRead,
    DirectWrite,
    SharedWrite,
    Unix,
    Tcp,
}

impl ConnectionKind {
    pub(crate) const ALL: [ConnectionKind; 8] = [
        ConnectionKind::SendRecv,
        ConnectionKind::BufferedRead,
        ConnectionKind::BufferedWrite,
        ConnectionKind::DirectRead,
        ConnectionKind::DirectWrite,
        ConnectionKind::SharedWrite,
        ConnectionKind::Unix,
        ConnectionKind::Tcp,
    ];

    pub(crate) fn name(self) -> &'static str {
        match self {
            ConnectionKind::SendRecv => "Send/Receive",
            ConnectionKind::BufferedRead => "Buffered Read",
            ConnectionKind::BufferedWrite => "Buffered Write",
            ConnectionKind::DirectRead => "Direct Read",
            ConnectionKind::DirectWrite => "Direct Write",
            ConnectionKind::SharedWrite => "Shared Write",
            ConnectionKind::Unix => "Unix socket",
            ConnectionKind::Tcp => "TCP, loopback",
        }
    }

    /// Both ends of a stream.
    pub(crate) async fn ends(self, device: &Device) -> Result<[BoxIo; 2]> {
        Ok(match self {
            ConnectionKind::SendRecv => streams::<SendRecv>(device)?,
            ConnectionKind::BufferedRead => streams::<BufferedRead>(device)?,
            ConnectionKind::BufferedWrite => streams::<BufferedWrite>(device)?,
            ConnectionKind::DirectRead => streams::<DirectRead>(device)?,
            ConnectionKind::DirectWrite => streams::<DirectWrite>(device)?,
            ConnectionKind::SharedWrite => streams::<SharedWrite>(device)?,
            ConnectionKind::Unix => {
                let (left, right) = UnixStream::pair()?;
                [Box::new(left), Box::new(right)]
            }
            ConnectionKind::Tcp => {
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
