use super::*;
use crate::qp::Transport;

#[test]
fn presets_are_those_of_the_evaluation() {
    let of = |p| (Config::preset(p).unacked, Config::preset(p).batch);
    assert_eq!(of(Preset::Sequential), (1, 1));
    assert_eq!(of(Preset::Unbatched), (64, 1));
    assert_eq!(of(Preset::Batched), (256, 8));
    let gathers = |c: Config| c.batch > 1 || c.pack_bytes > 0;
    assert!(!gathers(Config::default()), "what is accepted is sent");
    assert_eq!(Config::default().unacked, 256);
    for preset in Preset::ALL {
        Config::preset(preset).validate().unwrap();
        assert_eq!(gathers(Config::preset(preset)), preset == Preset::Batched);
        assert_eq!(preset.name().parse(), Ok(preset));
    }
    assert!("fast".parse::<Preset>().is_err());
}

#[test]
fn every_field_out_of_range_is_named() {
    let ok = Config::default();
    let transport = ok.common.transport;
    let cases = [
        ("unacked", Config { unacked: 0, ..ok }),
        ("unacked", Config { unacked: 16_385, ..ok }),
        ("recv_depth", Config { recv_depth: 0, ..ok }),
        ("batch", Config { batch: 257, ..ok }),
        ("batch", Config { batch: 0, ..ok }),
        ("signal_every", Config { signal_every: 257, ..ok }),
        ("poll_batch", Config { poll_batch: 0, ..ok }),
        ("repost_batch", Config { repost_batch: 513, ..ok }),
        ("credit_threshold", Config { credit_threshold: 513, ..ok }),
        ("message_bytes", Config { message_bytes: 0, ..ok }),
        ("message_bytes", Config { message_bytes: u32::MAX, ..ok }),
        ("pack_bytes", Config { pack_bytes: 7, ..ok }),
        ("pack_bytes", Config { pack_bytes: 8192, ..ok }),
        (
            "transport.timeout",
            Config {
                common: Common { transport: Transport { timeout: 0, ..transport }, ..ok.common },
                ..ok
            },
        ),
        (
            "transport.retry_count",
            Config {
                common: Common {
                    transport: Transport { retry_count: 8, ..transport },
                    ..ok.common
                },
                ..ok
            },
        ),
        (
            "transport.rnr_retry",
            Config {
                common: Common { transport: Transport { rnr_retry: 7, ..transport }, ..ok.common },
                ..ok
            },
        ),
        (
            "transport.min_rnr_timer",
            Config {
                common: Common {
                    transport: Transport { min_rnr_timer: 0, ..transport },
                    ..ok.common
                },
                ..ok
            },
        ),
        (
            "transport.port",
            Config {
                common: Common { transport: Transport { port: 0, ..transport }, ..ok.common },
                ..ok
            },
        ),
    ];
    for (field, config) in cases {
        assert_eq!(config.validate().unwrap_err().field, field);
    }
}
