//! Each call that blocks has a form with a timeout, which ends while a peer lives and never reads;
//! and a timeout that no clock can hold is none.
//!
//! Shows: waits.

mod support;

use std::net::{TcpListener, TcpStream};
use std::time::{Duration, Instant};

use rdma_conn::conn_core::handshake::{Endpoint, Frame, Options, Parameters, ProtocolId};
use rdma_conn::multicast::{self, Group, GroupError, JoinError, Leader, join_timeout};
use rdma_conn::send_recv::{ConnectError, RecvError, SendError};
use rdma_conn::verbs_safe::{Buffer, BufferConfig};
use rdma_conn::{BufferedRead, BufferedWrite, RecvHalf, Room, SendHalf, SendRecv};
use rdma_conn::{OfferedMessage, ZeroCopyRecv, ZeroCopySend};
use rdma_conn::{buffered_read, buffered_write, direct_read, send_recv};
use support::raw::{parameters, write_frame};
use support::{bounded, device};

const SHORT: Duration = Duration::from_millis(1);
const MAX: Duration = Duration::MAX;
/// Nothing that was accepted waits for a flush.
const TIMED_OUT: SendError = SendError::TimedOut { unflushed: 0 };
const OFFER_TIMED_OUT: direct_read::OfferError = direct_read::OfferError::Send(TIMED_OUT);

#[test]
fn a_sender_whose_peer_never_reads_waits_no_longer_than_it_says() {
    bounded(|| {
        let device = device();
        let config = support::config::<send_recv::Config>();
        let (mut a, _unread) = rdma_conn::pair::<SendRecv>(&device, &device, &config).unwrap();
        // Until there is no credit left: what is acknowledged makes room in the send queue.
        while a.sender.try_send(b"unread").is_ok() {
            while a.sender.try_send(b"unread").is_ok() {}
            a.sender.wait_all_timeout(MAX).unwrap();
        }
        assert_eq!(a.sender.send_timeout(b"more", SHORT), Err(TIMED_OUT));
        assert_eq!(a.sender.wait_for_room_timeout(4, SHORT), Err(TIMED_OUT));
        assert_eq!(a.sender.send_acked_timeout(b"more", SHORT), Err(TIMED_OUT));

        let config = support::config::<buffered_write::Config>();
        let (mut a, _unread) = rdma_conn::pair::<BufferedWrite>(&device, &device, &config).unwrap();
        // Until there is no room left: what is acknowledged makes room in the send queue.
        while a.sender.try_send(&[7; 4096]).is_ok() {
            while a.sender.send_timeout(&[7; 4096], SHORT).is_ok() {}
            a.sender.wait_all_timeout(MAX).unwrap();
        }
        assert_eq!(a.sender.wait_for_room_timeout(4096, SHORT), Err(TIMED_OUT));
        assert_eq!(a.sender.send_acked_timeout(&[7; 4096], SHORT), Err(TIMED_OUT));

        let config = support::config::<buffered_read::Config>();
        let (mut a, _unread) = rdma_conn::pair::<BufferedRead>(&device, &device, &config).unwrap();
        while a.sender.try_send(&[7; 4096]).is_ok() {}
        assert!(matches!(a.sender.reserve_timeout(4096, SHORT), Err(TIMED_OUT)));
        assert_eq!(a.sender.send_acked_timeout(&[7; 4096], SHORT), Err(TIMED_OUT));
        assert_eq!(a.sender.wait_all_timeout(SHORT), Err(TIMED_OUT));
        assert_eq!(a.sender.close_timeout(SHORT), Err(TIMED_OUT));
    });
}

#[test]
fn threads_that_share_a_sender_wait_no_longer_than_they_say() {
    bounded(|| {
        let device = device();
        let config = support::config::<buffered_read::Config>();
        let (a, _unread) = rdma_conn::pair::<BufferedRead>(&device, &device, &config).unwrap();
        let sender = a.sender.into_shared(4).unwrap();
        let ticket = sender.try_send(&[7; 4096]).unwrap();
        while sender.try_send(&[7; 4096]).is_ok() {}
        assert_eq!(sender.send_timeout(&[7; 4096], SHORT), Err(TIMED_OUT));
        assert_eq!(sender.wait_acked_timeout(ticket, SHORT), Err(TIMED_OUT));
        assert_eq!(sender.close_timeout(SHORT), Err(TIMED_OUT));
    });
}

#[test]
fn an_unread_buffer_is_waited_for_no_longer_than_asked() {
    bounded(|| {
        let (device, config) = (device(), support::config::<direct_read::Config>());
        let (mut sender, _unread) = direct_read::pair(&device, &device, &config).unwrap();
        let buffer = || device.pd().register_buffer(64, BufferConfig::READABLE).unwrap();
        let late = loop {
            match sender.offer_timeout(buffer(), b"", SHORT) {
                Ok(_) => {}
                Err(not_sent) => break not_sent.error,
            }
        };
        assert_eq!(late, OFFER_TIMED_OUT);
        let late = sender.offer_part_timeout(buffer(), 0..8, b"", SHORT).unwrap_err();
        assert_eq!(late.error, OFFER_TIMED_OUT);
        let late = sender.wait_next_timeout(SHORT).map(|_| ());
        assert_eq!(late, Err(TIMED_OUT));
        assert_eq!(sender.wait_all_timeout(SHORT), Err(TIMED_OUT));
        let late = sender.close_and_take_timeout(SHORT).map(|_| ());
        assert_eq!(late, Err(TIMED_OUT));
    });
}

