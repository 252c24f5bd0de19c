//! Both ends in one process, on the soft device: two processes differ by nothing that
//! these modules see.

use clap::Parser;
use rdma_conn::{Listener, SendHalf, SendRecv};

use super::*;
use crate::cli::{Args, Command};
use crate::cmd::bench::connect::{arrived, begin, connect, join, traffic};
use crate::cmd::bench::rounds::{cases, config};
use crate::cmd::bench::run::Sides;
use crate::measure::{MessageLoad, Work};
use crate::session::{ControlMessage, MeasurementIndex};

fn parse(flags: &[&str]) -> (CommonArgs, BenchArgs) {
    let args = [&["rdma-conn", "bench"][..], flags].concat();
    let args = Args::try_parse_from(args).unwrap_or_else(|e| panic!("{flags:?}: {e}"));
    let Command::Bench(bench) = args.command else { panic!("{flags:?}") };
    (args.common, bench)
}

/// A connecting process: all its measurements.
fn process(flags: &[&str], address: SocketAddr) -> Result<Vec<ResultLine>> {
    let ((common, options), device) = (parse(flags), rdma_conn::device::soft()?);
    let (cases, run) = (cases::<SendRecv>(&common, &options), session::run_number());
    let rounds = cases[0].1.end.rounds(options.rounds.asked());
    let of = cases.len() as u32 * rounds;
    let measure = |(at, (config, load)): (u32, &(_, MessageLoad))| {
        let traffic = traffic::<SendRecv>(&options, config, load, None);
        let round = |round| {
            let (load, part) = (
                load.of_round(round, rounds),
                MeasurementIndex { run, at: at * rounds + round, of },
            );
            connect::<SendRecv>((&options, &device, config), &load, (part, &traffic), address)
        };
        let lines = (0..rounds).map(round).collect::<Result<Vec<_>>>()?;
        anyhow::Ok(ResultLine::of_rounds(&lines))
    };
    (0..).zip(&cases).map(measure).collect()
}

fn listener() -> (Listener<SendRecv>, SocketAddr) {
    let listener = Listener::<SendRecv>::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr();
    (listener, address)
}

/// The listening process: how many measurements it has to report.
fn host(flags: &[&str], listener: Listener<SendRecv>) -> Result<usize> {
    let ((common, options), device) = (parse(flags), rdma_conn::device::soft()?);
    let host =
        ListeningEnd::<SendRecv> { common: &common, options: &options, device: &device, listener };
    let mut report = report::report(false, TakenAt::Receiver);
    session::follow_into(&mut report, parts(&host))?;
    Ok(report.rows())
}

/// One session that runs to its end; what each process has measured.
fn session(listening: &[&str], connecting: &[&[&str]]) -> Vec<Vec<ResultLine>> {
    let (listener, address) = listener();
    std::thread::scope(|scope| {
        let host = scope.spawn(|| host(listening, listener).unwrap());
        let run = |flags| scope.spawn(move || process(flags, address).unwrap());
        let processes: Vec<_> = connecting.iter().copied().map(run).collect();
        let measured: Vec<_> = processes.into_iter().map(|p| p.join().unwrap()).collect();
        assert_eq!(host.join().unwrap(), measured[0].len());
        measured
    })
}

const FEW: [&str; 6] = ["--messages", "2000", "--size", "16", "--rounds", "1"];

fn few<'a>(more: &[&'a str]) -> Vec<&'a str> {
    [&FEW[..], more].concat()
}

