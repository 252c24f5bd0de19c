use super::*;

#[test]
fn every_field_out_of_range_is_named() {
    let ok = Config::default();
    ok.validate().unwrap();
    Config { message_bytes: 0, ..ok }.validate().unwrap();
    let cases = [
        ("buffers", Config { buffers: 0, ..ok }),
        ("buffers", Config { buffers: 65_537, ..ok }),
        ("buffers", Config { buffers: 16_384, ..ok }),
        ("max_peer_buffers", Config { max_peer_buffers: 0, ..ok }),
        ("message_bytes", Config { message_bytes: (1 << 30) + 1, ..ok }),
        ("send_queue", Config { send_queue: 1, ..ok }),
        ("send_queue", Config { send_queue: 16_385, ..ok }),
        ("signal_every", Config { signal_every: 129, ..ok }),
        ("batch", Config { batch: 0, ..ok }),
        ("batch", Config { batch: 65, ..ok }),
    ];
    for (field, config) in cases {
        assert_eq!(config.validate().unwrap_err().field, field);
    }
    let polled = Config { buffers: 16_384, detection: Detection::Polled, ..ok };
    polled.validate().unwrap();
}
