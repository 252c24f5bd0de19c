//! Connections as futures, on the reactor of a tokio runtime (feature `tokio`).
//!
//! The halves are those of the [`Protocol`](crate::Protocol), driven by the result of
//! [`arm`](crate::SendHalf::arm). A half without work polls a few times more, while other tasks
//! run, and then waits for its descriptor or its timer on the reactor. The runtime needs its I/O
//! driver (`enable_all`); no thread polls beside it. `send`, `recv`, `wait_acked`, `wait_all`,
//! `flush` and `Listener::next` are cancel-safe: a dropped future has done nothing. Dropping the
//! future of `close` drops the half. A dropped `connect` or `accept` ends on its thread for
//! blocking work, and closes its connection. A program without tokio builds the same from `arm`, as
//! `examples/event_loop.rs` does with mio.
//!
//! ```
//! use rdma_conn::aio::{self, Listener};
//! use rdma_conn::SendRecv;
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
//! runtime.block_on(async {
//! let device = rdma_conn::device::soft()?;
//! let listener = Listener::<SendRecv>::bind("127.0.0.1:0")?;
//! let (address, config) = (listener.local_addr(), Default::default());
//! let (client, server) = tokio::join!(
//!     aio::connect::<SendRecv>(address, &device, &config),
//!     async { listener.next().await?.accept(&device, &config).await },
//! );
//! let (mut client, mut server) = (client?, server?);
//! let ticket = client.sender.send(b"hello").await?;
//! assert_eq!(&*server.receiver.recv().await?, b"hello");
//! client.sender.wait_acked(ticket).await?;
//! client.sender.close().await?;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! })
//! # }
//! ```

mod blocking;
mod connect;
mod receiver;
mod sender;
mod sink;
mod waiter;

pub use connect::{Connection, Incoming, Listener, connect};
pub use receiver::Receiver;
pub use sender::Sender;
pub use sink::SendSink;