fn group(config: &multicast::Config) -> Vec<Group> {
    multicast::in_process(&device(), config).unwrap()
}

#[test]
fn a_member_of_a_stalled_group_waits_no_longer_than_asked() {
    bounded(|| {
        let config = multicast::Config {
            members: 2,
            window: 4,
            suspect_after: support::NEVER,
            ..support::group()
        };
        // No thread drives either of them: accepted messages are not pushed.
        let members = group(&config);
        let sender = members[0].sender();
        let ticket = sender.try_send(b"unread").unwrap();
        let late = Err(multicast::SendError::TimedOut { unsent: 1 });
        assert_eq!(sender.wait_timeout(ticket, SHORT), late);
        while sender.try_send(b"unread").is_ok() {}
        let late = multicast::SendError::TimedOut { unsent: 4 };
        assert!(late.to_string().ends_with("4 accepted messages were not pushed"), "{late}");
        assert_eq!(sender.send_timeout(b"more", SHORT), Err(late));
        drop(members);

        // One has a thread, the other one lives and does nothing.
        let mut members = group(&config);
        let _idle = members.pop();
        let running = members.remove(0).spawn(|_| {}).unwrap();
        let ticket = running.sender().try_send(b"unread").unwrap();
        let end = Instant::now() + support::PATIENCE;
        while running.sender().wait_timeout(ticket, SHORT)
            != Err(multicast::SendError::TimedOut { unsent: 0 })
        {
            assert!(Instant::now() < end, "its thread has not pushed it");
        }
        let late = running.finish_timeout(SHORT);
        assert!(matches!(late, Err(GroupError::TimedOut { unsent: 0 })), "{late:?}");
    });
}

/// Reports whether the set-up with a peer that does not answer timed out.
fn is_late<T>(made: Result<T, ConnectError>) -> bool {
    made.err().is_some_and(|e| e.is_timeout())
}

#[test]
fn connecting_to_a_silent_peer_takes_no_longer_than_asked() {
    bounded(|| {
        let (device, silent) = (device(), TcpListener::bind("127.0.0.1:0").unwrap());
        let (to, time) = (silent.local_addr().unwrap(), Duration::from_millis(20));
        let config = support::config::<send_recv::Config>();
        assert!(is_late(rdma_conn::connect_timeout::<SendRecv>(to, &device, &config, time)));
        assert!(is_late(rdma_conn::connect_sender_timeout::<SendRecv>(to, &device, &config, time)));
        let config = support::config::<buffered_write::Config>();
        assert!(is_late(rdma_conn::connect_timeout::<BufferedWrite>(to, &device, &config, time)));
        assert!(is_late(rdma_conn::connect_sender_timeout::<BufferedWrite>(
            to, &device, &config, time
        )));
        let config = support::config::<buffered_read::Config>();
        assert!(is_late(rdma_conn::connect_timeout::<BufferedRead>(to, &device, &config, time)));
        assert!(is_late(rdma_conn::connect_sender_timeout::<BufferedRead>(
            to, &device, &config, time
        )));
        let config = support::config::<direct_read::Config>();
        assert!(is_late(direct_read::connect_timeout::<Buffer>(to, &device, &config, time)));
        let config = support::group();
        match join_timeout(to, &device, &config, time) {
            Err(JoinError::Connect(e)) => assert!(e.is_timeout(), "{e:?}"),
            other => panic!("{other:?}"),
        }
    });
}

#[test]
fn accepting_an_unready_peer_takes_no_longer_than_asked() {
    bounded(|| {
        let (device, config) = (device(), support::config::<send_recv::Config>());
        let listener = rdma_conn::Listener::<SendRecv>::bind("127.0.0.1:0").unwrap();
        let mut stream = TcpStream::connect(listener.local_addr()).unwrap();
        let end = Endpoint { qp_num: 0x123, psn: 5, recv_depth: 16, max_message: 64 };
        let hello = Parameters {
            protocol: ProtocolId::SEND_RECV,
            initiator_to_acceptor: Some(end),
            acceptor_to_initiator: Some(end),
            ..parameters(&device, Options::NONE)
        };
        write_frame(&mut stream, &Frame::Hello(hello));
        let incoming = listener.next_timeout(MAX).unwrap().expect("a Hello");
        let accepted = incoming.within(Duration::from_millis(20)).accept(&device, &config);
        assert!(is_late(accepted));
    });
}

