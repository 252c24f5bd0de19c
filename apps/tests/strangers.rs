//! Peers that speak something else, or want something else: refused by name in one line,
//! and the listener stays available.
//!
//! Only on soft0: the handshake refuses over TCP.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::time::Instant;

mod support;

use support::processes::{
    PATIENCE, PROGRAM, SpawnedProcess, connects_processes, free_port, is_of_the_kernel, rc_pingpong,
};

/// The languages of the command: the arguments of both ends, and more of the connecting end.
const LANGUAGES: [(&[&str], &[&str]); 9] = [
    (&["bench"], &["--size", "16", "--messages", "50"]),
    (&["pingpong"], &["--size", "16", "--iterations", "20"]),
    (&["bench", "--protocol", "buffered-read"], &["--size", "16", "--messages", "50"]),
    (&["bench", "--protocol", "buffered-write"], &["--size", "16", "--messages", "50"]),
    (&["bench", "--protocol", "shared-write"], &["--size", "16", "--messages", "50"]),
    (&["pingpong", "--protocol", "buffered-write"], &["--size", "16", "--iterations", "20"]),
    (&["pingpong", "--protocol", "buffered-read"], &["--size", "16", "--iterations", "20"]),
    (&["bench", "--op", "send"], &["--size", "16", "--messages", "50"]),
    (&["pingpong", "--compat", PROGRAM, "--iterations", "20"], &[]),
];

