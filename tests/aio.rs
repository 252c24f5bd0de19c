//! Halves, listeners and connecting as futures (feature `tokio`), over every protocol.
//!
//! Shows: one protocol.

#[macro_use]
mod support;

use std::future::Future;
use std::net::SocketAddr;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Poll, Wake, Waker};
use std::time::Duration;

use futures_util::{SinkExt, StreamExt};
use rdma_conn::aio::{self, Connection, Listener};
use rdma_conn::error::{CloseReason, ConnectError, RecvError, SendError};
use rdma_conn::protocol::Served as _;
use rdma_conn::{Arm, BufferedRead, Common, Protocol, RecvHalf, pair};
use support::{NEVER, assert_content, content, device};
use tokio::runtime::{Builder, Runtime};

over_every_protocol!(
    many_messages_go_both_ways_between_tasks,
    a_future_that_is_dropped_at_any_poll_loses_and_repeats_nothing,
    a_stream_and_a_sink_carry_messages_to_the_end,
    clients_connect_to_a_listener,
    an_address_may_be_any_that_tokio_connects_to,
    a_peer_that_has_gone_ends_what_waits,
    a_stream_ends_with_the_reason_for_which_its_sender_was_lost,
    a_task_that_waits_sleeps,
);

/// With small windows and rings, so that there is often no room, and without a keepalive, which
/// would hide a lost wake-up.
fn quiet<P: Protocol>() -> P::Config {
    let mut config = support::config::<P::Config>();
    *config.as_mut() = Common { keepalive: NEVER, ..support::common() };
    config
}

fn connected<P: Protocol>() -> (Connection<P>, Connection<P>) {
    let device = device();
    let (left, right) = pair::<P>(&device, &device, &quiet::<P>()).unwrap();
    (left.into(), right.into())
}

/// All tasks on one thread, and on two.
fn runtimes() -> [Runtime; 2] {
    let one = Builder::new_current_thread().enable_all().build().unwrap();
    [one, Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap()]
}

fn many_messages_go_both_ways_between_tasks<P: Protocol>() {
    let count = support::repeated(4000);
    for runtime in runtimes() {
        let (left, right) = connected::<P>();
        runtime.block_on(async move {
            let ends = [(left, 0), (right, 1)].map(|(end, own)| {
                let Connection { mut sender, mut receiver } = end;
                let sending = tokio::spawn(async move {
                    for number in 0..count {
                        let message = content(own, number, number as usize % 700);
                        let ticket = sender.send(&message).await.unwrap();
                        if number % 500 == 499 {
                            sender.wait_acked(ticket).await.unwrap();
                        }
                    }
                    sender.close().await.unwrap();
                });
                let receiving = tokio::spawn(async move {
                    for number in 0..count {
                        let message = receiver.recv().await.unwrap();
                        assert_content(&message, 1 - own, number, number as usize % 700);
                    }
                    assert_eq!(receiver.recv().await.map(drop), Err(RecvError::Closed));
                });
                [sending, receiving]
            });
            for task in ends.into_iter().flatten() {
                task.await.unwrap();
            }
        });
    }
}

/// Polls a future `times` times, each when it is woken; `None` if it is still pending then.
async fn polled<T>(times: u32, future: impl Future<Output = T>) -> Option<T> {
    let (mut future, mut left) = (pin!(future), times);
    std::future::poll_fn(|cx| match future.as_mut().poll(cx) {
        Poll::Ready(done) => Poll::Ready(Some(done)),
        Poll::Pending if left == 0 => Poll::Ready(None),
        Poll::Pending => {
            left -= 1;
            Poll::Pending
        }
    })
    .await
}

