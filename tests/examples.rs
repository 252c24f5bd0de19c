//! Each example runs, on the device that everything runs on. Each checks that what arrives is what
//! was sent.
//!
//! Shows: examples.
#![allow(clippy::duplicate_mod, reason = "each example has what the examples share")]

/// An example that is a package of its own is run by the gate, with what it must not contain.
#[test]
fn packages_are_run_by_the_gate() {
    let root = std::path::Path::new(env!("CARGO_MANIFEST_DIR"));
    for entry in std::fs::read_dir(root.join("examples")).unwrap() {
        let path = entry.unwrap().path();
        if path.join("Cargo.toml").exists() {
            let gate = std::fs::read_to_string(root.join("conn-core/proof/run.sh")).unwrap();
            let name = path.file_name().unwrap().to_str().unwrap();
            assert!(gate.contains(&format!("examples/{name}/Cargo.toml")), "{name}");
        }
    }
}

macro_rules! examples {
    ($($name:ident $path:literal)*; with arguments: $($other:ident $other_path:literal)*) => {
        $(
            #[path = $path]
            mod $name;

            #[test]
            fn $name() {
                self::$name::main().unwrap();
            }
        )*

        $(
            #[path = $other_path]
            #[allow(dead_code, reason = "it is run with arguments, and not by its main")]
            mod $other;
        )*

        /// In a process of its own: tests/simulated_world.rs.
        const ALONE: &str = "simulated_world";

        /// An example that is not listed here would run nowhere.
        #[test]
        fn all_of_them_are_tested() {
            let known = [$(stringify!($name),)* $(stringify!($other),)* ALONE];
            let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/examples");
            for entry in std::fs::read_dir(folder).unwrap() {
                let path = entry.unwrap().path();
                let name = path.file_stem().unwrap().to_str().unwrap();
                if path.extension().is_some_and(|e| e == "rs") {
                    assert!(known.contains(&name), "{name}");
                }
            }
        }
    };
}

examples! {
    send_recv "../examples/send_recv.rs"
    write_polling "../examples/write_polling.rs"
    optimizations "../examples/optimizations.rs"
    own_protocol "../examples/own_protocol.rs"
    srq "../examples/srq.rs"
    srq_classes "../examples/srq_classes.rs"
    write_imm "../examples/write_imm.rs"
    datagrams "../examples/datagrams.rs"
    long_datagrams "../examples/long_datagrams.rs"
    replicated "../examples/replicated.rs"
    direct_read "../examples/direct_read.rs"
    ; with arguments:
    event_loop "../examples/event_loop.rs"
    grpc "../examples/grpc.rs"
    http "../examples/http.rs"
    request_reply "../examples/request_reply.rs"
    round_trip "../examples/round_trip.rs"
}

const PROTOCOLS: [&str; 6] =
    ["send-recv", "buffered-read", "buffered-write", "direct-read", "direct-write", "shared-write"];

/// Two messages: a SEND each; a request, a READ and an acknowledgement each; a READ of the tail and
/// one of the data each. Credits are granted beside the path, for eight messages at a time.
#[test]
fn a_round_trip_takes_no_request_more_than_the_protocol_says() {
    // How many READs a Buffered Read receiver begins that find nothing is a matter of time.
    for (protocol, requests, beside_it) in [
        ("send-recv", 2.0, Some(0.25)),
        ("direct-read", 6.0, Some(0.0)),
        ("buffered-read", 4.0, None),
    ] {
        for bytes in ["16", "8192"] {
            let counted = round_trip::run(&[protocol, bytes, "1000"]).unwrap();
            let more = counted.on_the_path - requests;
            assert!((0.0..0.1).contains(&more), "{protocol}, {bytes} bytes: {counted:?}");
            if let Some(beside_it) = beside_it {
                assert!((counted.beside_it - beside_it).abs() < 0.01, "{protocol}: {counted:?}");
            }
        }
    }
}