#[test]
fn every_mode_works_between_two_ends() {
    let modes: &[&[&str]] = &[
        &[],
        &["--preset", "sequential"],
        &["--preset", "unbatched"],
        &["--senders", "4"],
        &["--senders", "4", "--single-receiver"],
        &["--threads", "3"],
        &["--srq"],
        &["--srq", "lock", "--senders", "3"],
        &["--srq", "thread", "--senders", "3", "--single-receiver"],
        &["--srq", "combining", "--threads", "2", "--srq-buffers", "2000"],
        &["--pack", "512"],
        &["--wait", "block", "--senders", "2", "--single-receiver"],
        &["--wait", "spin"],
        &["--inline", "0", "--signal-every", "3"],
        &["--recv-depth", "2", "--unacked", "2", "--batch", "1"],
        // Enough buffers for a receiver that is not scheduled for a long time.
        &["--no-credits", "--rate", "20000", "--recv-depth", "2048"],
        &["--no-verify"],
    ];
    for mode in modes {
        let senders = parse(mode).1.senders.max(parse(mode).1.threads);
        for measured in session(&[], &[&few(mode)]).into_iter().flatten() {
            assert_eq!(measured.count("messages"), Some(u64::from(senders) * 2000), "{mode:?}");
            let per_message = measured.number("rdma_ops_per_message").unwrap();
            let packed = mode.contains(&"--pack");
            assert!(packed || per_message >= 1.0, "{mode:?}: {per_message}");
        }
        // The same flags at both ends do not contradict each other.
        session(&few(mode), &[&few(mode)]);
    }
}

#[test]
fn several_processes_send_to_one_end() {
    for listening in [
        &["--senders", "3"][..],
        &["--senders", "3", "--single-receiver"],
        &["--threads", "3", "--wait", "block"],
    ] {
        let measured = session(listening, &[&few(&[]), &few(&[]), &few(&[])]);
        assert_eq!(measured.len(), 3);
        for measured in measured.iter().flatten() {
            // Its own messages, and the requests of all ends for each message of all.
            assert_eq!(measured.count("messages"), Some(2000));
            assert!((1.0..2.0).contains(&measured.figure("rdma_ops_per_message")));
        }
    }
    let (one, two) = (few(&["--srq"]), few(&["--srq", "--senders", "2"]));
    session(&["--senders", "1"], &[&one]);
    session(&["--senders", "2"], &[&one, &one]);
    session(&["--senders", "2", "--single-receiver"], &[&one, &one]);
    session(&["--senders", "2"], &[&two]);
}

#[test]
fn several_sizes_are_one_session() {
    let sizes = ["--size", "16,512,70000", "--messages", "200"];
    let two = [&sizes[..], &["--senders", "2"]].concat();
    let measured = session(&[], &[&two]);
    let messages = measured[0].iter().map(|line| line.count("messages"));
    assert_eq!(messages.collect::<Vec<_>>(), [Some(400); 3]);
    session(&["--senders", "2"], &[&sizes, &sizes]);
    session(&["--size", "16,512,70000"], &[&two]);
}

/// Returns the error of a process that the listening end with these flags refuses; that end then
/// admits another one.
#[track_caller]
fn refused(listening: &[&str], flags: &[&str], good: &[&str]) -> String {
    let (listener, address) = listener();
    std::thread::scope(|scope| {
        let host = scope.spawn(|| host(listening, listener));
        let error = format!("{:#}", process(flags, address).map(drop).unwrap_err());
        process(good, address).unwrap();
        assert_eq!(host.join().unwrap().unwrap(), 1);
        error
    })
}