fn a_future_that_is_dropped_at_any_poll_loses_and_repeats_nothing<P: Protocol>() {
    const BYTES: usize = 4000;
    let count = support::repeated(1200);
    for runtime in runtimes() {
        let (left, right) = connected::<P>();
        runtime.block_on(async move {
            let mut sender = left.sender;
            let sending = tokio::spawn(async move {
                for number in 0..count {
                    let message = content(0, number, BYTES);
                    // From none to more than it takes until the half is armed.
                    let mut times = number as u32 % 25;
                    let ticket = loop {
                        if let Some(sent) = polled(times, sender.send(&message)).await {
                            break sent.unwrap();
                        }
                        times += 1;
                        tokio::task::yield_now().await;
                    };
                    if number % 100 == 0 {
                        while polled(times, sender.wait_acked(ticket)).await.is_none() {
                            times += 1;
                            tokio::task::yield_now().await;
                        }
                    }
                }
                sender.close().await.unwrap();
            });
            let mut receiver = right.receiver;
            for number in 0..count {
                let mut times = number as u32 % 23;
                let message = loop {
                    if let Some(received) = polled(times, receiver.recv()).await {
                        break received.unwrap();
                    }
                    times += 1;
                    tokio::task::yield_now().await;
                };
                assert_content(&message, 0, number, BYTES);
            }
            assert_eq!(receiver.recv().await.map(drop), Err(RecvError::Closed));
            sending.await.unwrap();
        });
    }
}

fn a_stream_and_a_sink_carry_messages_to_the_end<P: Protocol>() {
    let count = support::repeated(1000);
    for runtime in runtimes() {
        let (left, right) = connected::<P>();
        runtime.block_on(async move {
            let sending = tokio::spawn(async move {
                let messages = (0..count).map(|number| Ok(content(0, number, 300)));
                let mut sink = left.sender.into_sink::<Vec<u8>>();
                sink.send_all(&mut futures_util::stream::iter(messages)).await.unwrap();
                sink.close().await.unwrap();
            });
            let mut number = 0;
            let mut stream = right.receiver;
            while let Some(message) = stream.next().await {
                assert_content(&message.unwrap(), 0, number, 300);
                number += 1;
            }
            assert_eq!(number, count);
            assert!(stream.next().await.is_none());
            sending.await.unwrap();
        });
    }
}

fn clients_connect_to_a_listener<P: Protocol>() {
    const CLIENTS: u64 = 3;
    for runtime in runtimes() {
        let device = device();
        runtime.block_on(async move {
            let listener = Listener::<P>::bind("127.0.0.1:0").unwrap();
            let address = listener.local_addr();
            // A future that is dropped takes no client with it.
            assert!(polled(0, listener.next()).await.is_none());
            let silent = std::net::TcpStream::connect(address).unwrap();
            let clients = (0..CLIENTS).map(|client| {
                let device = device.clone();
                tokio::spawn(async move {
                    let connected = aio::connect::<P>(address, &device, &quiet::<P>()).await;
                    let Connection { mut sender, mut receiver } = connected.unwrap();
                    sender.send(&content(client, 0, 40)).await.unwrap();
                    sender.flush().await.unwrap();
                    assert_content(&receiver.recv().await.unwrap(), client, 1, 40);
                    sender.close().await.unwrap();
                })
            });
            let clients: Vec<_> = clients.collect();
            for _ in 0..CLIENTS {
                let incoming = listener.next().await.unwrap();
                let accepted = incoming.accept(&device, &quiet::<P>()).await.unwrap();
                let Connection { mut sender, mut receiver } = accepted;
                let request = receiver.recv().await.unwrap();
                let is_of = |client: &u64| *request == *content(*client, 0, 40);
                let client = (0..CLIENTS).find(is_of).unwrap();
                sender.send(&content(client, 1, 40)).await.unwrap();
                sender.flush().await.unwrap();
                drop(request);
                assert_eq!(receiver.recv().await.map(drop), Err(RecvError::Closed));
            }
            for client in clients {
                client.await.unwrap();
            }
            drop(silent);
        });
    }
}

/// Connects to the listener by this address.
async fn meet<P: Protocol>(listener: &Listener<P>, address: impl tokio::net::ToSocketAddrs) {
    let (device, config) = (device(), quiet::<P>());
    let accepting = async { listener.next().await?.accept(&device, &config).await };
    let (near, far) = tokio::join!(aio::connect::<P>(address, &device, &config), accepting);
    for Connection { sender, receiver } in [near.unwrap(), far.unwrap()] {
        sender.abort();
        receiver.abort();
    }
}

fn an_address_may_be_any_that_tokio_connects_to<P: Protocol>() {
    let [runtime, _] = runtimes();
    runtime.block_on(async {
        let listener = Listener::<P>::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr();
        let text = address.to_string();
        meet(&listener, &*text).await;
        meet(&listener, ("127.0.0.1", address.port())).await;
        meet(&listener, &address).await;
        // Nothing listens on port 1: the next one is tried.
        let all = [SocketAddr::from(([127, 0, 0, 1], 1)), address];
        meet(&listener, &all[..]).await;
        let nowhere = aio::connect::<P>("127.0.0.1:1", &device(), &quiet::<P>()).await;
        assert!(matches!(nowhere, Err(ConnectError::Unreached { .. })), "{nowhere:?}");
    });
}

