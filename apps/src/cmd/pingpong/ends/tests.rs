//! Both ends in one process, on the soft device: two processes differ by nothing that
//! these modules see.

use clap::Parser;

use rdma_conn::{Listener, SendHalf, SendRecv, connect_over};

use super::*;
use crate::cli::{Args, Command};
use crate::cmd::pingpong::config;

fn parse(flags: &[&str]) -> (CommonArgs, PingpongArgs) {
    let args = [&["rdma-conn", "pingpong"][..], flags].concat();
    let args = Args::try_parse_from(args).unwrap_or_else(|e| panic!("{flags:?}: {e}"));
    let Command::Pingpong(pingpong) = args.command else { panic!("{flags:?}") };
    (args.common, pingpong)
}

/// A connecting process: all its sizes.
fn process(flags: &[&str], address: SocketAddr) -> Result<Vec<ResultLine>> {
    let ((common, options), device) = (parse(flags), rdma_conn::device::soft()?);
    let (run, sizes, rounds) = (session::run_number(), options.sizes(), rounds_of_size(&options));
    let of = sizes.len() as u32 * rounds;
    let measure = |(at, size)| {
        let config = config::<SendRecv>(&common, &options, size);
        let round = |round| {
            let part = MeasurementIndex { run, at: at * rounds + round, of };
            connect::<SendRecv>((&options, &device, &config), (size, round), part, address)
        };
        let lines = (0..rounds).map(round).collect::<Result<Vec<_>>>()?;
        anyhow::Ok(ResultLine::of_rounds(&lines))
    };
    (0..).zip(sizes).map(measure).collect()
}

/// The listening process: how many sizes it has to report.
fn host(flags: &[&str], listener: &Listener<SendRecv>) -> Result<usize> {
    let ((common, options), device) = (parse(flags), rdma_conn::device::soft()?);
    let mut report = report::report(false);
    let parts = parts::<SendRecv>(&common, &options, &device, listener);
    session::follow_into(&mut report, parts)?;
    Ok(report.rows())
}

const FEW: [&str; 6] = ["--iterations", "50", "--size", "16,4096", "--rounds", "1"];

#[test]
fn every_mode_works_between_two_ends() {
    let modes: &[&[&str]] = &[
        &[],
        &["--preset", "batched"],
        &["--wait", "block"],
        &["--wait", "spin"],
        &["--pack", "5000"],
        &["--no-credits"],
        &["--no-verify"],
        &["--inline", "0"],
    ];
    for mode in modes {
        let flags = [&FEW[..], mode].concat();
        // The same flags at both ends do not contradict each other.
        for listening in [&[][..], &flags] {
            let listener = Listener::<SendRecv>::bind("127.0.0.1:0").unwrap();
            let address = listener.local_addr();
            let lines = std::thread::scope(|scope| {
                let host = scope.spawn(|| host(listening, &listener).unwrap());
                let lines = process(&flags, address).unwrap();
                assert_eq!(host.join().unwrap(), 2, "{mode:?}");
                lines
            });
            for (line, size) in lines.iter().zip([16, 4096]) {
                let counts = ["size_bytes", "messages"].map(|key| line.count(key));
                assert_eq!(counts, [Some(size), Some(100)], "{mode:?}");
                // Data, and credits where there are any.
                let per_message = line.figure("rdma_ops_per_message");
                assert!((1.0..=2.0).contains(&per_message), "{mode:?}: {line:?}");
            }
        }
    }
}

#[test]
fn a_contradiction_is_refused_by_name_and_does_not_count() {
    let cases: &[(&[&str], &str)] = &[
        (&["--size", "16,512"], "--size 4096, the listening end 512"),
        (&["--size", "16"], "2 sizes, the listening end 1"),
        (&["--preset", "batched"], "--preset sequential, the listening end batched"),
        (&["--unacked", "7"], "--unacked 8, the listening end 7"),
        (&["--iterations", "7"], "--iterations 50, the listening end 7"),
        (&["--seconds", "7"], "--seconds no such flag, the listening end 7"),
        (&["--no-credits"], "--no-credits off, the listening end on"),
    ];
    for (listening, says) in cases {
        let listener = Listener::<SendRecv>::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr();
        let listening: Vec<String> = listening.iter().map(|s| (*s).to_owned()).collect();
        // The thread never ends: no connection arrives that the listener admits.
        std::thread::spawn(move || {
            host(&listening.iter().map(String::as_str).collect::<Vec<_>>(), &listener)
        });
        let error = format!("{:#}", process(&FEW, address).unwrap_err());
        assert!(error.contains("refused") && error.contains(says), "{error}");
    }
}

