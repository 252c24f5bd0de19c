//! Every verb, transport and option, in this process: what the command does with its
//! arguments, without starting it.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::sync::{Mutex, MutexGuard, PoisonError};

use anyhow::Result;
use clap::Parser;
use rdma_conn::device::{NetworkFaults, SOFT, of_environment, set_network_faults};

use super::control::{RawControl, Totals};
use super::*;
use crate::cli::{Args, Command, RawOp};
use crate::measure::ResultLine;

/// Returns the lines that `rdma-conn` with these arguments would print.
fn try_lines(args: &str) -> Result<Vec<ResultLine>> {
    let one_round = ["--rounds", "1"];
    let args = ["rdma-conn"].into_iter().chain(args.split(' ')).chain(one_round);
    let parsed = Args::try_parse_from(args)?;
    match &parsed.command {
        Command::Pingpong(options) => {
            pingpong_request(&parsed.common, options, options.raw.op.unwrap())?.lines()
        }
        Command::Bench(options) => {
            bench_request(&parsed.common, options, options.raw.op.unwrap())?.lines()
        }
        other => panic!("{other:?}"),
    }
}

/// Both ends of plain UDP in this process, and as two that meet over TCP.
#[test]
fn plain_udp_has_a_rate_and_a_latency() {
    let free = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let run = |args: &str| {
        let parsed = Args::try_parse_from(["rdma-conn"].into_iter().chain(args.split(' ')));
        match parsed.unwrap().command {
            Command::Pingpong(options) => pingpong(&common(), &options, Means::Udp),
            Command::Bench(options) => bench(&common(), &options, Means::Udp),
            other => panic!("{other:?}"),
        }
    };
    for task in [
        "bench --op udp --size 16,65536 --messages 100 --rounds 2",
        "pingpong --op udp --size 16,1024 --iterations 50 --rounds 2",
    ] {
        run(task).unwrap();
        std::thread::scope(|scope| {
            let listening = scope.spawn(|| run(&format!("{task} --listen {free}")));
            let connect = format!("{task} --connect {free}");
            while let Err(e) = run(&connect) {
                // The other thread has not got there.
                assert!(e.to_string().contains("nothing listens"), "{e:#}");
            }
            listening.join().unwrap().unwrap();
        });
    }
    let error = |args: &str| run(args).unwrap_err().to_string();
    assert!(error("bench --op udp --qps 2").contains("has no queue pairs"));
    assert!(error("pingpong --op udp --size 1M").contains("is one datagram"));
}

fn common() -> CommonArgs {
    Args::try_parse_from(["rdma-conn", "--json", "devices"]).unwrap().common
}

impl MeasurementRequest<'_> {
    fn lines(&self) -> Result<Vec<ResultLine>> {
        let device = of_environment()?;
        self.let_the_network_fail(&device)?;
        let polling_threads = self.raw.polling_threads;
        let local = Local { device: &device, gid_index: None, spin: false, polling_threads };
        let plans = self.plans(&device)?;
        let lines = plans.iter().map(|plan| within_process(local, plan, self.until));
        Ok(lines.collect::<Result<Vec<_>>>()?.concat())
    }
}

#[track_caller]
fn lines(args: &str) -> Vec<ResultLine> {
    let lines = try_lines(args).unwrap_or_else(|e| panic!("{args}: {e:#}"));
    for line in &lines {
        assert!(line.figure("messages_per_s") > 0.0, "{args}: {line:?}");
        assert!(line.text("transport") != "rc" || faults(line) == [None; 6], "{args}: {line:?}");
    }
    lines
}

#[track_caller]
fn one(args: &str) -> ResultLine {
    let lines = lines(args);
    assert_eq!(lines.len(), 1, "{args}");
    lines.into_iter().next().unwrap()
}

fn messages(line: &ResultLine) -> u64 {
    line.count("messages").unwrap()
}

/// The counts of faults of the transport, if there are any.
fn faults(line: &ResultLine) -> [Option<u64>; 6] {
    ["lost", "dropped", "reordered", "late", "repeated", "resent"].map(|key| line.count(key))
}

