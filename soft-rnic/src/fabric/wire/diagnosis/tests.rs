use super::*;

fn silent() -> Unreached {
    Unreached {
        device: "roce:10.0.0.1".into(),
        peer: "10.0.0.2".parse().unwrap(),
        has_answered: false,
        packet_bytes: 4_096,
        is_port_down: false,
        refused: None,
        foreign: None,
        bad_icrc: 0,
        overflowed: 0,
    }
}

#[test]
fn the_likeliest_cause_comes_first_and_the_next_step_last() {
    let first = |unreached: Unreached, begins: &str| {
        let text = unreached.to_string();
        let causes = text.strip_prefix("10.0.0.2 does not answer: ").unwrap();
        assert!(causes.starts_with(begins), "{text}");
        assert!(
            text.ends_with("; next: `rdma-conn doctor --device roce:10.0.0.1 --connect 10.0.0.2`"),
            "{text}"
        );
    };
    let all = Unreached {
        has_answered: true,
        is_port_down: true,
        refused: Some(Errno::PERM),
        foreign: Some("10.0.0.9".parse().unwrap()),
        bad_icrc: 3,
        overflowed: 7,
        ..silent()
    };
    assert_eq!(all.causes().len(), 7);
    first(all.clone(), "the interface of this end is down");
    let all = Unreached { is_port_down: false, ..all };
    first(all.clone(), "this machine has not sent packets");
    first(
        Unreached { refused: None, ..all.clone() },
        "packets for a queue pair came from 10.0.0.9",
    );
    let all = Unreached { refused: None, foreign: None, ..all };
    first(all.clone(), "3 packets came with a checksum that does not fit");
    first(
        Unreached { bad_icrc: 0, ..all.clone() },
        "it has answered before, and the packets have 4096",
    );
    let short = Unreached { bad_icrc: 0, packet_bytes: 64, ..all };
    first(short.clone(), "this end's socket had no room for 7 packets");
    first(Unreached { overflowed: 0, ..short }, "the peer has ended");
    first(silent(), "nothing came from 10.0.0.2: a firewall for UDP port 4791");
}