#[test]
fn a_time_takes_the_place_of_a_number_of_round_trips() {
    let flags = ["--seconds", "0.01", "--size", "16", "--rounds", "1"];
    let listener = Listener::<SendRecv>::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr();
    let lines = std::thread::scope(|scope| {
        let host = scope.spawn(|| host(&flags, &listener).unwrap());
        let lines = process(&flags, address).unwrap();
        assert_eq!(host.join().unwrap(), 1);
        lines
    });
    let (_, options) = parse(&[]);
    let of_a_number = 2 * options.trips();
    let messages = lines[0].count("messages").unwrap();
    assert!(messages > 0 && messages != of_a_number, "{:?}", lines[0]);
}

#[test]
fn another_session_is_refused_while_one_goes_on() {
    let listener = Listener::<SendRecv>::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr();
    std::thread::scope(|scope| {
        let host = scope.spawn(|| host(&[], &listener).unwrap());
        let ((common, options), device) = (parse(&FEW), rdma_conn::device::soft().unwrap());
        let run = session::run_number();
        for (at, size) in [(0, 16), (1, 4096)] {
            let config = config::<SendRecv>(&common, &options, size);
            let part = MeasurementIndex { run, at, of: 2 };
            let case = (&options, &device, &config);
            connect::<SendRecv>(case, (size, 0), part, address).unwrap();
            if at == 0 {
                let error = format!("{:#}", process(&FEW, address).unwrap_err());
                assert!(error.contains("another session"), "{error}");
            }
        }
        assert_eq!(host.join().unwrap(), 2);
    });
}

#[test]
fn what_one_end_finds_wrong_both_ends_say() {
    let listener = Listener::<SendRecv>::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr();
    std::thread::scope(|scope| {
        let host = scope.spawn(|| host(&[], &listener));
        let ((common, options), device) = (parse(&FEW), rdma_conn::device::soft().unwrap());
        let config = config::<SendRecv>(&common, &options, 16);
        let session = MeasurementIndex { run: 1, at: 0, of: 1 }.session(
            "pingpong",
            1,
            0,
            traffic::<SendRecv>(&options, &config, 16),
        );
        let mut stream = session::dial(address).unwrap();
        let bytes = session.encode().unwrap();
        let mut near = connect_over::<SendRecv, _>(&mut stream, &device, &config, &bytes).unwrap();
        let error = format!("{:#}", process(&FEW, address).unwrap_err());
        assert!(error.contains("busy with another session"), "{error}");
        near.sender.send_acked(b"not any payload.").unwrap();
        let found = format!("{:#}", host.join().unwrap().unwrap_err());
        assert!(found.contains("checksum"), "{found}");
        let said = SessionChannel::new(stream).unwrap().last_words(PATIENCE);
        assert_eq!(said, session::LastWords::Why(found));
    });
}

/// This end prints what the other one has measured.
#[test]
fn a_result_that_is_none_is_refused() {
    let listener = Listener::<SendRecv>::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr();
    std::thread::scope(|scope| {
        let host = scope.spawn(|| host(&[], &listener));
        let ((common, options), device) = (parse(&FEW), rdma_conn::device::soft().unwrap());
        let config = config::<SendRecv>(&common, &options, 16);
        let traffic = traffic::<SendRecv>(&options, &config, 16);
        let session = MeasurementIndex::only().session("pingpong", 1, 0, traffic);
        let mut stream = session::dial(address).unwrap();
        let bytes = session.encode().unwrap();
        let near = connect_over::<SendRecv, _>(&mut stream, &device, &config, &bytes).unwrap();
        near.sender.close().unwrap();
        let mut wire = SessionChannel::new(stream).unwrap();
        let (messages, work) = (0, Work::default());
        wire.tell(&ControlMessage::Sent { messages, work, interrupted: None }).unwrap();
        assert!(matches!(wire.hear().unwrap(), ControlMessage::Arrived { .. }));
        wire.tell(&ControlMessage::Result(Box::default())).unwrap();
        let found = format!("{:#}", host.join().unwrap().unwrap_err());
        assert_eq!(found, "the other end tells a result that is none");
    });
}