fn senders(line: &ResultLine) -> u64 {
    line.count("senders").unwrap()
}

fn per_message(line: &ResultLine) -> Option<f64> {
    line.number("rdma_ops_per_message")
}

#[test]
fn a_thread_for_each_region_finds_each_message() {
    for mode in ["--qps 1", "--qps 3 --unacked 3", "--qps 2 --unacked 8 --batch 2"] {
        let args = "--size 48 --iterations 50 --assume-in-order --polling-threads";
        let line = one(&format!("pingpong --op write {args} {mode}"));
        assert_eq!((messages(&line), line.is_true("verified")), (100, true), "{mode}");
        assert_eq!(line.count("polling_threads"), Some(senders(&line)), "{mode}");
    }
    for args in ["bench --op write", "pingpong --op send", "pingpong --op write --transport uc"] {
        let error = try_lines(&format!("{args} --size 16 --polling-threads")).unwrap_err();
        assert!(format!("{error:#}").contains("--polling-threads is for"), "{args}: {error:#}");
    }
}

const OPS: [&str; 4] = ["send", "write", "write-imm", "read"];
const MODES: [&str; 7] = [
    "--unacked 7",
    "--unacked 16 --batch 4",
    "--unacked 5 --batch 3 --signal-every 1",
    "--unacked 2 --signal-every 1 --inline 0",
    "--qps 3",
    "--qps 3 --unacked 8 --batch 2",
    "--wait spin --poll-batch 1",
];

#[test]
fn every_verb_works_with_many_requests_and_queue_pairs() {
    for op in OPS {
        for mode in MODES {
            let qps = if mode.contains("--qps 3") { 3 } else { 1 };
            let bench = one(&format!("bench --op {op} --size 48 --messages 50 {mode}"));
            assert_eq!((messages(&bench), senders(&bench)), (50 * qps, qps), "{op} {mode}");
            let args = "--size 48 --iterations 50 --assume-in-order";
            let pingpong = one(&format!("pingpong --op {op} {args} {mode}"));
            assert_eq!(messages(&pingpong), if op == "read" { 50 } else { 100 }, "{op} {mode}");
            for line in [bench, pingpong] {
                assert_eq!((per_message(&line), line.is_true("verified")), (Some(1.0), true));
            }
        }
    }
}

#[test]
fn any_interval_of_signals_goes_on_to_the_end() {
    for op in OPS {
        for interval in [1, 2, 3, 7] {
            let args = format!("--op {op} --size 8 --signal-every {interval}");
            let bench = one(&format!("bench {args} --messages 50 --unacked 7 --batch 4"));
            let counts = (messages(&bench), bench.count("signal_every"));
            assert_eq!(counts, (50, Some(interval)), "{args}");
            // Each READ of a ping-pong is waited for by its completion.
            if op != "read" {
                let args = format!("{args} --iterations 30 --qps 2 --assume-in-order");
                assert_eq!(messages(&one(&format!("pingpong {args}"))), 60, "{args}");
            }
        }
    }
}

#[test]
fn a_shared_receive_queue_serves_all_queue_pairs() {
    for op in ["send", "write-imm"] {
        for unacked in [1, 9] {
            let args = format!("--op {op} --srq --size 32 --unacked {unacked}");
            let pingpong = one(&format!("pingpong --iterations 50 {args}"));
            let bench = one(&format!("bench --messages 20 {args}"));
            assert_eq!((messages(&pingpong), messages(&bench)), (100, 80), "{args}");
            for line in [pingpong, bench] {
                assert_eq!((line.text("srq"), senders(&line)), ("one", 4), "{args}");
            }
        }
    }
}

/// The network of soft0 is shared by all tests of this process.
fn network(faults: NetworkFaults) -> MutexGuard<'static, ()> {
    static NETWORK: Mutex<()> = Mutex::new(());
    let alone = NETWORK.lock().unwrap_or_else(PoisonError::into_inner);
    set_network_faults(1, faults);
    alone
}