#[test]
fn a_timeout_that_no_clock_can_hold_is_none() {
    bounded(|| {
        let (device, config) = (device(), support::config::<send_recv::Config>());
        let listener = rdma_conn::Listener::<SendRecv>::bind("127.0.0.1:0").unwrap();
        let to = listener.local_addr();
        std::thread::scope(|scope| {
            let connecting =
                scope.spawn(|| rdma_conn::connect_timeout::<SendRecv>(to, &device, &config, MAX));
            let incoming = listener.next_timeout(MAX).unwrap().expect("an initiator");
            let mut near = incoming.within(MAX).accept(&device, &config).unwrap();
            let mut far = connecting.join().unwrap().unwrap();
            far.sender.wait_for_room_timeout(8, MAX).unwrap();
            far.sender.send_acked_timeout(b"one", MAX).unwrap();
            let ticket = far.sender.send_timeout(b"two", MAX).unwrap();
            far.sender.wait_acked_timeout(ticket, MAX).unwrap();
            far.sender.wait_all_timeout(MAX).unwrap();
            assert_eq!(&*near.receiver.recv_timeout(MAX).unwrap(), b"one");
            assert_eq!(&*near.receiver.recv_timeout(MAX).unwrap(), b"two");
            far.sender.close_timeout(MAX).unwrap();
            assert_eq!(near.receiver.recv_timeout(MAX).unwrap_err(), RecvError::Closed);
        });

        let config = support::config::<buffered_write::Config>();
        let (mut a, mut b) = rdma_conn::pair::<BufferedWrite>(&device, &device, &config).unwrap();
        a.sender.wait_for_room_timeout(8, MAX).unwrap();
        a.sender.send_timeout(b"one", MAX).unwrap();
        a.sender.flush_timeout(MAX).unwrap();
        a.sender.wait_all_timeout(MAX).unwrap();
        assert_eq!(b.receiver.recv_in_place_timeout(MAX, |_, message| message.len()), Ok(3));

        let config = support::config::<buffered_read::Config>();
        let (mut a, mut b) = rdma_conn::pair::<BufferedRead>(&device, &device, &config).unwrap();
        std::thread::scope(|scope| {
            // It tells what it has read when it finds nothing more.
            scope.spawn(|| while b.receiver.recv_timeout(MAX).is_ok() {});
            a.sender.reserve_timeout(8, MAX).unwrap().commit(3).unwrap();
            a.sender.wait_all_timeout(MAX).unwrap();
            a.sender.close_timeout(MAX).unwrap();
        });
        let (a, b) = rdma_conn::pair::<BufferedRead>(&device, &device, &config).unwrap();
        let (sender, receiver) = (a.sender.into_shared(4).unwrap(), b.receiver.into_shared());
        let ticket = sender.send_timeout(b"one", MAX).unwrap();
        let receiver = receiver.unwrap();
        assert_eq!(receiver.recv_timeout(MAX).unwrap().len(), 3);
        let transfers = receiver.spawn_transfers().unwrap();
        sender.wait_acked_timeout(ticket, MAX).unwrap();
        let transfers = transfers.join_timeout(SHORT).expect_err("the sender has not closed");
        sender.close_timeout(MAX).unwrap();
        assert_eq!(transfers.join_timeout(MAX).unwrap(), Ok(()));

        let config = support::config::<direct_read::Config>();
        let (mut sender, mut receiver) = direct_read::pair(&device, &device, &config).unwrap();
        let buffer = device.pd().register_buffer(64, BufferConfig::READABLE).unwrap();
        sender.offer_timeout(buffer, b"", MAX).unwrap();
        let place = device.pd().register_buffer(64, BufferConfig::default()).unwrap();
        let reading = receiver.next_request_timeout(MAX).unwrap().read_into(place).unwrap();
        assert_eq!(receiver.wait_timeout(reading, MAX).unwrap().len(), 64);
        assert_eq!(sender.wait_next_timeout(MAX).unwrap().outcome, direct_read::Outcome::Read);
        sender.wait_all_timeout(MAX).unwrap();
    });
}

#[test]
fn a_group_ends_by_itself_with_a_timeout_that_no_clock_can_hold() {
    bounded(|| {
        let (device, config) = (device(), multicast::Config { members: 2, ..Default::default() });
        let leader = Leader::bind("127.0.0.1:0").unwrap();
        let to = leader.local_addr();
        let end = |group: Group| {
            group.sender().end();
            group.finish(MAX, |_| {}).unwrap();
        };
        std::thread::scope(|scope| {
            scope.spawn(|| end(join_timeout(to, &device, &config, MAX).unwrap().group));
            end(leader.gather_within(MAX, &device, &config, b"").unwrap().group);
        });

        let mut members = group(&config);
        let (second, first) = (members.pop().unwrap(), members.pop().unwrap());
        let (first, second) = (first.spawn(|_| {}).unwrap(), second.spawn(|_| {}).unwrap());
        let ticket = first.sender().send_timeout(b"one", MAX).unwrap();
        first.sender().wait_timeout(ticket, MAX).unwrap();
        first.sender().end();
        second.finish_timeout(MAX).unwrap();
        first.finish_timeout(MAX).unwrap();

        let mut members = group(&config);
        let (second, first) = (members.pop().unwrap(), members.pop().unwrap());
        let second = second.spawn(|_| {}).unwrap();
        first.leave(MAX, |_| {}).unwrap();
        second.leave_timeout(MAX).unwrap_err();
    });
}
