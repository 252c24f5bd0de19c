//! Connections under a limit of a file's length: registered memory is a file. The limit is
//! the process's, so these tests have one of their own.

mod support;

use rdma_conn::send_recv::{Config, ConnectError};
use rdma_conn::verbs_safe::{MapError, Mapping, Mirrored, ResourceLimit};
use rdma_conn::{Connection, RecvHalf, SendHalf, SendRecv, pair};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use support::{bounded, device, repeated};

const LIMIT: u64 = 256 << 20;

fn limited() {
    let limit = Rlimit { current: Some(LIMIT), ..getrlimit(Resource::Fsize) };
    setrlimit(Resource::Fsize, limit).unwrap();
}

fn is_the_limit(error: &MapError) -> bool {
    let names_it = error.to_string().contains("RLIMIT_FSIZE");
    error.limit == Some(ResourceLimit::FileSize(LIMIT)) && names_it
}

fn exchange(one: &mut Connection<SendRecv>, other: &mut Connection<SendRecv>) {
    one.sender.send_acked(b"there").unwrap();
    one.sender.flush().unwrap();
    assert_eq!(&*other.receiver.recv().unwrap(), b"there");
}

#[test]
fn any_number_of_pairs_may_come_and_go() {
    bounded(|| {
        limited();
        let (device, config) = (device(), support::config::<Config>());
        let mut kept = None;
        for _ in 0..repeated(400) {
            let (mut one, mut other) = pair::<SendRecv>(&device, &device, &config).unwrap();
            exchange(&mut one, &mut other);
            // Two pairs overlap, so that what is freed is not always the end of the file.
            kept = Some((one, other));
        }
        drop(kept);
    });
}

#[test]
fn more_than_the_limit_is_an_error_that_names_it() {
    bounded(|| {
        limited();
        let large =
            Config { recv_depth: 1 << 10, message_bytes: 1 << 19, ..support::config::<Config>() };
        let device = device();
        let refused = pair::<SendRecv>(&device, &device, &large).unwrap_err();
        let text = refused.to_string();
        assert!(matches!(refused, ConnectError::Device(_)), "{refused:?}");
        assert!(text.contains("RLIMIT_FSIZE") && text.contains("268435456"), "{text}");
        assert!(is_the_limit(&Mapping::new(LIMIT as usize + 1).unwrap_err()));
        assert!(is_the_limit(&Mirrored::new(LIMIT as usize + 1).unwrap_err()));
        // And nothing is lost by it.
        let (mut one, mut other) =
            pair::<SendRecv>(&device, &device, &support::config::<Config>()).unwrap();
        exchange(&mut one, &mut other);
    });
}
