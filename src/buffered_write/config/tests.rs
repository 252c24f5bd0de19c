use super::*;
use crate::qp::Transport;
use crate::ring::Layout;

#[test]
fn every_field_out_of_range_is_named() {
    let ok = Config::default();
    ok.validate().unwrap();
    let ring = |ring_bytes, message_bytes| {
        let layout = Layout::Plain;
        Config { ring: RingShape { ring_bytes, message_bytes, layout }, ..ok }
    };
    let cases = [
        ("ring_bytes", ring(5000, 10)),
        ("ring_bytes", ring(1 << 31, 10)),
        ("message_bytes", ring(4096, 2048)),
        ("tail.window", Config { tail: Tail::Immediate { window: 0 }, ..ok }),
        ("send_queue", Config { send_queue: 3, ..ok }),
        ("send_queue", Config { send_queue: 16_385, ..ok }),
        ("signal_every", Config { signal_every: 129, ..ok }),
        ("head_threshold", Config { head_threshold: (1 << 20) + 1, ..ok }),
        ("poll_batch", Config { poll_batch: 0, ..ok }),
        (
            "transport.timeout",
            Config {
                common: Common {
                    transport: Transport { timeout: 0, ..ok.common.transport },
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
