use super::*;
use crate::qp::Transport;

#[test]
fn every_field_out_of_range_is_named() {
    let ok = Config::default();
    ok.validate().unwrap();
    let cases = [
        ("window", Config { window: 0, ..ok }),
        ("window", Config { window: MAX_WINDOW + 1, ..ok }),
        ("message_bytes", Config { message_bytes: 0, ..ok }),
        ("app_bytes", Config { app_bytes: 8193, ..ok }),
        ("reads", Config { reads: 0, ..ok }),
        ("gather", Config { gather: 33, ..ok }),
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