/// Arguments that unreliable transports take.
const UNRELIABLE: [&str; 6] = [
    "--op send --transport uc",
    "--op send --transport uc --qps 3 --unacked 8 --batch 2",
    "--op write --transport uc --assume-in-order --unacked 1",
    "--op write-imm --transport uc --unacked 1",
    "--op send --transport ud",
    "--op send --transport ud --peers 5 --unacked 8",
];

#[test]
fn without_faults_nothing_is_lost() {
    let _alone = network(NetworkFaults::default());
    for mode in UNRELIABLE {
        for line in lines(&format!(
            "pingpong {mode} --size 2,40,1000 --iterations 50 --answer-timeout 10000"
        )) {
            let none = [Some(0), None, Some(0), Some(0), None, None];
            assert_eq!((messages(&line), faults(&line)), (100, none), "{mode}");
            assert_eq!((per_message(&line), line.is_true("verified")), (Some(1.0), true), "{mode}");
        }
        // So few that all fit into the receives.
        let line = one(&format!("bench {mode} --size 40 --messages 50"));
        assert_eq!(messages(&line), 50 * senders(&line), "{mode}");
        // The receiver does not notice plain WRITEs.
        let known = line.text("protocol") != "raw-write";
        assert_eq!(line.count("lost"), known.then_some(0), "{mode}");
        assert_eq!(line.is_true("verified"), line.text("protocol") == "raw-send", "{mode}");
    }
}

#[test]
fn losses_of_datagrams_are_repaired() {
    let faults = NetworkFaults {
        loss: 0.05,
        reordering: 0.05,
        duplication: 0.05,
        ..NetworkFaults::default()
    };
    let _alone = network(faults);
    let sizes = "--size 0,1,4080,4081,100000";
    for mode in [
        "",
        " --peers 3",
        " --unacked 1",
        " --unacked 7 --recv-depth 2",
        " --batch 8 --inline 0",
        " --recv-depth 512 --repost-batch 65",
    ] {
        let args = format!("bench --op send --transport ud --reliable {sizes} --messages 60{mode}");
        let lines = lines(&args);
        for line in &lines {
            assert_eq!((messages(line), line.is_true("verified")), (60 * senders(line), true));
            assert_eq!((line.count("lost"), line.count("reordered")), (None, None), "{args}");
        }
        let is_repaired = lines.iter().any(|line| line.count("resent") > Some(0));
        assert!(is_repaired || !is_soft(), "{args}");
    }
    for mode in ["", " --peers 3", " --unacked 1", " --unacked 7 --batch 7 --inline 0"] {
        let args = format!("pingpong --op send --transport ud --reliable {sizes}");
        let lines = lines(&format!("{args} --iterations 60{mode}"));
        for line in &lines {
            assert_eq!((messages(line), line.is_true("verified")), (120, true), "{mode}");
            assert_eq!(line.text("latency_of"), "half round trip");
            assert_eq!((line.count("lost"), line.count("late")), (None, None), "{mode}");
        }
        let is_repaired = lines.iter().any(|line| line.count("resent") > Some(0));
        assert!(is_repaired || !is_soft(), "{mode}");
    }
    let error = |args: &str| try_lines(args).unwrap_err().to_string();
    for refused in ["bench --op send --reliable", "pingpong --op send --transport uc --reliable"] {
        assert!(error(refused).contains("--reliable is for --transport ud"), "{refused}");
    }
    let many = "bench --op send --transport ud --reliable --unacked 65";
    assert!(error(many).contains("--unacked 65: it may be 1 to 64"));
    set_network_faults(0, NetworkFaults::default());
}

#[test]
fn a_datagram_queue_pair_serves_all_peers() {
    let _alone = network(NetworkFaults::default());
    let args = "--size 16 --iterations 70 --answer-timeout 10000";
    let line = one(&format!("pingpong --op send --transport ud --peers 7 {args}"));
    assert_eq!((line.count("peers"), senders(&line), messages(&line)), (Some(7), 7, 140));
    // One receive queue, where seven connections would have one each.
    let connected = one("pingpong --op send --qps 7 --size 16 --iterations 70");
    let registered = |line: &ResultLine| line.count("registered_bytes").unwrap();
    assert_eq!(registered(&connected), 7 * registered(&line));
    assert_eq!(connected.count("peers"), None);
}