#[test]
fn a_contradiction_is_refused_by_name_and_does_not_count() {
    let cases: &[(&[&str], &[&str], &str)] = &[
        (&["--size", "512"], &[], "--size 16, the listening end 512"),
        (&["--size", "16,512"], &[], "1 size, the listening end 2"),
        (&["--preset", "sequential"], &[], "--preset batched, the listening end sequential"),
        (&["--unacked", "7"], &[], "--unacked 256, the listening end 7"),
        (&["--batch", "7"], &[], "--batch 8, the listening end 7"),
        (&["--recv-depth", "7"], &[], "--recv-depth 512, the listening end 7"),
        (&["--pack", "64"], &[], "--pack 0, the listening end 64"),
        (&["--no-credits"], &[], "--no-credits off, the listening end on"),
        (&["--no-verify"], &[], "--no-verify off, the listening end on"),
        (&["--srq", "lock"], &[], "--srq off, the listening end lock"),
        (&["--srq", "lock"], &["--srq", "thread"], "--srq thread, the listening end lock"),
        (&["--messages", "7"], &[], "--messages 2000, the listening end 7"),
        (&["--seconds", "7"], &[], "the listening end 7"),
        (&["--rounds", "2"], &[], "--rounds 1, the listening end 2"),
        (&["--rate", "7"], &[], "--rate off, the listening end 7"),
        (&["--senders", "2"], &["--senders", "3"], "--senders 3, the listening end 2"),
        (
            &["--single-receiver", "--senders", "2"],
            &["--threads", "2"],
            "--threads, the listening end --single-receiver",
        ),
    ];
    for (listening, connecting, says) in cases {
        let (listener, address) = listener();
        // The thread never ends: no connection arrives that the listener admits.
        std::thread::spawn({
            let listening: Vec<String> = listening.iter().map(|s| (*s).to_owned()).collect();
            move || host(&listening.iter().map(String::as_str).collect::<Vec<_>>(), listener)
        });
        let error = process(&few(connecting), address).map(drop).unwrap_err();
        let error = format!("{error:#}");
        assert!(error.contains("refused"), "{listening:?}: {error}");
        assert!(error.contains(says), "{listening:?}: {error}");
    }
    let good = few(&["--unacked", "7", "--batch", "1"]);
    refused(&["--unacked", "7"], &FEW, &good);
}

#[test]
fn what_this_end_has_no_room_for_is_refused_and_does_not_count() {
    let error = refused(&[], &few(&["--srq", "--recv-depth", "16384", "--senders", "1024"]), &FEW);
    assert!(error.contains("refused"), "{error}");
}

#[test]
fn a_sender_of_another_session_is_refused() {
    let (listener, address) = listener();
    std::thread::scope(|scope| {
        let host = scope.spawn(|| host(&["--senders", "2"], listener));
        // The first of two senders is connected; it waits.
        let device = rdma_conn::device::soft().unwrap();
        let ((common, options), part) = (parse(&FEW), MeasurementIndex::only());
        let config = config::<SendRecv>(&common, &options, 16);
        let traffic = traffic::<SendRecv>(&options, &config, &MessageLoad::new(&options, 16), None);
        let first = part.session("bench", 1, 0, traffic.clone());
        let (outlet, mut wire) = join::<SendRecv>(&first, &device, &config, address).unwrap();
        let error = |flags: &[&str]| {
            let refused = process(&few(flags), address).map(drop).unwrap_err();
            format!("{refused:#}")
        };
        let differs = error(&["--unacked", "9", "--batch", "1"]);
        assert!(differs.contains("--unacked 256, and not --unacked 9"), "{differs}");
        let many = error(&["--senders", "2"]);
        assert!(many.contains("--senders"), "{many}");
        let again = join::<SendRecv>(&first, &device, &config, address).map(drop).unwrap_err();
        assert!(format!("{again:#}").contains("already connected"), "{again:#}");
        let second = scope.spawn(|| process(&FEW, address).unwrap());
        begin(&mut wire).unwrap();
        let sides = Sides { senders: vec![outlet], ..Sides::sending() };
        let measured = measure(sides, &device, &MessageLoad::new(&options, 16), || {}).unwrap();
        assert_eq!(arrived(&mut wire, &measured).unwrap().messages, 4000);
        second.join().unwrap();
        host.join().unwrap().unwrap();
    });
}

#[test]
fn a_session_abandoned_by_its_first_sender_admits_the_next() {
    // Whichever of its process it is.
    for (senders, sender) in [(1, 0), (2, 1)] {
        given_up_for_the_next(senders, sender);
    }
}

fn given_up_for_the_next(senders: u32, sender: u32) {
    let (listener, address) = listener();
    std::thread::scope(|scope| {
        let host = scope.spawn(|| host(&["--senders", "2"], listener));
        let device = rdma_conn::device::soft().unwrap();
        let (common, options) = parse(&few(&["--no-verify"]));
        let config = config::<SendRecv>(&common, &options, 16);
        let traffic = traffic::<SendRecv>(&options, &config, &MessageLoad::new(&options, 16), None);
        let gone = MeasurementIndex::only().session("bench", senders, sender, traffic.clone());
        let joined = join::<SendRecv>(&gone, &device, &config, address);
        drop(joined.unwrap());
        // They are another session, and are admitted as soon as that one is given up.
        let come = || loop {
            match process(&FEW, address) {
                Err(e) if format!("{e:#}").contains("session that has begun") => {}
                measured => break measured.unwrap(),
            }
        };
        let others = [scope.spawn(come), scope.spawn(come)];
        for other in others {
            assert_eq!(other.join().unwrap()[0].count("messages"), Some(2000));
        }
        host.join().unwrap().unwrap();
    });
}

