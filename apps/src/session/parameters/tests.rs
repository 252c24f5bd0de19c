use rdma_conn::send_recv::SendRecv;

use rdma_conn::send_recv::Config;

use super::*;

/// Returns the terms that a connecting end with these settings tells.
fn terms(config: Config) -> SettingTerms {
    settings::terms(SendRecv::SETTINGS, &config)
}

/// The longest numbers.
fn longest() -> Config {
    Config {
        message_bytes: u32::MAX,
        unacked: u32::MAX,
        batch: u32::MAX,
        pack_bytes: u32::MAX,
        recv_depth: 16_384,
        credits: false,
        ..Config::default()
    }
}

fn session() -> SessionParameters {
    SessionParameters {
        command: "pingpong".into(),
        run: u64::MAX,
        parts: u32::MAX,
        part: u32::MAX - 1,
        senders: 1024,
        sender: 1023,
        traffic: TrafficParameters {
            size: u32::MAX,
            preset: Some("sequential".into()),
            terms: terms(longest()),
            verify: false,
            receiving: Some(ReceiverThreads::SingleReceiver),
            srq: Some("combining".into()),
            srq_buffers: Some(u32::MAX),
            end: Some(EndOfLoad::After(std::time::Duration::from_nanos(86_399_999_999_999))),
            rate: Some(f64::MAX),
            file: Some((u64::MAX, u32::MAX)),
            rounds: RoundsArgs::MOST,
        },
    }
}

/// As many of everything as there is room for.
fn room() -> Config {
    Config { message_bytes: 256, unacked: 0, recv_depth: 16_383, ..longest() }
}

fn fine() -> SessionParameters {
    let traffic = TrafficParameters {
        size: 255,
        terms: terms(room()),
        srq_buffers: Some(1 << 24),
        rounds: 3,
        ..session().traffic
    };
    let parts = 3 * MOST_SIZES;
    SessionParameters { traffic, parts, part: parts - 1, ..session() }
}

#[test]
fn the_longest_one_fits_the_handshake() {
    let bytes = session().encode().unwrap();
    assert_eq!(serde_json::from_slice::<SessionParameters>(&bytes).unwrap(), session());
    let bytes = fine().encode().unwrap();
    assert_eq!(SessionParameters::decode::<SendRecv>(&bytes, "pingpong").unwrap(), fine());
    let error = SessionParameters::decode::<SendRecv>(&bytes, "bench").unwrap_err().to_string();
    assert!(error.contains("same command"), "{error}");
    let error =
        SessionParameters::decode::<SendRecv>(b"rdma-conn copy 5", "pipe").unwrap_err().to_string();
    assert!(error.contains("the command copy, the listening end pipe"), "{error}");
    let error = SessionParameters::decode::<SendRecv>(b"{}", "bench").unwrap_err().to_string();
    assert!(error.contains("version"), "{error}");
}

#[test]
fn numbers_out_of_range_are_refused() {
    let with = |traffic| SessionParameters { traffic, ..fine() };
    let told = |config| with(TrafficParameters { terms: terms(config), ..fine().traffic });
    let window = |recv_depth| told(Config { recv_depth, ..room() });
    let bytes = |message_bytes| Config { message_bytes, ..room() };
    let unacked = |unacked| Config { unacked, ..room() };
    let own = TrafficParameters { srq: None, ..fine().traffic };
    for bad in [
        SessionParameters { senders: 0, sender: 0, ..fine() },
        SessionParameters { senders: u32::MAX, ..fine() },
        SessionParameters { sender: 1024, ..fine() },
        SessionParameters { parts: 3, part: 3, ..fine() },
        SessionParameters { parts: 4, part: 3, ..fine() },
        SessionParameters { parts: 3 * (MOST_SIZES + 1), ..fine() },
        with(TrafficParameters { rounds: 0, ..fine().traffic }),
        window(0),
        window(u32::MAX),
        // More than a buffer, and more buffers than a peer may ask for.
        with(TrafficParameters { size: 257, ..fine().traffic }),
        told(bytes(257)),
        told(bytes(u32::MAX)),
        told(unacked(1)),
        with(TrafficParameters { terms: terms(unacked(u32::MAX)), ..own.clone() }),
        with(TrafficParameters { terms: terms(bytes(257)), ..own }),
        with(TrafficParameters { srq_buffers: Some(u32::MAX), ..fine().traffic }),
        // Settings of something else.
        with(TrafficParameters { terms: SettingTerms(Vec::new()), ..fine().traffic }),
        with(TrafficParameters { terms: SettingTerms(vec![true.into(); 6]), ..fine().traffic }),
    ] {
        assert!(
            SessionParameters::decode::<SendRecv>(&bad.encode().unwrap(), "pingpong").is_err(),
            "{bad:?}"
        );
    }
}

#[test]
fn a_difference_is_named() {
    let ours = session().traffic;
    let difference =
        |theirs: &TrafficParameters| ours.difference::<SendRecv>(theirs, Purpose::Throughput);
    assert_eq!(difference(&ours.clone()), None);
    let terms_of = |config| TrafficParameters { terms: terms(config), ..ours.clone() };
    let named = difference(&terms_of(Config { unacked: 7, ..longest() })).unwrap();
    assert_eq!(named, "--unacked 4294967295, and not --unacked 7");
    let hidden = terms_of(Config { message_bytes: 7, ..longest() });
    assert!(difference(&hidden).is_some());
}

#[test]
fn what_was_not_asked_for_is_no_contradiction() {
    let wanted = session().traffic.flags::<SendRecv>(Purpose::Throughput);
    let asked = |flag, value: &str| contradiction(&[(flag, value.into())], &wanted);
    assert_eq!(contradiction(&[], &wanted), None);
    assert_eq!(asked("--preset", "sequential"), None);
    assert_eq!(asked("--no-credits", "on"), None);
    let says = asked("--preset", "batched").unwrap();
    assert!(says.contains("--preset sequential, the listening end batched"), "{says}");
    assert!(
        says.ends_with("give both ends --preset batched, or leave it out where you --listen"),
        "{says}"
    );
    assert_eq!(
        remedy("--no-verify", "on"),
        "give both ends --no-verify, or leave it out where you --listen"
    );
    assert_eq!((other_sizes(&[], 7), other_sizes(&[16, 64], 2)), (None, None));
    let says = other_sizes(&[16, 64], 1).unwrap();
    assert!(says.contains("has 1 size, the listening end 2 sizes"), "{says}");
    assert!(says.contains("give both ends --size 16,64"), "{says}");
    assert!(asked("--messages", "5").is_some(), "it has seconds instead");
}