/// Only soft0 can be told what its network is to do.
fn is_soft() -> bool {
    of_environment().unwrap().name() == SOFT
}

#[test]
fn loss_and_disorder_are_counted_and_the_run_goes_on() {
    let faults = "--faults loss=0.03,reordering=0.05,duplication=0.03,seed=11";
    if !is_soft() {
        let refused = try_lines(&format!("bench --op send --transport ud {faults}")).unwrap_err();
        assert!(refused.to_string().contains("soft0"), "{refused:#}");
        return;
    }
    let _alone = network(NetworkFaults::default());
    for mode in UNRELIABLE {
        let line = one(&format!(
            "pingpong {mode} --size 40 --iterations 400 --answer-timeout 30 {faults}"
        ));
        let [lost, reordered, late] =
            ["lost", "reordered", "late"].map(|key| line.count(key).unwrap());
        // 440 round trips, warm-up included, of two messages each.
        assert!((1..200).contains(&lost), "{mode}: {lost} lost");
        assert!(messages(&line) < 800 && messages(&line) >= 2 * (400 - lost), "{mode}: {line:?}");
        if mode.contains("--unacked 8") {
            assert!(reordered > 0, "{mode}");
        }
        // Repeated answers are late; memory that was written twice does not show it.
        assert!(late > 0 || mode.contains("--op write "), "{mode}");
    }
    for mode in ["--op send --transport uc", "--op send --transport ud --peers 3"] {
        let line =
            one(&format!("bench {mode} --size 40 --messages 600 --recv-depth 4096 {faults}"));
        let [lost, reordered, repeated] =
            ["lost", "reordered", "repeated"].map(|key| line.count(key).unwrap());
        let sent = 600 * senders(&line);
        assert_eq!(messages(&line) + lost, sent, "{mode}");
        assert_eq!(line.count("dropped"), Some(0), "{mode}: all fit into the receives");
        assert!(lost > 0 && reordered > 0 && repeated > 0, "{line:?}");
    }
    set_network_faults(0, NetworkFaults::default());
}

#[test]
fn what_finds_no_receive_is_told_from_what_the_network_has_lost() {
    if !is_soft() {
        return;
    }
    let _alone = network(NetworkFaults::default());
    // More in flight than one receive can take.
    let sent = 64 * 500;
    let line = one("bench --op send --transport ud --peers 2 --size 40 --messages 16000 \
                    --unacked 64 --batch 64 --recv-depth 1 --faults loss=0.01,seed=3");
    set_network_faults(0, NetworkFaults::default());
    let (lost, dropped) = (line.count("lost").unwrap(), line.count("dropped").unwrap());
    assert_eq!(messages(&line) + lost, sent, "{line:?}");
    assert!(dropped > 0, "{line:?}");
    // A hundredth of what was sent, and nothing else.
    let on_the_network = lost - dropped;
    assert!((sent / 200..sent / 50).contains(&on_the_network), "{line:?}");
}

#[test]
fn a_peer_that_never_answers_ends_the_run() {
    if !is_soft() {
        return;
    }
    let _alone = network(NetworkFaults::default());
    let args = "--op send --size 8 --transport ud --faults loss=1";
    let ended = try_lines(&format!("pingpong {args} --iterations 1000 --answer-timeout 1"));
    let ended = ended.unwrap_err().to_string();
    assert!(ended.contains("100 messages in a row were lost"), "{ended}");
    let line = try_lines(&format!("bench {args} --messages 100")).unwrap().remove(0);
    assert_eq!((messages(&line), line.count("lost")), (0, Some(100)));
    set_network_faults(0, NetworkFaults::default());
}

/// The first bytes of a peer with this plan.
fn hello(local: Local<'_>, plan: &RawPlan) -> Vec<u8> {
    let (mut near, mut far) = RawChannel::within().unwrap();
    std::thread::scope(|scope| {
        let connecting = scope.spawn(move || end::connect(local, plan, &mut near));
        let mut bytes = vec![0; 4096];
        let length = far.read(&mut bytes).unwrap();
        drop(far);
        assert!(connecting.join().unwrap().is_err());
        bytes.truncate(length);
        bytes
    })
}

