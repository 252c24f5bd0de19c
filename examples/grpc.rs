//! gRPC over connections, by tonic: a server and a client in one process, over streams of bytes of
//! each connection, beside a Unix socket and TCP.
//!
//! ```text
//! cargo run --release --features tokio --example grpc [-- CALLS]
//! ```
//!
//! It prints the median of the time of a small unary call, one at a time, and how many calls there
//! are in a second with 16 at a time. The service is written by hand, so that nothing has to be
//! generated: one method, which greets.

pub(crate) mod transports;

use std::convert::Infallible;
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use hyper_util::rt::TokioIo;
use rdma_conn::device::{self, Device};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tonic::body::Body;
use tonic::codegen::http::{Request, Response, uri::PathAndQuery};
use tonic::server::{NamedService, UnaryService};
use tonic::transport::server::Connected;
use tonic::transport::{Channel, Endpoint, Server};
use tonic_prost::ProstCodec;
use transports::{BoxIo, ConnectionKind, Result};

/// Calls at a time for the rate.
const AT_A_TIME: usize = 16;

#[derive(Clone, PartialEq, prost::Message)]
struct Name {
    #[prost(string, tag = "1")]
    name: String,
}

#[derive(Clone, PartialEq, prost::Message)]
struct Greeting {
    #[prost(string, tag = "1")]
    text: String,
}

pub(crate) fn main() -> Result {
    let calls = match std::env::args().nth(1) {
        Some(number) => number.parse()?,
        None => 5000,
    };
    let device = device::of_environment()?;
    let runtime =
        tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
    println!("{:<16}{:>12}{:>12}", "", "call, µs", "calls/s");
    for transport in ConnectionKind::ALL {
        let (median, rate) = runtime.block_on(measure(&device, transport, calls))?;
        println!("{:<16}{:>12.1}{:>12.0}", transport.name(), median.as_secs_f64() * 1e6, rate);
    }
    Ok(())
}

/// The median time of a call alone, and calls a second of many.
pub(crate) async fn measure(
    device: &Device,
    transport: ConnectionKind,
    calls: usize,
) -> Result<(Duration, f64)> {
    let [near, far] = transport.ends(device).await?;
    let incoming = futures_util::stream::iter([Ok::<_, std::io::Error>(ServedStream(far))]);
    let serving =
        tokio::spawn(Server::builder().add_service(Greeter).serve_with_incoming(incoming));
    let mut near = Some(near);
    let connector = tower::service_fn(move |_| {
        let io = near.take().ok_or_else(|| std::io::Error::other("it is connected once"));
        async { io.map(TokioIo::new) }
    });
    let channel = Endpoint::from_static("http://server").connect_with_connector(connector).await?;

    let mut times = Vec::with_capacity(calls);
    for number in 0..calls {
        let start = Instant::now();
        greet(channel.clone(), number).await?;
        times.push(start.elapsed());
    }
    times.sort();
    let start = Instant::now();
    let tasks = (0..AT_A_TIME).map(|task| {
        let channel = channel.clone();
        tokio::spawn(async move {
            for number in 0..calls.div_ceil(AT_A_TIME) {
                greet(channel.clone(), task + number).await?;
            }
            Ok::<(), Box<dyn std::error::Error + Send + Sync>>(())
        })
    });
    for task in tasks.collect::<Vec<_>>() {
        task.await??;
    }
    let rate = (calls.div_ceil(AT_A_TIME) * AT_A_TIME) as f64 / start.elapsed().as_secs_f64();
    drop(channel);
    // The server has no more to accept, and ends with its connection.
    serving.await??;
    Ok((times.get(calls / 2).copied().unwrap_or_default(), rate))
}

/// Calls the method, as a generated client does.
async fn greet(channel: Channel, number: usize) -> Result {
    let mut client = tonic::client::Grpc::new(channel);
    client.ready().await?;
    let request = tonic::Request::new(Name { name: number.to_string() });
    let path = PathAndQuery::from_static("/greeter.Greeter/Greet");
    let codec: ProstCodec<Name, Greeting> = ProstCodec::default();
    let greeting = client.unary(request, path, codec).await?.into_inner();
    assert_eq!(greeting.text, format!("hello, {number}"));
    Ok(())
}

/// The service.
#[derive(Debug, Clone, Copy)]
struct Greeter;

impl UnaryService<Name> for Greeter {
    type Response = Greeting;
    type Future = std::future::Ready<Result<tonic::Response<Greeting>, tonic::Status>>;

    fn call(&mut self, request: tonic::Request<Name>) -> Self::Future {
        let text = format!("hello, {}", request.into_inner().name);
        std::future::ready(Ok(tonic::Response::new(Greeting { text })))
    }
}

impl NamedService for Greeter {
    const NAME: &'static str = "greeter.Greeter";
}

impl tower::Service<Request<Body>> for Greeter {
    type Response = Response<Body>;
    type Error = Infallible;
    type Future = Pin<Box<dyn Future<Output = Result<Response<Body>, Infallible>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<Body>) -> Self::Future {
        Box::pin(async move {
            if request.uri().path() != "/greeter.Greeter/Greet" {
                return Ok(tonic::Status::unimplemented("it greets").into_http());
            }
            let codec: ProstCodec<Greeting, Name> = ProstCodec::default();
            Ok(tonic::server::Grpc::new(codec).unary(Greeter, request).await)
        })
    }
}

/// A stream, as tonic's server takes it.
struct ServedStream(BoxIo);

impl Connected for ServedStream {
    type ConnectInfo = ();

    fn connect_info(&self) {}
}

impl AsyncRead for ServedStream {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        into: &mut ReadBuf<'_>,
    ) -> Poll<std::io::Result<()>> {
        Pin::new(&mut self.0).poll_read(cx, into)
    }
}

impl AsyncWrite for ServedStream {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<std::io::Result<usize>> {
        Pin::new(&mut self.0).poll_write(cx, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<std::io::Result<()>> {
        Pin::new(&mut self.0).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<std::io::Result<()>> {
        Pin::new(&mut self.0).poll_shutdown(cx)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        all: &[std::io::IoSlice<'_>],
    ) -> Poll<std::io::Result<usize>> {
        Pin::new(&mut self.0).poll_write_vectored(cx, all)
    }

    fn is_write_vectored(&self) -> bool {
        self.0.is_write_vectored()
    }
}
