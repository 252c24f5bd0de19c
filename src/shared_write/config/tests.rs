use super::*;

#[test]
fn every_field_out_of_range_is_named() {
    let ok = Config::default();
    ok.validate().unwrap();
    Config { message_bytes: 0, extent_bytes: 64, ..ok }.validate().unwrap();
    let longest = Config { message_bytes: Config::MAX_MESSAGE_BYTES, ..ok };
    longest.validate().unwrap();
    let cases = [
        ("extents", Config { extents: 0, ..ok }),
        ("extents", Config { extents: 65_537, ..ok }),
        ("extent_bytes", Config { extent_bytes: 8192, ..ok }),
        ("extent_bytes", Config { extent_bytes: 16_400, ..ok }),
        ("message_bytes", Config { message_bytes: 1 << 30, ..ok }),
        ("send_queue", Config { send_queue: 2, ..ok }),
        ("send_queue", Config { send_queue: 16_385, ..ok }),
        ("signal_every", Config { signal_every: 129, ..ok }),
        ("batch", Config { batch: 0, ..ok }),
        ("batch", Config { batch: 43, ..ok }),
    ];
    for (field, config) in cases {
        assert_eq!(config.validate().unwrap_err().field, field);
    }
    assert_eq!(ok.layout(0).unwrap_err().field, "max_peers");
    assert_eq!(ok.layout(129).unwrap_err().field, "extents");
    ok.layout(128).unwrap();
    assert_eq!(ok.layout(1).unwrap().bytes() >> 20, 8);
}
