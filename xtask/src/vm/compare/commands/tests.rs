use super::super::cases::{SIZES, chosen};
use super::*;

fn lines(name: &str, size: u32) -> (String, String) {
    let comparison = chosen(&[name.to_owned()], &[size]).unwrap()[0];
    let setting = CompareSetting { device: "rxe0", gid_index: 1, ours: Path::new("/x/rdma-conn") };
    let (theirs, ours) = (comparison.perftest(&setting, 7), comparison.ours(&setting, 8));
    assert_eq!(theirs.connector.last().unwrap(), ADDRESS);
    assert!(!theirs.listener.contains(&ADDRESS.to_owned()));
    assert!(shown(&ours.listener).ends_with("--listen 127.0.0.1:8"));
    assert!(shown(&ours.connector).ends_with("--connect 127.0.0.1:8"));
    (shown(&theirs.listener), shown(&ours.listener))
}

#[test]
fn both_are_asked_for_the_same() {
    let (theirs, ours) = lines("send-bw-list", 512);
    for flag in ["ib_send_bw", "-s 512", "-t 128", "-Q 8", "-l 8", "-r 512", "-q 1", "-I 0"] {
        assert!(theirs.contains(flag), "{flag}: {theirs}");
    }
    for flag in [
        "bench --op send",
        "--size 512",
        "--unacked 128",
        "--signal-every 8",
        "--batch 8",
        "--recv-depth 512",
        "--qps 1",
        "--inline 0",
        "--no-verify",
    ] {
        assert!(ours.contains(flag), "{flag}: {ours}");
    }
}

#[test]
fn what_makes_a_case_is_said_to_both() {
    let both = |name, flag: &str, our_flag: &str| {
        let (theirs, ours) = lines(name, SIZES[0]);
        assert!(theirs.contains(flag) && ours.contains(our_flag), "{theirs}\n{ours}");
    };
    both("send-bw-srq", "--use-srq", "--srq");
    both("send-bw-qps", "-q 4", "--qps 4");
    both("send-lat-inline", "-I 16", "--inline 16");
    both("read-bw", "-o 16", "--op read");
    both("write-lat", "ib_write_lat", "--assume-in-order");
    both("send-lat-ud", "-c UD", "--transport ud --peers 1");
    both("connection-bw", "ib_send_bw", "bench --protocol send-recv");
    both("connection-lat-events", " -e", "--wait block");
    both("buffered-read-16", "ib_send_bw", "bench --protocol buffered-read");
    both("buffered-write-lat", "ib_write_lat", "pingpong --protocol buffered-write");
    let (theirs, ours) = lines("buffered-read-long", 8192);
    assert!(theirs.contains("ib_read_bw") && ours.contains("--max-read-bytes 8200"));
}
