use rdma_conn::raw::Incoming;
use std::os::unix::net::UnixStream;

use super::*;

const STEP: Duration = Duration::from_millis(2);
const HOUR: Duration = Duration::from_secs(3600);

/// Gives and takes a byte at a time, each of which takes its time, but no longer than is waited
/// for it.
struct Trickle(Vec<u8>);

impl Trickle {
    fn pass_time(&self) {
        let begun = Instant::now();
        while begun.elapsed() < STEP {
            std::thread::yield_now();
        }
    }
}

impl Read for Trickle {
    fn read(&mut self, buffer: &mut [u8]) -> std::io::Result<usize> {
        self.pass_time();
        buffer[0] = self.0.remove(0);
        Ok(1)
    }
}

impl Write for Trickle {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.pass_time();
        self.0.push(bytes[0]);
        Ok(1)
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

impl Stream for Trickle {
    fn set_timeout(&self, _: Duration) -> std::io::Result<()> {
        Ok(())
    }
}

#[test]
fn a_note_that_comes_or_goes_by_single_bytes_has_a_limit_in_all() {
    let (note, most) = ("x".repeat(200), 4096);
    let mut stream = Trickle(Vec::new());
    let unread = write(&mut stream, &note, most, 20 * STEP).unwrap_err();
    assert!(unread.to_string().contains("has not read a note in 40ms"), "{unread:#}");
    let mut stream = Trickle(Vec::new());
    write(&mut stream, &note, most, HOUR).unwrap();
    let mut again = Trickle(stream.0.clone());
    let first = stream.0.remove(0);
    let whole: String = read_rest(&mut stream, first, most, HOUR).unwrap();
    assert_eq!(whole, note);
    again.0.remove(0);
    let late = read_rest::<String>(&mut again, first, most, 20 * STEP).unwrap_err();
    assert!(late.to_string().contains("not ended it in 40ms"), "{late:#}");
}

/// However much time each single step would have.
#[test]
fn a_set_up_ends_with_its_time() {
    for limit in [Duration::ZERO, Duration::from_millis(1)] {
        let (mut near, _silent) = UnixStream::pair().unwrap();
        let late = Incoming::greet(&mut Hurried::new(&mut near, limit)).unwrap_err();
        assert!(late.to_string().contains("did not finish the handshake in"), "{late}");
    }
}
