//! Connections as futures, on the reactor of a tokio runtime (feature `tokio`).
//!
//! The halves are those of the [`Protocol`](crate::Protocol), driven by what their [`arm`](crate::SendHalf::arm)
//! answers: no thread polls, and nothing runs beside the program's runtime. Every future is
//! cancel-safe: what it has not returned, it has not done. A program without tokio builds the same
//! from `arm` (`examples/event_loop.rs` does so with mio).
//!
//! ```
//! use rdma_conn::aio::{self, Listener};
//! use rdma_conn::SendRecv;
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! # let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
//! # runtime.block_on(async {
//! let device = rdma_conn::device::soft()?;
//! let listener = Listener::<SendRecv>::bind("127.0.0.1:0")?;
//! let (address, config) = (listener.local_addr(), Default::default());
//! let (client, server) = tokio::join!(
//!     aio::connect::<SendRecv>(address, &device, &config),
//!     async { listener.next().await?.accept(&device, &config).await },
//! );
//! let (mut client, mut server) = (client?, server?);
//! let ticket = client.sender.send(b"hello").await?;
//! client.sender.wait_acked(ticket).await?;
//! assert_eq!(&*server.receiver.recv().await?, b"hello");
//! client.sender.close().await?;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! # })
//! # }
//! ```

mod connect;
mod receiver;
mod sender;
mod sink;
mod waiter;

pub use connect::{Connection, Incoming, Listener, connect};
pub use receiver::Receiver;
pub use sender::Sender;
pub use sink::SendSink;
