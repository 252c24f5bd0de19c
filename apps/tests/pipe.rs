//! `pipe`: the output equals the input, and an early end of the stream is a failure at both ends.
//!
//! Not on apart, distant: its ends are processes, as apart makes them, and soft0@5us joins none.
//! Shows: the command.

use std::fs::File;
use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use serde_json::Value;

mod support;

use support::processes::{EndedProcess, SpawnedProcess, connects_processes};
use support::{ScratchFile, device};

const PROTOCOLS: [&str; 6] =
    ["send-recv", "buffered-read", "buffered-write", "direct-read", "direct-write", "shared-write"];

/// Log message at the first received piece.
const UNDER_WAY: &str = "the first message has arrived";
/// Words of both ends about a stream that ended early.
const A_PART: &str = "what has arrived is a part only";

fn command(args: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_rdma-conn"));
    command.args(["--device", &device(), "-v", "pipe"]).args(args);
    command
}

/// The listening end, and where it listens.
fn listener(args: &[&str], output: impl Into<Stdio>) -> (SpawnedProcess, SocketAddr) {
    let mut command = command(&[&["--listen", "127.0.0.1:0"], args].concat());
    let mut running = SpawnedProcess::between(&mut command, Stdio::null(), output.into());
    let said = running.wait_for("listening on ");
    (running, said.trim().rsplit(' ').next().unwrap().parse().unwrap())
}

fn connector(args: &[&str], address: SocketAddr, input: impl Into<Stdio>) -> SpawnedProcess {
    let address = address.to_string();
    let mut command = command(&[&["--connect", &address], args].concat());
    SpawnedProcess::between(&mut command, input.into(), Stdio::piped())
}

/// Pipes a file of `bytes` bytes; returns what both ends print as JSON.
#[track_caller]
fn piped(name: &str, bytes: usize, args: &[&str]) -> [Value; 2] {
    let (source, copy) =
        (ScratchFile::new(name, bytes), ScratchFile::new(&format!("{name}.copy"), 1));
    let args = [args, &["--json"]].concat();
    let (listener, address) = listener(&args, File::create(&copy.0).unwrap());
    let connected = connector(&args, address, File::open(&source.0).unwrap()).results();
    let listened = listener.ended();
    assert!(listened.status.success(), "{args:?}: {listened:#?}");
    let (sent, came) = (std::fs::read(&source.0).unwrap(), std::fs::read(&copy.0).unwrap());
    assert!(sent == came, "{args:?}: {} bytes were sent, {} arrived", sent.len(), came.len());
    let checksum = format!("{:08x}", crc32fast::hash(&sent));
    let is_json = |line: &&String| line.starts_with('{');
    let said = listened.err.iter().find(is_json).unwrap_or_else(|| panic!("{listened:#?}"));
    let lines = [connected[0].clone(), serde_json::from_str(said).unwrap()];
    for line in &lines {
        assert_eq!(line["bytes"], bytes, "{args:?}: {line}");
        assert_eq!(line["equal"], true, "{args:?}: {line}");
        assert_eq!(line["checksum_crc32"], checksum, "{args:?}: {line}");
    }
    lines
}

/// Hands on what comes; what comes after `is_last` is changed before.
fn hand_on(
    mut from: &TcpStream,
    mut to: &TcpStream,
    is_last: &AtomicBool,
    mut change: impl FnMut(&mut [u8]),
) {
    let mut bytes = [0; 4096];
    while let Ok(len @ 1..) = from.read(&mut bytes) {
        if is_last.load(Ordering::SeqCst) {
            change(&mut bytes[..len]);
        }
        if to.write_all(&bytes[..len]).is_err() {
            break;
        }
    }
    let _ = to.shutdown(Shutdown::Write);
}

/// Pipes seven bytes, with a network between the ends, which changes what the connecting end says
/// behind its goodbye. (Messages do not go over it.) Returns both ends, the connecting one first.
fn over_a_network(change: impl FnMut(&mut [u8]) + Send) -> [EndedProcess; 2] {
    let (mut reader, output) = std::io::pipe().unwrap();
    let (listener, address) = listener(&["--json"], output);
    let network = TcpListener::bind("127.0.0.1:0").unwrap();
    let mut connector = connector(&["--json"], network.local_addr().unwrap(), Stdio::piped());
    let (near, far) = (network.accept().unwrap().0, TcpStream::connect(address).unwrap());
    let is_last = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| hand_on(&near, &far, &is_last, change));
        scope.spawn(|| hand_on(&far, &near, &AtomicBool::new(false), |_| ()));
        let mut input = connector.input();
        input.write_all(b"a piece").unwrap();
        reader.read_exact(&mut [0; 7]).unwrap();
        is_last.store(true, Ordering::SeqCst);
        drop(input);
        [connector.ended(), listener.ended()]
    })
}

