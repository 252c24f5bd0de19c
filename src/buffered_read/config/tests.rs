use super::*;
use crate::qp::Transport;

#[test]
fn every_field_out_of_range_is_named() {
    let ok = Config::default();
    ok.validate().unwrap();
    let small = RingShape { ring_bytes: 100, ..ok.ring };
    let cases = [
        ("ring_bytes", Config { ring: small, ..ok }),
        ("ring_bytes", Config { pages: Pages::Huge2M, ring: RingShape::default(), ..ok }),
        ("peer_ring_bytes", Config { peer_ring_bytes: 1, ..ok }),
        ("max_read_bytes", Config { max_read_bytes: 7, ..ok }),
        ("reads", Config { reads: 0, ..ok }),
        ("reads", Config { reads: 17, ..ok }),
        ("max_held", Config { max_held: 1 << 21, ..ok }),
        ("max_held", Config { max_held: 3, ..ok }),
        (
            "transport.port",
            Config {
                common: Common {
                    transport: Transport { port: 0, ..ok.common.transport },
                    ..ok.common
                },
                ..ok
            },
        ),
    ];
    for (field, config) in cases {
        assert_eq!(config.validate().unwrap_err().field, field);
    }
}

/// The ring is one that its sender has chosen.
#[test]
fn entries_of_the_free_list_are_bounded() {
    let held = |bytes| Config::default().max_held_for(&Geometry::plain(bytes, 8).unwrap());
    assert_eq!(held(1 << 20), 1 << 16);
    assert_eq!(held(1 << 32), Config::MAX_HELD);
}
