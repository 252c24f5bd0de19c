//! Connections as streams of bytes, over every protocol.
//!
//! Shows: one protocol.

#[macro_use]
mod support;

use std::io::{BufRead, ErrorKind, IoSlice, Read, Write};

use rdma_conn::io::ByteStream;
use rdma_conn::{Common, Protocol, pair};
use support::{NEVER, Random, content, device};

over_every_protocol!(
    bytes_arrive_in_order_however_they_are_cut,
    each_direction_ends_by_itself,
    a_peer_that_has_closed_breaks_the_pipe,
    tasks_read_and_write_both_ways,
);

fn connected<P: Protocol>() -> (ByteStream<P>, ByteStream<P>) {
    let (device, mut config) = (device(), support::config::<P::Config>());
    *config.as_mut() = Common { keepalive: NEVER, ..support::common() };
    let (left, right) = pair::<P>(&device, &device, &config).unwrap();
    (ByteStream::new(left), ByteStream::new(right))
}

fn bytes_arrive_in_order_however_they_are_cut<P: Protocol>() {
    let bytes = content(3, 1, support::repeated(400_000) as usize);
    let (left, mut right) = connected::<P>();
    let sent = bytes.clone();
    let sending = std::thread::spawn(move || {
        let (_reader, mut writer) = left.into_split();
        let (mut random, mut rest) = (Random::new(11), &sent[..]);
        while !rest.is_empty() {
            let bytes = rest.len().min(random.below(9000) as usize);
            let written = match random.below(2) {
                0 => writer.write(&rest[..bytes]).unwrap(),
                _ => {
                    let (one, two) = rest[..bytes].split_at(bytes / 3);
                    let all = [IoSlice::new(one), IoSlice::new(&[]), IoSlice::new(two)];
                    writer.write_vectored(&all).unwrap()
                }
            };
            assert!(written > 0 || bytes == 0);
            rest = &rest[written..];
        }
        writer.close().unwrap();
        writer.close().unwrap();
        assert_eq!(writer.write(b"more").unwrap_err().kind(), ErrorKind::BrokenPipe);
        _reader
    });
    let (mut random, mut received) = (Random::new(12), Vec::new());
    loop {
        if random.below(4) == 0 {
            let there = right.fill_buf().unwrap();
            let taken = there.len().min(100);
            received.extend_from_slice(&there[..taken]);
            right.consume(taken);
            continue;
        }
        let mut into = vec![0; 1 + random.below(7000) as usize];
        let read = right.read(&mut into).unwrap();
        received.extend_from_slice(&into[..read]);
        if read == 0 {
            break;
        }
    }
    assert!(received == bytes, "{} of {} bytes", received.len(), bytes.len());
    assert_eq!(right.read(&mut [0]).unwrap(), 0, "the end stays");
    drop(sending.join().unwrap());
}

fn each_direction_ends_by_itself<P: Protocol>() {
    let (mut left, mut right) = connected::<P>();
    let replying = std::thread::spawn(move || {
        let mut request = String::new();
        right.read_to_string(&mut request).unwrap();
        assert_eq!(request, "all of the request");
        right.write_all(b"and a reply").unwrap();
        right.flush().unwrap();
        right
    });
    left.write_all(b"all of ").unwrap();
    left.write_all(b"").unwrap();
    left.write_all(b"the request").unwrap();
    left.close_write().unwrap();
    let mut reply = [0; 11];
    left.read_exact(&mut reply).unwrap();
    assert_eq!(&reply, b"and a reply");
    let right = replying.join().unwrap();
    let dropping = std::thread::spawn(move || drop(right));
    assert_eq!(left.read(&mut [0]).unwrap(), 0);
    dropping.join().unwrap();
}

fn a_peer_that_has_closed_breaks_the_pipe<P: Protocol>() {
    let (mut left, right) = connected::<P>();
    let dropping = std::thread::spawn(move || drop(right));
    let broken = loop {
        if let Err(broken) = left.write_all(&[1; 1000]) {
            break broken;
        }
    };
    assert_eq!(broken.kind(), ErrorKind::BrokenPipe, "{broken}");
    assert_eq!(left.read(&mut [0]).unwrap(), 0);
    dropping.join().unwrap();
}

use asynchronous::tasks_read_and_write_both_ways;

/// The traits of both kinds have methods of the same names.
mod asynchronous {
    use std::io::IoSlice;

    use rdma_conn::Protocol;
    use tokio::io::{AsyncReadExt, AsyncWriteExt};

    use super::{connected, content, support};

    pub(super) fn tasks_read_and_write_both_ways<P: Protocol>() {
        let bytes = content(4, 1, support::repeated(300_000) as usize);
        let runtimes = [
            tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap(),
            tokio::runtime::Builder::new_multi_thread()
                .worker_threads(2)
                .enable_all()
                .build()
                .unwrap(),
        ];
        for runtime in runtimes {
            let (left, right) = connected::<P>();
            let bytes = bytes.clone();
            runtime.block_on(async move {
                let echoing = tokio::spawn(async move {
                    let (mut reader, mut writer) = right.into_split();
                    let copied = tokio::io::copy_buf(&mut reader, &mut writer).await.unwrap();
                    writer.shutdown().await.unwrap();
                    (copied, reader)
                });
                let (mut reader, mut writer) = left.into_split();
                let sent = bytes.clone();
                let sending = tokio::spawn(async move {
                    for piece in sent.chunks(12_345) {
                        let (one, two) = piece.split_at(100.min(piece.len()));
                        writer.write_all(one).await.unwrap();
                        let written = writer.write_vectored(&[IoSlice::new(two)]).await.unwrap();
                        writer.write_all(&two[written..]).await.unwrap();
                    }
                    writer.flush().await.unwrap();
                    writer.shutdown().await.unwrap();
                    assert!(writer.write_all(b"more").await.is_err());
                });
                let mut echo = Vec::new();
                reader.read_to_end(&mut echo).await.unwrap();
                assert!(echo == bytes, "{} of {} bytes", echo.len(), bytes.len());
                sending.await.unwrap();
                assert_eq!(echoing.await.unwrap().0, bytes.len() as u64);
            });
        }
    }
}