/// First words, or answers, of other programs.
const JUNK: [&[u8]; 3] =
    [b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n", &[0xff; 100], b"RDMACONN but no frame of it"];

/// As `ibv_rc_pingpong` begins.
const RC_PINGPONG: &[u8] = b"0000:000011:7c5a01:00000000000000000000ffff0a090001\0";

fn connector((both, more): (&[&str], &[&str]), address: &str) -> SpawnedProcess {
    SpawnedProcess::command(&[both, more, &["--connect", address]].concat())
}

/// Says something, and waits until the other end hangs up.
fn say(address: SocketAddr, bytes: &[u8]) {
    let mut stream = TcpStream::connect(address).unwrap();
    stream.write_all(bytes).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    // It may be cut off before all was read.
    match stream.read_to_end(&mut Vec::new()) {
        Ok(_) => {}
        Err(e) => assert_eq!(e.kind(), std::io::ErrorKind::ConnectionReset, "{e}"),
    }
}

#[test]
fn a_listener_refuses_other_protocols_and_serves_the_next_peer() {
    if !connects_processes() {
        return;
    }
    for (at, language) in LANGUAGES.into_iter().enumerate() {
        let (mut listener, address) = SpawnedProcess::listener(language.0);
        let is_compat = language.0.contains(&PROGRAM);
        for junk in JUNK.into_iter().chain((!is_compat).then_some(RC_PINGPONG)) {
            say(address, junk);
            listener.wait_for("refused a connection");
        }
        // A peer that goes without a word.
        drop(TcpStream::connect(address).unwrap());
        listener.wait_for("refused a connection");
        let address = address.to_string();
        for (_, other) in LANGUAGES.into_iter().enumerate().filter(|(other, _)| *other != at) {
            connector(other, &address).ended().assert_failed_in_one_line(1, &[&address]);
            listener.wait_for("refused a connection");
        }
        let served = connector(language, &address);
        assert_eq!((served.results().len(), listener.results().len()), (1, 1), "{language:?}");
    }
}

#[test]
fn a_silent_peer_has_time_and_delays_no_other() {
    if !connects_processes() {
        return;
    }
    for language in LANGUAGES {
        let (listener, address) = SpawnedProcess::listener(language.0);
        let silent = [(); 3].map(|()| TcpStream::connect(address).unwrap());
        let served = connector(language, &address.to_string()).results();
        let listened = listener.ended();
        assert_eq!((served.len(), listened.out.len()), (1, 1), "{language:?}: {listened:#?}");
        let refused = |line: &&String| line.contains("refused");
        assert_eq!(listened.err.iter().find(refused), None, "{language:?}");
        drop(silent);
    }
}

#[test]
fn a_connector_says_that_another_program_has_the_port() {
    if !connects_processes() {
        return;
    }
    for language in LANGUAGES {
        let other = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = other.local_addr().unwrap().to_string();
        for junk in JUNK.into_iter().chain([&b""[..]]) {
            let connector = connector(language, &address);
            let mut stream = other.accept().unwrap().0;
            // Its message is read first: else it would be cut off.
            let read = stream.read(&mut [0; 4096]).unwrap();
            assert!(read > 0, "{language:?}");
            stream.write_all(junk).unwrap();
            drop(stream);
            connector.ended().assert_failed_in_one_line(1, &[&address]);
        }
        // Nothing listens on port 1.
        let alone = connector(language, "127.0.0.1:1");
        alone.ended().assert_failed_in_one_line(1, &["start the other end with --listen first"]);
    }
}

#[test]
fn rdma_cores_program_is_no_peer_without_compat() {
    if !is_of_the_kernel() {
        return;
    }
    for language in LANGUAGES.into_iter().filter(|(both, _)| !both.contains(&PROGRAM)) {
        let (mut listener, address) = SpawnedProcess::listener(language.0);
        // It takes any reply for an address, and may then wait for ever.
        let _program = SpawnedProcess::new(&mut rc_pingpong(address.port(), &["127.0.0.1"]));
        listener.wait_for("refused a connection");
        let served = connector(language, &address.to_string());
        assert_eq!((served.results().len(), listener.results().len()), (1, 1), "{language:?}");

        let port = free_port();
        let _program = SpawnedProcess::new(&mut rc_pingpong(port, &[]));
        let address = format!("127.0.0.1:{port}");
        let deadline = Instant::now() + PATIENCE;
        let refused = loop {
            let ended = connector(language, &address).ended();
            if !ended.err.iter().any(|line| line.contains("nothing listens")) {
                break ended;
            }
            assert!(Instant::now() < deadline, "{ended:#?}");
        };
        refused.assert_failed_in_one_line(1, &[&address]);
    }
}

#[test]
fn a_port_in_use_is_refused_with_the_reason() {
    if !connects_processes() {
        return;
    }
    let other = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = other.local_addr().unwrap().to_string();
    for (both, _) in LANGUAGES {
        let listener = SpawnedProcess::command(&[both, &["--listen", &address]].concat());
        let says = ["another program has the port: end it, or choose another port"];
        listener.ended().assert_failed_in_one_line(1, &says);
        let nowhere = SpawnedProcess::command(&[both, &["--listen", "192.0.2.1:0"]].concat());
        nowhere.ended().assert_failed_in_one_line(1, &["this machine has no such address"]);
    }
}

/// Each end reads what it has itself, and what the other one has.
#[test]
fn a_refusal_says_which_end_wants_what() {
    if !connects_processes() {
        return;
    }
    let read = "the command pipe or --protocol buffered-read";
    let send = "the command bench, pingpong or --protocol send-recv";
    let direct = "the command copy or --protocol direct-read";
    for (listening, connecting, here, there) in [
        (&["bench"][..], &["bench", "--protocol", "buffered-read"][..], send, read),
        (&["bench", "--op", "send"], &["bench"], "--op", send),
        (&["pingpong"], &["pingpong", "--op", "write-imm"], send, "--op"),
        (&["bench"], &["pingpong"], "bench", "the command pingpong"),
        (&["bench", "--size", "64"], &["bench", "--size", "16"], "64", "--size 16"),
        (&["pipe"], &["pipe", "--protocol", "direct-read"], read, direct),
        (&["pipe"], &["bench"], read, send),
    ] {
        let (mut listener, address) = SpawnedProcess::listener(listening);
        let address = address.to_string();
        let connector =
            SpawnedProcess::command(&[connecting, &["--connect", &address]].concat()).ended();
        let says =
            [&*format!("{address} refused: this end has {there}, the listening end {here}: ")];
        connector.assert_failed_in_one_line(1, &says);
        let refused = listener.wait_for("refused a connection");
        let says = format!("the connecting end has {there}, this end {here}: ");
        assert!(refused.contains(&says), "{refused}");
    }
}

#[test]
fn a_leader_reports_that_it_refused_a_connection() {
    if !connects_processes() {
        return;
    }
    let mut leader =
        SpawnedProcess::command(&["multicast", "--listen", "127.0.0.1:0", "--members", "2"]);
    let said = leader.wait_for("listening on ");
    let address = said.split(' ').nth(2).unwrap();
    let ended = SpawnedProcess::command(&["bench", "--connect", address]).ended();
    ended.assert_failed_in_one_line(1, &["the listening end the command multicast"]);
    let refused = leader.wait_for("refused");
    assert!(refused.starts_with("refused a connection: the connecting end has "), "{refused}");
}
