use std::sync::mpsc::channel;

use super::*;

fn interrupted() -> Interrupted {
    Interrupted::from_name("SIGTERM")
}

#[test]
fn a_copy_at_its_end_reports_before_a_signal_ends_the_process() {
    let underway = Underway::default();
    let enter = |from: &str| underway.enter(from.parse().ok(), CopyLimits::of_process()).unwrap();
    let (over, open) = (enter("192.0.2.1:1"), enter("192.0.2.2:2"));
    over.is_at_end();
    let (began, reported) = (channel(), channel());
    let other = underway.clone();
    let signal = std::thread::spawn(move || {
        began.0.send(()).unwrap();
        other.interrupt(interrupted(), |left| {
            assert_eq!(reported.1.try_recv(), Ok(()), "it has not waited for the report");
            left.iter().map(|ongoing| ongoing.peer.clone()).collect::<Vec<_>>()
        })
    });
    began.1.recv().unwrap();
    reported.0.send(()).unwrap();
    drop(over);
    assert_eq!(signal.join().unwrap(), ["192.0.2.2:2"]);
    drop(open);
    assert!(underway.interrupt(interrupted(), <[_]>::is_empty));
}

#[test]
fn the_number_of_copies_is_limited_in_all_and_per_address() {
    assert_eq!(CopyLimits::with_descriptors(usize::MAX), CopyLimits { all: 64, of_one: 16 });
    assert_eq!(CopyLimits::with_descriptors(1_024), CopyLimits { all: 64, of_one: 16 });
    assert_eq!(CopyLimits::with_descriptors(256), CopyLimits { all: 10, of_one: 3 });
    assert_eq!(CopyLimits::with_descriptors(0), CopyLimits { all: 1, of_one: 1 });
    let (underway, places) = (Underway::default(), CopyLimits { all: 3, of_one: 2 });
    let enter = |from: &str| underway.enter(from.parse().ok(), places);
    let first = enter("192.0.2.1:1").unwrap();
    let _second = enter("192.0.2.1:2").unwrap();
    let why = enter("192.0.2.1:3").unwrap_err();
    assert!(why.contains("2 copies from this address"), "{why}");
    let _third = enter("192.0.2.2:1").unwrap();
    let why = enter("192.0.2.3:1").unwrap_err();
    assert!(why.contains("3 copies are being received"), "{why}");
    drop(first);
    assert!(enter("192.0.2.1:3").is_ok());
}

#[test]
fn what_is_sent_is_reported_once() {
    let sending = SentCopies::new([Arc::new(Ongoing::new("there".into()))]);
    sending.ended(0, 7);
    let outcome = |copies: Vec<(_, Option<u32>)>| Ok(copies[0].1);
    assert_eq!(sending.interrupt(interrupted(), outcome).unwrap().unwrap(), Some(7));
    assert!(sending.report(outcome).is_none());
}

#[test]
fn a_last_word_arrives() {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let near = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    let mut far = listener.accept().unwrap().0;
    let ongoing = Ongoing::new("there".into());
    ongoing.tell_last(interrupted()); // not connected yet
    ongoing.connected(&near).unwrap();
    ongoing.tell_last(interrupted());
    drop((ongoing, near));
    assert_eq!(last_word(&mut far).unwrap(), "interrupted by SIGTERM");
    assert_eq!(last_word(&mut far), None);
}
