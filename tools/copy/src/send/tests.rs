use std::io::Write;
use std::net::TcpListener;

use super::*;

#[test]
fn replies_are_read_no_faster_than_they_are_taken() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let near = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    let mut far = listener.accept().unwrap().0;
    let replies = listen(&near).unwrap();
    assert!(rustix::net::sockopt::socket_keepalive(&near).unwrap(), "or it never ends");
    let why = "x".repeat(60_000);
    let reply = CopyReply::Failed { entry: 1, why };
    let limit = Duration::from_secs(3);
    let tell = |_: &usize| frame::write(&mut far, &reply, MOST_REPLY, limit).is_ok();
    // The replies that are kept, and those in socket buffers, are far fewer.
    let told = (0..8 * REPLIES).take_while(tell).count();
    assert!((REPLIES..8 * REPLIES).contains(&told), "{told}");
    drop(replies);
}

#[test]
fn a_reply_that_has_begun_has_a_limit() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let mut stream = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    let mut far = listener.accept().unwrap().0;
    let reply = CopyReply::Done { entry: 7 };
    frame::write(&mut far, &reply, MOST_REPLY, PATIENCE).unwrap();
    far.write_all(&[9, 0, 0, 0, b'{']).unwrap();
    let patience = Duration::from_millis(20);
    assert_eq!(next_reply(&mut stream, patience).unwrap(), reply);
    assert!(next_reply(&mut stream, patience).is_err(), "it was waited for");
}