/// Its checksum takes twice as long as all before.
#[test]
fn a_rate_counts_the_time_until_both_ends_agree() {
    if !connects_processes() {
        return;
    }
    let (start, mut held) = (Instant::now(), Duration::ZERO);
    let ends = over_a_network(|_| {
        if held.is_zero() {
            let before = start.elapsed();
            std::thread::sleep(2 * before);
            held = start.elapsed() - before;
        }
    });
    assert!(!held.is_zero(), "{ends:#?}");
    for end in ends {
        assert!(end.status.success(), "{end:#?}");
        let line = end.out.iter().chain(&end.err).find(|line| line.starts_with('{'));
        let line: Value = serde_json::from_str(line.unwrap()).unwrap();
        let counted = line["bytes"].as_f64().unwrap() / line["bytes_per_s"].as_f64().unwrap();
        assert!(counted >= held.as_secs_f64() * (1.0 - 1e-9), "{held:?}: {line}");
    }
}

/// Changes the checksum in what an end says, if it is there.
fn change_checksum(said: &mut [u8]) {
    const KEY: &[u8] = b"\"crc32\":";
    let Some(at) = said.windows(KEY.len()).position(|bytes| bytes == KEY) else { return };
    let digits = said[at + KEY.len()..].iter_mut().take_while(|byte| byte.is_ascii_digit());
    let last = digits.last().expect("a number");
    *last = if *last == b'1' { b'2' } else { b'1' };
}

#[test]
fn another_checksum_is_a_failure_at_both_ends() {
    if !connects_processes() {
        return;
    }
    let [connected, listened] = over_a_network(change_checksum);
    connected.assert_failed(1, &["what has arrived is not what was sent"]);
    listened.assert_failed(1, &["7 bytes with checksum ", " have arrived, 7 with ", " were sent"]);
}

/// Tries all protocols at once: most of what it takes is waiting.
fn each(test: impl Fn(&str) + Sync) {
    std::thread::scope(|scope| {
        for protocol in PROTOCOLS {
            let test = &test;
            scope.spawn(move || test(protocol));
        }
    });
}

#[test]
fn what_goes_in_comes_out() {
    if !connects_processes() {
        return;
    }
    for protocol in PROTOCOLS {
        let lines = piped(protocol, 30_000_001, &["--protocol", protocol]);
        for line in &lines {
            assert_eq!(line["protocol"], protocol);
            assert!(line["bytes_per_s"].as_f64().is_some_and(|n| n > 0.0), "{line}");
            assert!(line["rdma_ops_per_message"].as_f64().is_some_and(|n| n > 0.0), "{line}");
        }
        assert_eq!(lines[0]["rdma_ops_per_message"], lines[1]["rdma_ops_per_message"]);
        piped(&format!("{protocol}.small"), 100_003, &["--protocol", protocol, "--size", "777"]);
        piped(&format!("{protocol}.empty"), 0, &["--protocol", protocol]);
        piped(&format!("{protocol}.slept"), 500_000, &["--protocol", protocol, "--wait", "block"]);
    }
}

#[test]
fn pieces_arrive_while_more_are_to_come() {
    if !connects_processes() {
        return;
    }
    for protocol in PROTOCOLS {
        let (mut reader, output) = std::io::pipe().unwrap();
        let args = ["--protocol", protocol];
        let (listener, address) = listener(&args, output);
        let mut connector = connector(&args, address, Stdio::piped());
        let mut input = connector.input();
        for piece in ["one", "another", "the last"] {
            input.write_all(piece.as_bytes()).unwrap();
            let mut came = vec![0; piece.len()];
            reader.read_exact(&mut came).unwrap();
            assert_eq!(came, piece.as_bytes(), "{protocol}");
        }
        drop(input);
        assert!(connector.ended().status.success(), "{protocol}");
        assert!(listener.ended().status.success(), "{protocol}");
        assert_eq!(reader.read(&mut [0]).unwrap(), 0, "{protocol}");
    }
}

/// A stream under way that does not end until it is interrupted: both ends, the way in, and the way
/// out.
#[track_caller]
fn under_way(
    protocol: &str,
) -> (SpawnedProcess, SpawnedProcess, std::process::ChildStdin, std::io::PipeReader) {
    let args = ["--protocol", protocol];
    let (mut reader, output) = std::io::pipe().unwrap();
    let (mut listener, address) = listener(&args, output);
    let mut connector = connector(&args, address, Stdio::piped());
    let mut input = connector.input();
    input.write_all(b"the first piece").unwrap();
    listener.wait_for(UNDER_WAY);
    reader.read_exact(&mut [0; 15]).unwrap();
    (listener, connector, input, reader)
}

