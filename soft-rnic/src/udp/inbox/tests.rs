use super::super::outbox::PacketOutbox;
use super::*;

const HERE: [&str; 2] = ["127.0.0.2:0", "[::1]:0"];

fn port(addr: &str) -> UdpPort {
    UdpPort::bind(addr.parse().unwrap()).unwrap()
}

fn packet(n: usize, len: usize) -> Vec<u8> {
    (0..len).map(|i| (n * 7 + i) as u8).collect()
}

/// Sends packets of these lengths; returns the received ones, and which of its run each was.
fn exchanged(here: &str, lens: &[usize], cuts: bool) -> (Vec<(Vec<u8>, Marks)>, Vec<u16>) {
    let (a, b) = (port(here), port(here));
    let marks = Marks { class: 0xb8, hops: 17 };
    let mut outbox = PacketOutbox::new(cuts);
    let mut nths = Vec::new();
    for (n, len) in lens.iter().enumerate() {
        let (nth, room) = outbox.push(b.local(), marks, *len).unwrap();
        room.copy_from_slice(&packet(n, *len));
        nths.push(nth);
    }
    assert_eq!(outbox.send(&a), Ok(lens.len()));
    assert!(outbox.is_empty());
    let (mut inbox, mut came) = (PacketInbox::default(), Vec::new());
    while came.len() < lens.len() {
        assert_eq!(
            b.wait(None, std::time::Duration::from_secs(10)),
            Ok(true),
            "{} arrived",
            came.len()
        );
        while inbox.receive(&b).unwrap() {
            came.extend(inbox.datagrams().map(|datagram| {
                assert_eq!(datagram.from, a.local());
                (datagram.bytes.to_vec(), datagram.marks)
            }));
        }
    }
    assert_eq!(inbox.dropped(), 0);
    (came, nths)
}

#[test]
fn packets_come_as_they_were_sent_with_their_marks() {
    let lens = [1024, 1024, 1024, 100, 100, 8, 1024, 1400, 2, 1];
    for here in HERE {
        for cuts in [false, true] {
            let (came, _) = exchanged(here, &lens, cuts);
            let sent = lens.iter().enumerate().map(|(n, len)| packet(n, *len));
            let marks = Marks { class: 0xb8, hops: 17 };
            assert!(came.into_iter().eq(sent.map(|bytes| (bytes, marks))), "{here} {cuts}");
        }
    }
}

#[test]
fn what_is_withdrawn_is_not_sent() {
    let (a, b) = (port(HERE[0]), port(HERE[0]));
    let mut outbox = PacketOutbox::new(true);
    let marks = Marks::default();
    for len in [8, 8, 4] {
        outbox.push(b.local(), marks, len).unwrap().1.fill(len as u8);
    }
    outbox.withdraw();
    assert_eq!(outbox.push(b.local(), marks, 8).map(|(nth, _)| nth), Some(2));
    outbox.withdraw();
    assert_eq!(outbox.send(&a), Ok(2));
    outbox.push(b.local(), marks, 8).unwrap();
    outbox.withdraw();
    assert!(outbox.is_empty());
    assert_eq!(b.wait(None, std::time::Duration::from_secs(10)), Ok(true));
    let mut inbox = PacketInbox::default();
    assert_eq!(inbox.receive(&b), Ok(true));
    assert!(inbox.datagrams().map(|datagram| datagram.bytes).eq([[8; 8]; 2]));
}

#[test]
fn equal_packets_are_a_run_which_a_shorter_one_ends() {
    let (_, nths) = exchanged(HERE[0], &[64, 64, 64, 8, 64, 64], true);
    assert_eq!(nths, [0, 1, 2, 3, 0, 1]);
    let (_, nths) = exchanged(HERE[0], &[64, 64, 64], false);
    assert_eq!(nths, [0, 0, 0]);
}

/// An error that has no connection with runs says nothing about them.
#[test]
fn an_error_of_another_kind_does_not_end_runs() {
    let a = port("127.0.0.1:0");
    let everyone = "255.255.255.255:9".parse().unwrap();
    let mut outbox = PacketOutbox::new(true);
    for _ in 0..2 {
        for nth in [0, 1] {
            let pushed = outbox.push(everyone, Marks::default(), 64);
            assert_eq!(pushed.map(|(nth, _)| nth), Some(nth));
        }
        // The socket may not broadcast.
        assert_eq!(outbox.send(&a), Err(Errno::ACCESS));
        assert!(outbox.is_empty());
    }
}
