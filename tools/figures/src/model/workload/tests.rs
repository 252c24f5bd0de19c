use super::*;

fn parsed(line: &str) -> Option<Workload> {
    Workload::parse(&line.split(' ').map(str::to_owned).collect::<Vec<_>>())
}

#[test]
fn runs_that_the_model_is_not_about_are_none() {
    for line in [
        "bench",
        "bench --protocol shared-write --size 16",
        "bench --protocol direct-read --ack pull --size 16",
        "bench --op read --size 16",
        "bench --preset rare --size 16",
        "bench --size many",
        "bench --size 16 --pack 20",
        "multicast --members 3 --push every:5",
        "multicast --members 3 --burst 1 --push opportunistic",
    ] {
        assert_eq!(parsed(line), None, "{line}");
    }
}

#[test]
fn flags_and_presets_are_read() {
    let load = parsed("bench --preset unbatched --single-receiver --srq --senders 4 --size 1k");
    let load = load.unwrap();
    assert_eq!((load.unacked, load.batch, load.polled, load.bytes), (64.0, 1.0, 1.0, 1024.0));
    assert!(load.shares() && load.senders == 4.0 && load.threads == 1.0);
    let load = parsed("bench --unacked 256 --batch 8 --poll-batch 4 --size 16").unwrap();
    assert_eq!((load.batch, load.polled, load.reposted), (8.0, 4.0, 8.0));
    let load = parsed("multicast --members 5 --burst 1 --push every:25").unwrap();
    assert_eq!((load.pattern, load.members, load.every), (Pattern::Multicast, 5.0, 25.0));
    let load = parsed("bench --protocol buffered-read --no-prefetch --max-read-bytes 2m --size 16");
    assert_eq!(load.map(|load| (load.is_ahead, load.transfer)), Some((false, Some(2097152.0))));
}