#[test]
fn an_end_that_is_killed_is_missed_at_the_other() {
    if !connects_processes() {
        return;
    }
    each(|protocol| {
        // Nothing more is on its way: it is missed all the same.
        let (listener, connector, _input, _reader) = under_way(protocol);
        listener.kill();
        connector.ended().assert_failed(1, &["the other end", "(after 15 B)", A_PART]);
        let (listener, connector, _input, mut reader) = under_way(protocol);
        connector.kill();
        listener.ended().assert_failed(1, &["the other end", "(after 15 B)", A_PART]);
        assert_eq!(reader.read(&mut [0]).unwrap(), 0, "{protocol}: and writes nothing more");
    });
}

#[test]
fn an_end_that_is_interrupted_says_so_at_both() {
    if !connects_processes() {
        return;
    }
    let says = ["interrupted by SIGTERM", "(after ", A_PART];
    each(|protocol| {
        for is_listener in [true, false] {
            let (listener, connector, _input, _reader) = under_way(protocol);
            if is_listener { &listener } else { &connector }.terminate();
            let statuses = if is_listener { [143, 1] } else { [1, 143] };
            for (end, status) in [listener, connector].into_iter().zip(statuses) {
                end.ended().assert_failed(status, &says);
            }
        }
    });
}

#[test]
fn an_end_that_waits_for_the_other_one_can_be_interrupted() {
    let (listener, _) = listener(&[], Stdio::piped());
    listener.terminate();
    listener.ended().assert_failed(143, &["interrupted by SIGTERM before the other end was there"]);
}

/// The output is not read until nothing more goes in.
#[test]
fn an_end_that_waits_for_a_slow_reader_can_be_interrupted() {
    if !connects_processes() {
        return;
    }
    each(|protocol| {
        for is_listener in [true, false] {
            let (listener, connector, mut input, reader) = under_way(protocol);
            let flood = std::thread::spawn(move || {
                // Until the process goes.
                while input.write_all(&[7; 1 << 16]).is_ok() {}
            });
            // The pipe behind it fills, and the rings behind the pipe.
            while rustix::io::ioctl_fionread(&reader).unwrap() < 1 << 15 {
                std::thread::yield_now();
            }
            if is_listener { &listener } else { &connector }.terminate();
            let (first, second) =
                if is_listener { (listener, connector) } else { (connector, listener) };
            first.ended().assert_failed(143, &["interrupted by SIGTERM (after", A_PART]);
            // The other one notices as soon as it is not held up by the reader.
            let drained =
                std::thread::spawn(move || std::io::copy(&mut { reader }, &mut std::io::sink()));
            second.ended().assert_failed(1, &["the other end: interrupted by SIGTERM", A_PART]);
            flood.join().unwrap();
            drained.join().unwrap().unwrap();
        }
    });
}

#[test]
fn a_reader_that_leaves_ends_it_at_both_ends() {
    if !connects_processes() {
        return;
    }
    for protocol in PROTOCOLS {
        let (listener, connector, mut input, reader) = under_way(protocol);
        drop(reader);
        // It shows with a next piece: another test's process that is just being started may have
        // the reader, too, until it begins.
        let more = std::thread::spawn(move || while input.write_all(b"one more").is_ok() {});
        for end in [listener, connector] {
            end.ended().assert_failed(1, &["the reader of standard output has gone", A_PART]);
        }
        more.join().unwrap();
    }
}

#[test]
fn others_are_refused_meanwhile_and_other_flags_by_name() {
    if !connects_processes() {
        return;
    }
    let args = ["--protocol", "buffered-read"];
    let (reader, output) = std::io::pipe().unwrap();
    let (mut listener, address) = listener(&[&args[..], &["--reads", "2"]].concat(), output);
    let other = connector(&args, address, Stdio::null()).ended();
    other.assert_failed(1, &["--reads", "the listening end 2"]);
    let other = connector(&["--protocol", "send-recv"], address, Stdio::null()).ended();
    other.assert_failed(1, &["--protocol"]);
    let fits = [&args[..], &["--reads", "2"]].concat();
    let mut first = connector(&fits, address, Stdio::piped());
    first.input().write_all(b"a piece").unwrap();
    listener.wait_for(UNDER_WAY);
    drop(reader);
    assert!(first.ended().status.success());
    assert!(listener.ended().status.success());
}
