//! A message that a call has accepted needs no further call to be sent, unless the program
//! asks for gathering; where that cannot be, it is not accepted.
//!
//! Shows: one protocol.

mod support;

use rdma_conn::Common;
use rdma_conn::{OfferedMessage, ZeroCopyRecv, ZeroCopySend};
use std::time::Duration;

use rdma_conn::buffered_write::{self, Tail};
use rdma_conn::ring::{Layout, RingShape};
use rdma_conn::send_recv::{Full, RecvError, SendError};
use rdma_conn::{BufferedRead, BufferedWrite, RecvHalf, SendHalf, SendRecv};
use rdma_conn::{buffered_read, direct_read, send_recv};
use support::{NEVER, PATIENCE, bounded, device};

/// More than a batch, and no multiple of one.
const SOME: u8 = 11;

#[test]
fn a_default_connection_sends_what_it_accepts() {
    bounded(|| {
        let device = device();
        let config = send_recv::Config {
            common: Common { keepalive: NEVER, ..support::common() },
            ..support::config::<send_recv::Config>()
        };
        let (mut a, mut b) = rdma_conn::pair::<SendRecv>(&device, &device, &config).unwrap();
        for number in 0..SOME {
            a.sender.send(&[number]).unwrap();
        }
        for number in 0..SOME {
            assert_eq!(*b.receiver.recv_timeout(PATIENCE).unwrap(), [number]);
        }
    });
    bounded(|| {
        let device = device();
        let config = buffered_read::Config {
            common: Common { keepalive: NEVER, ..support::common() },
            ..Default::default()
        };
        let (mut a, mut b) = rdma_conn::pair::<BufferedRead>(&device, &device, &config).unwrap();
        for number in 0..SOME {
            a.sender.send(&[number]).unwrap();
        }
        for number in 0..SOME {
            assert_eq!(*b.receiver.recv_timeout(PATIENCE).unwrap(), [number]);
        }
    });
    bounded(|| {
        let device = device();
        let readable = direct_read::BufferConfig::READABLE;
        let config = direct_read::Config {
            common: Common { keepalive: NEVER, ..support::common() },
            ..Default::default()
        };
        let (mut sender, mut receiver) = direct_read::pair(&device, &device, &config).unwrap();
        for number in 0..SOME {
            let buffer = device.pd().register_buffer(8, readable).unwrap();
            sender.offer(buffer, &[number]).unwrap();
        }
        for number in 0..SOME {
            let request = receiver.next_request().unwrap();
            assert_eq!(request.app(), [number]);
            request.refuse();
        }
    });
}

/// As many messages as are accepted arrive, though the sender makes no further call: also
/// those behind which there was no room for a push.
#[test]
fn buffered_write_accepts_what_it_can_push() {
    for tail in [Tail::Written, Tail::Immediate { window: 2 }] {
        for send_queue in [4, 128] {
            bounded(move || {
                let device = device();
                let ring =
                    RingShape { ring_bytes: 1 << 16, message_bytes: 256, layout: Layout::Plain };
                let base = buffered_write::Config {
                    ring,
                    tail,
                    common: Common { keepalive: NEVER, ..support::common() },
                    ..Default::default()
                };
                let config =
                    buffered_write::Config { send_queue, signal_every: send_queue, ..base };
                let (mut a, mut b) =
                    rdma_conn::pair::<BufferedWrite>(&device, &device, &config).unwrap();
                let mut accepted = 0;
                let full = loop {
                    match a.sender.try_send(&[accepted as u8; 64]) {
                        Ok(_) => accepted += 1,
                        Err(e) => break e,
                    }
                };
                let SendError::Full(full) = full else { panic!("{full:?}") };
                assert!(tail == Tail::Written || full == Full::Credits, "{full:?}");
                for number in 0..accepted {
                    let message = b.receiver.recv_timeout(PATIENCE).unwrap();
                    assert_eq!(*message, [number as u8; 64]);
                }
                assert_eq!(b.receiver.try_recv().unwrap_err(), RecvError::Empty);
            });
        }
    }
}

/// A sender that batches gets the number of messages that are not flushed.
#[test]
fn a_timeout_names_what_is_not_flushed() {
    bounded(|| {
        let (device, soon) = (device(), Duration::from_millis(1));
        let config = send_recv::Config {
            unacked: 1,
            pack_bytes: 64,
            message_bytes: 64,
            common: Common { keepalive: NEVER, ..support::common() },
            recv_depth: 1,
            ..support::config::<send_recv::Config>()
        };
        let (mut a, _b) = rdma_conn::pair::<SendRecv>(&device, &device, &config).unwrap();
        a.sender.send_acked(b"takes the only credit").unwrap();
        assert_eq!(a.sender.unflushed(), 0);
        let refused = a.sender.send_timeout(b"no credit", soon).unwrap_err();
        assert_eq!(refused, SendError::TimedOut { unflushed: 0 });

        let tail = Tail::Immediate { window: 1 };
        let base = buffered_write::Config {
            tail,
            common: Common { keepalive: NEVER, ..support::common() },
            ..Default::default()
        };
        let config = buffered_write::Config { batch_bytes: 1 << 16, ..base };
        let (mut a, _b) = rdma_conn::pair::<BufferedWrite>(&device, &device, &config).unwrap();
        a.sender.send_acked(b"takes the only credit").unwrap();
        let ticket = (0..3).map(|_| a.sender.try_send(b"gathered").unwrap()).last().unwrap();
        assert_eq!(a.sender.unflushed(), 3);
        let late = a.sender.wait_acked_timeout(ticket, soon).unwrap_err();
        assert_eq!(late, SendError::TimedOut { unflushed: 3 });
        assert_eq!(late.to_string(), "timed out; 3 accepted messages are not flushed");
    });
}

/// Room for a push is what a timed send waits for.
#[test]
fn a_timed_send_into_a_full_window_times_out() {
    bounded(|| {
        let device = device();
        let tail = Tail::Immediate { window: 2 };
        let config = buffered_write::Config {
            tail,
            common: Common { keepalive: NEVER, ..support::common() },
            ..Default::default()
        };
        let (mut a, mut b) = rdma_conn::pair::<BufferedWrite>(&device, &device, &config).unwrap();
        let soon = Duration::from_millis(1);
        let mut accepted = 0_u8;
        let full = loop {
            match a.sender.send_timeout(&[accepted], soon) {
                Ok(_) => accepted += 1,
                Err(e) => break e,
            }
        };
        assert_eq!(full, SendError::TimedOut { unflushed: 0 });
        assert!(a.sender.try_reserve(8).is_err(), "what is committed could not be pushed");
        for number in 0..accepted {
            assert_eq!(*b.receiver.recv().unwrap(), [number]);
        }
        a.sender.send(b"there is room again").unwrap();
        assert_eq!(&*b.receiver.recv().unwrap(), b"there is room again");
    });
}