#[test]
fn what_one_end_finds_wrong_both_ends_say() {
    let (listener, address) = listener();
    std::thread::scope(|scope| {
        let host = scope.spawn(|| host(&[], listener));
        let device = rdma_conn::device::soft().unwrap();
        let (common, options) = parse(&FEW);
        let config = config::<SendRecv>(&common, &options, 16);
        let traffic = traffic::<SendRecv>(&options, &config, &MessageLoad::new(&options, 16), None);
        let session = MeasurementIndex::only().session("bench", 1, 0, traffic.clone());
        let (mut outlet, mut wire) = join::<SendRecv>(&session, &device, &config, address).unwrap();
        begin(&mut wire).unwrap();
        let busy = format!("{:#}", process(&FEW, address).map(drop).unwrap_err());
        assert!(busy.contains("busy with another session; for several connectors"), "{busy}");
        let error = loop {
            if let Err(e) = outlet.sender.send_acked(b"not any payload.") {
                break e;
            }
        };
        let said = format!("{:#}", cause(error.into(), [&mut wire]));
        let found = format!("{:#}", host.join().unwrap().unwrap_err());
        assert!(found.contains("checksum"), "{found}");
        assert_eq!(said, format!("the other end: {found}"));
    });
}

#[test]
fn an_end_that_goes_away_is_no_end_of_a_session() {
    let (listener, address) = listener();
    std::thread::scope(|scope| {
        let host = scope.spawn(|| host(&[], listener));
        let device = rdma_conn::device::soft().unwrap();
        let (common, options) = parse(&FEW);
        let config = config::<SendRecv>(&common, &options, 16);
        let traffic = traffic::<SendRecv>(&options, &config, &MessageLoad::new(&options, 16), None);
        let joined = join::<SendRecv>(
            &MeasurementIndex::only().session("bench", 1, 0, traffic.clone()),
            &device,
            &config,
            address,
        );
        let (outlet, mut wire) = joined.unwrap();
        begin(&mut wire).unwrap();
        // It says goodbye to the receiver, and nothing to the other end.
        drop((outlet, wire));
        let found = format!("{:#}", host.join().unwrap().unwrap_err());
        assert!(found.contains("the other end has gone"), "{found}");
    });
}

/// The file is compared although the other end says that it has sent something else.
#[test]
fn a_file_that_differs_is_compared_with_what_was_announced() {
    let (listener, address) = listener();
    std::thread::scope(|scope| {
        let host = scope.spawn(|| host(&[], listener));
        let device = rdma_conn::device::soft().unwrap();
        let (common, options) = parse(&FEW);
        let config = config::<SendRecv>(&common, &options, 16);
        let load = MessageLoad::new(&options, 16);
        let traffic = traffic::<SendRecv>(&options, &config, &load, Some((4, 7)));
        let session = MeasurementIndex::only().session("bench", 1, 0, traffic);
        let (mut outlet, mut wire) = join::<SendRecv>(&session, &device, &config, address).unwrap();
        begin(&mut wire).unwrap();
        outlet.sender.send_acked(b"file").unwrap();
        outlet.sender.close().unwrap();
        let work = Work::default();
        wire.tell(&ControlMessage::Streamed { bytes: 4, crc32: 7, work }).unwrap();
        let answer = wire.hear().unwrap();
        assert!(matches!(answer, ControlMessage::Arrived { equal: Some(false), .. }), "{answer:?}");
        let found = format!("{:#}", host.join().unwrap().unwrap_err());
        assert!(found.contains(" arrived, the file has 4 bytes and 00000007"), "{found}");
    });
}