#[test]
fn round_trips_are_of_all_three_protocols_unless_one_is_named() {
    let protocols = |arguments: &[&'static str]| {
        let all = round_trip::run_all(arguments).unwrap();
        assert!(all.iter().all(|(_, counted)| counted.on_the_path >= 2.0), "{all:?}");
        all.into_iter().map(|(protocol, _)| protocol).collect::<Vec<_>>()
    };
    assert_eq!(protocols(&[]), ["send-recv", "direct-read", "buffered-read"]);
    assert_eq!(protocols(&["direct-read", "16", "10"]), ["direct-read"]);
}

#[test]
fn event_loop_over_every_connection() {
    let device = rdma_conn::device::of_environment().unwrap();
    event_loop::run::<rdma_conn::SendRecv>(&device).unwrap();
    event_loop::run::<rdma_conn::BufferedRead>(&device).unwrap();
    event_loop::run::<rdma_conn::BufferedWrite>(&device).unwrap();
    event_loop::run::<rdma_conn::DirectRead>(&device).unwrap();
    event_loop::run::<rdma_conn::DirectWrite>(&device).unwrap();
    event_loop::run::<rdma_conn::SharedWrite>(&device).unwrap();
}

/// A Unix socket refuses the answer to a GOAWAY in one of ten runs, if the client is fast.
#[test]
fn an_http_client_leaves_while_the_server_answers() {
    let device = rdma_conn::device::of_environment().unwrap();
    let builder = &mut tokio::runtime::Builder::new_multi_thread();
    let runtime = builder.worker_threads(2).enable_all().build().unwrap();
    for _ in 0..200 {
        let unix = http::transports::ConnectionKind::Unix;
        let measured = http::measure(&device, unix, http::Version::Http2, 2, 1000);
        runtime.block_on(measured).unwrap();
    }
}

#[test]
fn http_and_grpc_over_every_stream() {
    let device = rdma_conn::device::of_environment().unwrap();
    let builder = &mut tokio::runtime::Builder::new_multi_thread();
    let runtime = builder.worker_threads(2).enable_all().build().unwrap();
    for transport in http::transports::ConnectionKind::ALL {
        for version in [http::Version::Http1, http::Version::Http2] {
            let (_, rate) = runtime
                .block_on(http::measure(&device, transport, version, 20, 3_000_001))
                .unwrap_or_else(|e| panic!("{transport:?}, {version:?}: {e:?}"));
            assert!(rate > 0.0);
        }
    }
    for transport in grpc::transports::ConnectionKind::ALL {
        let (_, rate) = runtime
            .block_on(grpc::measure(&device, transport, 50))
            .unwrap_or_else(|e| panic!("{transport:?}: {e:?}"));
        assert!(rate > 0.0);
    }
}

/// No pipeline needs a flush, nor a number of requests that anything divides.
#[test]
fn request_reply_over_every_connection() {
    for protocol in PROTOCOLS {
        for pipeline in ["1", "7", "16", "255"] {
            let arguments = ["--protocol", protocol, "--requests", "1001", "--pipeline", pipeline];
            request_reply::run(&arguments).unwrap_or_else(|e| panic!("{arguments:?}: {e}"));
        }
    }
}

/// Above the window, a client that sends and takes no replies waits for room: until the
/// timeout.
#[test]
fn request_reply_above_the_window_times_out() {
    for protocol in PROTOCOLS {
        let many = "1000000";
        let arguments =
            ["--protocol", protocol, "--requests", many, "--pipeline", many, "--timeout", "0.2"];
        let error = request_reply::run(&arguments).unwrap_err().to_string();
        assert!(error.starts_with("timed out"), "{protocol}: {error}");
    }
    let unknown = request_reply::run(&["--protocol", "pigeons"]).unwrap_err().to_string();
    assert!(unknown.starts_with("--protocol pigeons"), "{unknown}");
}
