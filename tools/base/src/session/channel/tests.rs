use std::io::Write;
use std::net::TcpListener;

use super::*;

/// A control message.
#[derive(Serialize, Deserialize, Debug, PartialEq)]
enum TestMessage {
    Begin,
    Sent { messages: u64 },
}

fn wires() -> (ControlChannel<TestMessage>, ControlChannel<TestMessage>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let near = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    (ControlChannel::new(near).unwrap(), ControlChannel::new(listener.accept().unwrap().0).unwrap())
}

#[test]
fn a_wait_ends_with_the_host_at_the_other_end() {
    let (near, mut far) = wires();
    assert!(rustix::net::sockopt::socket_keepalive(&near.stream).unwrap());
    let waited = far.hear_within(Duration::from_millis(1)).unwrap();
    assert_eq!(waited, None, "a peer that is there may be silent");
    assert!(!is_late(ErrorKind::TimedOut), "a timeout of TCP is the end of the connection");
    assert!(!is_late(ErrorKind::Interrupted), "it has the rest of its time");
}

#[test]
fn notes_arrive_in_order_and_an_end_is_noticed() {
    let (mut near, mut far) = wires();
    assert!(far.is_there());
    let sent = TestMessage::Sent { messages: u64::MAX };
    near.tell(&TestMessage::Begin).unwrap();
    near.tell(&sent).unwrap();
    near.give_up(&anyhow::anyhow!("a wrong checksum").context("x".repeat(5000)));
    assert!(far.is_there());
    assert_eq!(far.hear().unwrap(), TestMessage::Begin);
    assert_eq!(far.hear_whenever().unwrap(), sent);
    assert!(matches!(far.last_words(PATIENCE), LastWords::Why(why) if why == "x".repeat(1000)));
    drop(near);
    assert!(far.hear().unwrap_err().to_string().contains(GONE));
    assert!(matches!(far.last_words(PATIENCE), LastWords::Gone));
    assert!(!far.is_there());
}

#[test]
fn what_is_no_note_is_refused() {
    for junk in [&b"HTTP/1.1 400 Bad Request\r\n"[..], &[2, 0, 0, 0, b'{', b'}']] {
        let (near, mut far) = wires();
        (&near.stream).write_all(junk).unwrap();
        assert!(far.hear().unwrap_err().to_string().contains("something else"));
    }
}

#[test]
fn half_a_note_is_not_waited_for() {
    let (near, far) = UnixStream::pair().unwrap();
    let mut near: ControlChannel<TestMessage> = ControlChannel {
        stream: TcpStream::from(OwnedFd::from(near)),
        is_within: true,
        notes: PhantomData,
    };
    assert_eq!(near.hear_within(Duration::from_millis(1)).unwrap(), None);
    assert_eq!(near.heard().unwrap(), None, "a peer that is there may be silent");
    let mut note = vec![0; 4];
    serde_json::to_writer(&mut note, &ChannelMessage::<()>::Failed("too late".into())).unwrap();
    note[0] = note.len() as u8 - 4;
    let mut far = far;
    far.write_all(&note[..1]).unwrap();
    let (over, is_over) = std::sync::mpsc::channel::<()>();
    // The rest arrives later than `last_words` may wait, but within `PATIENCE`.
    let rest = std::thread::spawn(move || {
        let _ = is_over.recv_timeout(PATIENCE / 2);
        let _ = far.write_all(&note[1..]);
    });
    assert!(matches!(near.last_words(Duration::from_millis(1)), LastWords::Gone));
    drop(over);
    rest.join().unwrap();
}
