use super::*;
use std::net::TcpListener;

use clap::Parser;

use crate::cli::{Args, Command};

fn options(more: &[&str]) -> PingpongArgs {
    let args = ["rdma-conn", "pingpong", "--compat", "ibv_rc_pingpong"];
    match Args::parse_from(args.iter().chain(more)).command {
        Command::Pingpong(options) => options,
        other => panic!("{other:?}"),
    }
}

fn tcp_pair() -> (TcpStream, TcpStream) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let near = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    (near, listener.accept().unwrap().0)
}

#[test]
fn the_programs_settings_are_the_default() {
    let options = options(&["--connect", "10.9.0.1"]);
    let plan = plan(&options).unwrap();
    assert_eq!((plan.size, plan.recv_depth, plan.unacked), (4096, 500, 1));
    assert_eq!((options.mtu, options.ends.connect.unwrap().port()), (1024, 18_515));
}

/// Both ends are ours here; the tests with the program itself need a device that
/// crosses processes.
#[test]
fn both_ends_understand_each_other() {
    let device = rdma_conn::device::of_environment().unwrap();
    let local = Local { device: &device, gid_index: None, spin: false, polling_threads: false };
    let plan = plan(&options(&[])).unwrap();
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    std::thread::scope(|scope| {
        let served = scope.spawn(|| {
            let mut far = listener.accept().unwrap().0;
            let peer = read_destination(&mut far, READY_LIMIT).unwrap();
            serve(local, &plan, 1024, 700, far, &peer).unwrap()
        });
        let led = lead(local, &plan, 1024, 700, address).unwrap();
        let served = served.join().unwrap();
        assert_eq!([&led, &served].map(|line| line.count("messages")), [Some(1400); 2]);
        assert_eq!(led.text("latency_of"), "half round trip");
        assert_eq!((served.text("latency_of"), served.is_true("verified")), ("", false));
    });
}

#[test]
fn junk_is_refused_without_waiting_for_more_of_it() {
    for junk in [&b"RDMACONN"[..], b"G", b"0000:000011:7c5a01:x"] {
        let (mut near, mut far) = tcp_pair();
        near.write_all(junk).unwrap();
        let refused = read_destination(&mut far, Duration::from_secs(60)).unwrap_err();
        assert!(format!("{refused:#}").contains("no ibv_rc_pingpong"), "{refused:#}");
    }
    let (near, mut far) = tcp_pair();
    drop(near);
    assert!(read_destination(&mut far, Duration::from_secs(60)).is_err());
}

#[test]
fn a_client_that_is_not_done_is_an_error() {
    let ours = Destination { lid: 0, qp_num: 1, psn: 2, gid: [3; 16] };
    for said in [&b"gone\0"[..], b"do"] {
        let (mut near, mut far) = tcp_pair();
        near.write_all(said).unwrap();
        near.shutdown(std::net::Shutdown::Write).unwrap();
        assert!(answer_as_server(&mut far, &ours).is_err());
    }
}

#[test]
fn a_peer_without_a_gid_is_told_what_to_do() {
    let nowhere = Destination { lid: 0, qp_num: 1, psn: 2, gid: [0; 16] };
    assert!(endpoint(&nowhere).unwrap_err().to_string().contains("-g INDEX"));
    endpoint(&Destination { lid: 5, ..nowhere }).unwrap();
}