/// Junk, contradictions, excessive values, and peers that vanish: each gets the reason if it
/// listens, and the peer that fits is served.
#[test]
fn a_listener_refuses_peers_that_do_not_fit_and_goes_on() {
    let device = of_environment().unwrap();
    let local = Local { device: &device, gid_index: None, spin: false, polling_threads: false };
    let args =
        ["rdma-conn", "bench", "--op", "send", "--size", "16", "--messages", "20", "--rounds", "1"];
    let parsed = Args::parse_from(args);
    let Command::Bench(options) = &parsed.command else { panic!("{parsed:?}") };
    let request = bench_request(&parsed.common, options, Means::Verb(RawOp::Send)).unwrap();
    let plan = request.plans(&device).unwrap().remove(0);
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let rendezvous = ClientListener::new(listener, Language::Handshake).unwrap();
    std::thread::scope(|scope| {
        let serving = scope.spawn(|| request.serve(local, rendezvous));
        let dial = || TcpStream::connect(address).unwrap();
        let try_with = |plan: &RawPlan| {
            lead(local, plan, &mut RawChannel::new(dial()).unwrap(), request.until)
        };
        dial().write_all(b"GET / HTTP/1.1\r\n\r\n").unwrap();
        dial().write_all(&hello(local, &plan)).unwrap();
        for (misfit, says) in [
            (RawPlan { op: RawOp::Write, ..plan.clone() }, "--op"),
            (RawPlan { qps: 0, ..plan.clone() }, "--qps"),
        ] {
            let refused = format!("{:#}", try_with_unchecked(local, &misfit, dial()));
            assert!(refused.contains(says), "{refused}");
        }
        assert_eq!(messages(&try_with(&plan).unwrap()[0]), 20);
        serving.join().unwrap().unwrap();
    });
}

/// The leading end measures, and the following one prints what it is told: a line for each class.
#[test]
fn results_that_are_none_are_refused() {
    let device = of_environment().unwrap();
    let local = Local { device: &device, gid_index: None, spin: false, polling_threads: false };
    let args = ["rdma-conn", "bench", "--op", "send", "--size", "16", "--messages", "20"];
    let parsed = Args::parse_from(args);
    let Command::Bench(options) = &parsed.command else { panic!("{parsed:?}") };
    let request = bench_request(&parsed.common, options, Means::Verb(RawOp::Send)).unwrap();
    let plan = request.plans(&device).unwrap().remove(0);
    for (results, says) in [
        (vec![], "the other end says Results"),
        (vec![ResultLine::default()], "the other end tells a result that is none"),
        (vec![ResultLine::default(); 2], "the other end says Results"),
    ] {
        let (mut near, mut far) = RawChannel::within().unwrap();
        std::thread::scope(|scope| {
            let following = scope.spawn(move || follow(local, &mut far, |_| Ok(())));
            let mut end = end::connect(local, &plan, &mut near).unwrap();
            let led = rate::send(&plan, &mut end, &mut near, request.until, false).unwrap();
            near.tell(&RawControl::Done(Totals { sent: led.sent })).unwrap();
            assert!(matches!(near.hear().unwrap(), RawControl::Received { .. }));
            near.tell(&RawControl::Results(results, None)).unwrap();
            match following.join().unwrap() {
                Err(FollowError::Failed(e)) => assert!(e.to_string().starts_with(says), "{e:#}"),
                _ => panic!("the follower does not say {says}"),
            }
        });
    }
}

/// Returns the error of a peer that tells this plan, but joins an ordinary queue pair.
fn try_with_unchecked(local: Local<'_>, plan: &RawPlan, stream: TcpStream) -> anyhow::Error {
    let ordinary = RawPlan { qps: 1, ..plan.clone() };
    end::connect_with(local, &ordinary, plan, &mut RawChannel::new(stream).unwrap()).unwrap_err()
}
