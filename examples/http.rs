//! HTTP over connections, by hyper: a server and a client in one process, HTTP/1 and HTTP/2, over
//! streams of bytes of each connection, beside a Unix socket and TCP.
//!
//! ```text
//! cargo run --release --features tokio --example http [-- MEBIBYTES]
//! ```
//!
//! It prints the median of the time of a small request, and how fast a body of MEBIBYTES MiB (1024)
//! is read.

pub(crate) mod transports;

use std::convert::Infallible;
use std::error::Error;
use std::io::{self, ErrorKind};
use std::time::{Duration, Instant};

use bytes::Bytes;
use futures_util::stream;
use http_body_util::combinators::BoxBody;
use http_body_util::{BodyExt, Empty, Full, StreamBody};
use hyper::body::{Frame, Incoming};
use hyper::service::service_fn;
use hyper::{Request, Response, StatusCode};
use hyper_util::rt::{TokioExecutor, TokioIo};
use rdma_conn::device::{self, Device};
use transports::{BoxIo, ConnectionKind, Result};

/// Bytes of a frame of a long body.
const FRAME: usize = 64 << 10;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Version {
    Http1,
    Http2,
}

/// The client's connection, of either version.
enum Client {
    Http1(hyper::client::conn::http1::SendRequest<Empty<Bytes>>),
    Http2(hyper::client::conn::http2::SendRequest<Empty<Bytes>>),
}

pub(crate) fn main() -> Result {
    let mebibytes = match std::env::args().nth(1) {
        Some(number) => number.parse()?,
        None => 1024,
    };
    let device = device::of_environment()?;
    let runtime =
        tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
    println!("{:<10}{:<16}{:>12}{:>14}", "", "", "request, µs", "body, MB/s");
    for version in [Version::Http1, Version::Http2] {
        for transport in ConnectionKind::ALL {
            let (half, rate) =
                runtime.block_on(measure(&device, transport, version, 2000, mebibytes << 20))?;
            let (name, us) = (transport.name(), half.as_secs_f64() * 1e6);
            println!("{:<10}{name:<16}{us:>12.1}{:>14.0}", format!("{version:?}"), rate / 1e6);
        }
    }
    Ok(())
}

/// The median time of a small request, and bytes a second of a long body.
pub(crate) async fn measure(
    device: &Device,
    transport: ConnectionKind,
    version: Version,
    requests: usize,
    body: u64,
) -> Result<(Duration, f64)> {
    let [near, far] = transport.ends(device).await?;
    let serving = tokio::spawn(serve(far, version));
    let mut client = Client::connect(near, version).await?;
    let mut times = Vec::with_capacity(requests);
    for _ in 0..requests {
        let start = Instant::now();
        assert_eq!(client.get("/hello").await?.collect().await?.to_bytes(), "hello");
        times.push(start.elapsed());
    }
    times.sort();
    let start = Instant::now();
    let mut incoming = client.get(&format!("/body/{body}")).await?;
    let (mut length, mut sum) = (0, 0_u64);
    while let Some(frame) = incoming.frame().await {
        if let Ok(data) = frame?.into_data() {
            length += data.len() as u64;
            sum += data.last().map_or(0, |byte| u64::from(*byte));
        }
    }
    let time = start.elapsed();
    assert_eq!((length, sum > 0), (body, body > 0));
    // The server ends with its client, of which a body is a part.
    drop((client, incoming));
    serving.await??;
    Ok((times.get(requests / 2).copied().unwrap_or_default(), length as f64 / time.as_secs_f64()))
}

async fn serve(io: BoxIo, version: Version) -> Result {
    let (io, service) = (TokioIo::new(io), service_fn(answer));
    match version {
        Version::Http1 => {
            hyper::server::conn::http1::Builder::new().serve_connection(io, service).await?;
        }
        Version::Http2 => {
            let builder = hyper::server::conn::http2::Builder::new(TokioExecutor::new());
            match builder.serve_connection(io, service).await {
                Err(e) if is_gone(&e) => {}
                done => done?,
            }
        }
    }
    Ok(())
}

/// The client has left, and does not read the server's answer to its GOAWAY: over a Unix socket or
/// a connection, writing it fails if the client was fast.
fn is_gone(error: &hyper::Error) -> bool {
    let io = error.source().and_then(|source| source.downcast_ref::<io::Error>());
    io.is_some_and(|io| matches!(io.kind(), ErrorKind::BrokenPipe | ErrorKind::ConnectionReset))
}

/// `/hello`, and `/body/BYTES`.
async fn answer(request: Request<Incoming>) -> Result<Response<BoxBody<Bytes, Infallible>>> {
    let path = request.uri().path();
    if path == "/hello" {
        return Ok(Response::new(Full::from("hello").boxed()));
    }
    let Some(bytes) = path.strip_prefix("/body/").and_then(|bytes| bytes.parse::<u64>().ok())
    else {
        let mut missing = Response::new(Empty::new().boxed());
        *missing.status_mut() = StatusCode::NOT_FOUND;
        return Ok(missing);
    };
    let frame = Bytes::from(vec![7; FRAME]);
    let frames = (0..bytes.div_ceil(FRAME as u64)).map(move |number| {
        let length = (bytes - number * FRAME as u64).min(FRAME as u64);
        Ok(Frame::data(frame.slice(..length as usize)))
    });
    Ok(Response::new(BoxBody::new(StreamBody::new(stream::iter(frames)))))
}

impl Client {
    async fn connect(io: BoxIo, version: Version) -> Result<Client> {
        let io = TokioIo::new(io);
        Ok(match version {
            Version::Http1 => {
                let (client, connection) = hyper::client::conn::http1::handshake(io).await?;
                tokio::spawn(connection);
                Client::Http1(client)
            }
            Version::Http2 => {
                let builder = hyper::client::conn::http2::Builder::new(TokioExecutor::new());
                let (client, connection) = builder.handshake(io).await?;
                tokio::spawn(connection);
                Client::Http2(client)
            }
        })
    }

    async fn get(&mut self, path: &str) -> Result<Incoming> {
        let request = Request::get(format!("http://server{path}")).body(Empty::new())?;
        let response = match self {
            Client::Http1(client) => {
                client.ready().await?;
                client.send_request(request).await?
            }
            Client::Http2(client) => {
                client.ready().await?;
                client.send_request(request).await?
            }
        };
        assert_eq!(response.status(), StatusCode::OK);
        Ok(response.into_body())
    }
}
