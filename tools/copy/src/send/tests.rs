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
    let mut line = serde_json::to_vec(&Reply::Failed { entry: 1, why }).unwrap();
    line.push(b'\n');
    far.set_write_timeout(Some(Duration::from_secs(3))).unwrap();
    // The replies that are kept, and those in socket buffers, are far fewer.
    let told = (0..8 * REPLIES).take_while(|_| far.write_all(&line).is_ok()).count();
    assert!((REPLIES..8 * REPLIES).contains(&told), "{told}");
    drop(replies);
}

#[test]
fn a_line_that_comes_by_single_bytes_has_a_limit_in_all() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let stream = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    let mut far = listener.accept().unwrap().0;
    let mut lines = Lines { stream, kept: Vec::new(), patience: Duration::from_millis(100) };
    let (over, is_over) = bounded::<()>(1);
    // A byte now and then, until it is over.
    let step = Duration::from_millis(5);
    let trickle = std::thread::spawn(move || {
        far.write_all(b"one\ntwo\nthr").unwrap();
        while far.write_all(b"e").is_ok() && is_over.recv_timeout(step) == Err(RecvError::TimedOut)
        {
        }
    });
    assert_eq!(lines.next().unwrap().as_deref(), Some(&b"one\n"[..]));
    assert_eq!(lines.next().unwrap().as_deref(), Some(&b"two\n"[..]));
    assert!(lines.next().is_err(), "it was waited for");
    drop(over);
    trickle.join().unwrap();
}