fn a_peer_that_has_gone_ends_what_waits<P: Protocol>() {
    for runtime in runtimes() {
        let (left, right) = connected::<P>();
        runtime.block_on(async move {
            let Connection { sender: mut sending, receiver: mut waiting } = left;
            let waits = tokio::spawn(async move { waiting.recv().await.map(drop) });
            let sends = tokio::spawn(async move {
                loop {
                    // Until there is no more room, and then until the end.
                    if let Err(ended) = sending.send(&[7; 4000]).await {
                        break ended;
                    }
                }
            });
            drop(right);
            assert_eq!(waits.await.unwrap(), Err(RecvError::Closed));
            let ended = sends.await.unwrap();
            assert!(
                matches!(
                    ended,
                    SendError::Ended(CloseReason::PeerClosed { .. } | CloseReason::Closed)
                ),
                "{ended:?}"
            );
        });
    }
}

/// The sender is aborted, and says no goodbye.
fn a_stream_ends_with_the_reason_for_which_its_sender_was_lost<P: Protocol>() {
    let mut config = support::config::<P::Config>();
    let keepalive = Duration::from_millis(20);
    let transport = support::mortal();
    *config.as_mut() = Common { keepalive, transport, ..support::common() };
    for runtime in runtimes() {
        let device = device();
        let (left, right) = pair::<P>(&device, &device, &config).unwrap();
        runtime.block_on(async move {
            let (left, right) = (Connection::<P>::from(left), Connection::<P>::from(right));
            left.sender.abort();
            let mut stream = right.receiver;
            let lost = stream.next().await;
            let Some(Err(RecvError::Peer { reason: reason @ CloseReason::PeerLost(_), .. })) = lost
            else {
                panic!("{lost:?}")
            };
            let ended = stream.next().await.map(|next| next.map(drop));
            assert_eq!(ended, Some(Err(RecvError::Ended(reason))));
            assert!(stream.next().await.is_none());
            left.receiver.abort();
            right.sender.abort();
        });
    }
}

/// Counts how often a task is woken.
struct Counting {
    inner: Waker,
    wakes: AtomicU64,
}

impl Wake for Counting {
    fn wake(self: Arc<Counting>) {
        // Relaxed: it is looked at when all is over.
        self.wakes.fetch_add(1, Ordering::Relaxed);
        self.inner.wake_by_ref();
    }
}

/// Worlds count the looks of one that no event wakes (`worlds/tests/asleep.rs`).
fn a_task_that_waits_sleeps<P: Protocol>() {
    /// Events, and the few looks before the first sleep: they are as many however long it waits.
    const MOST: u64 = 200;
    let [runtime, _] = runtimes();
    let (mut left, right) = connected::<P>();
    runtime.block_on(async move {
        let mut receiver = right.receiver;
        // A Buffered Read receiver that sleeps also looks after `max_sleep`.
        let has_event = P::NAME != BufferedRead::NAME
            && (0..10).any(|_| matches!(receiver.half().arm(), Ok(Arm::Fd(_))));
        let mut counting = None;
        let received = {
            let mut receiving = pin!(receiver.recv());
            let receiving = std::future::poll_fn(|cx| {
                let new = || Counting { inner: cx.waker().clone(), wakes: AtomicU64::new(0) };
                let counting = counting.get_or_insert_with(|| Arc::new(new()));
                receiving.as_mut().poll(&mut Context::from_waker(&Waker::from(counting.clone())))
            });
            let waits = Duration::from_millis(300);
            let mut receiving = pin!(receiving);
            assert!(tokio::time::timeout(waits, receiving.as_mut()).await.is_err());
            left.sender.send(b"at last").await.unwrap();
            left.sender.flush().await.unwrap();
            receiving.await.unwrap()
        };
        assert_eq!(&*received, b"at last");
        let wakes = counting.unwrap().wakes.load(Ordering::Relaxed);
        assert!(!has_event || wakes < MOST, "woken {wakes} times");
        assert_eq!(receiver.half().peers(), 1);
    });
}
