use clap::{CommandFactory, Parser};

use super::*;

#[derive(Parser)]
struct SettingsCommandLine {
    #[command(flatten)]
    given: GivenSettings,
}

/// Each setting is named once, and what is told is understood.
fn hold_together<C: Clone>(settings: &[Setting<C>], base: &C, other: &C) {
    let named = settings.iter().filter(|setting| !setting.flag.is_empty());
    let mut names: Vec<&str> = named.map(|setting| setting.flag).collect();
    names.sort_unstable();
    assert!(names.windows(2).all(|pair| pair[0] != pair[1]), "{names:?}");
    let command = SettingsCommandLine::command();
    for name in names {
        let long = name.strip_prefix("--");
        assert!(command.get_arguments().any(|arg| arg.get_long() == long), "{name}");
    }
    let told = terms(settings, other);
    let mut host = base.clone();
    set_terms(settings, &mut host, &told).unwrap();
    assert_eq!(terms(settings, &host), told);
    assert_eq!(describe(settings, &host), describe(settings, other));
    assert_eq!(title(settings, &host), title(settings, other));
    let bytes = serde_json::to_vec(&told).unwrap();
    assert_eq!(serde_json::from_slice::<SettingTerms>(&bytes).unwrap(), told);
    // Values of another kind, and more or fewer of them, are another version's.
    let absurd = SettingTerms(told.0.iter().map(|_| "absurd".into()).collect());
    assert_eq!(set_terms(settings, &mut host, &absurd), None);
    let (_, fewer) = told.0.split_last().unwrap();
    assert_eq!(set_terms(settings, &mut host, &SettingTerms(fewer.to_vec())), None);
    // What both ends were told alike is no contradiction.
    let told = by_flag(settings, &told);
    let words = told.iter().flat_map(|(flag, value)| match &**value {
        "off" => vec![],
        "on" => vec![*flag],
        value => vec![*flag, value],
    });
    let words = ["rdma-conn"].into_iter().chain(words);
    let asked = asked(settings, &SettingsCommandLine::parse_from(words).given);
    assert!(!asked.is_empty());
    for flag in asked {
        assert!(told.contains(&flag), "{flag:?}");
    }
}

#[test]
fn send_recv_settings_hold_together() {
    use rdma_conn::send_recv::Config;
    let base = Config::default();
    let other = Config { unacked: 7, batch: 3, credits: false, pack_bytes: 64, ..base };
    hold_together(send_recv::SETTINGS, &base, &other);
    assert_eq!(title(send_recv::SETTINGS, &other), "7 unacknowledged, 3 to a doorbell, no credits");
    let described = describe(send_recv::SETTINGS, &other);
    assert_eq!(described["credits"], false);
    assert_eq!(described["pack_bytes"], 64);
}

#[test]
fn buffered_read_settings_hold_together() {
    use rdma_conn::buffered_read::Config;
    let base = Config::default();
    let mut other = Config { reads: 2, prefetch: false, head_threshold: 9, ..base };
    other.ring.ring_bytes = 128 << 20;
    hold_together(buffered_read::SETTINGS, &base, &other);
    assert_eq!(
        title(buffered_read::SETTINGS, &base),
        "a ring of 2 MiB, up to 4 READs of 512 KiB, prefetching"
    );
    let mut host = base;
    let told = terms(buffered_read::SETTINGS, &other);
    set_terms(buffered_read::SETTINGS, &mut host, &told).unwrap();
    assert_eq!(host.peer_ring_bytes, 128 << 20, "there is room for it");
    assert_eq!(by_flag(buffered_read::SETTINGS, &told).last().unwrap().1, "on", "--no-prefetch");
}

#[test]
fn buffered_write_settings_hold_together() {
    use rdma_conn::buffered_write::{Config, Tail};
    let base = Config::default();
    let written = Config { tail: Tail::Written, batch_bytes: 8192, ..base };
    let immediate = Config { tail: Tail::Immediate { window: 9 }, ..base };
    hold_together(buffered_write::SETTINGS, &base, &written);
    hold_together(buffered_write::SETTINGS, &written, &immediate);
    assert_eq!(
        title(buffered_write::SETTINGS, &written),
        "a ring of 1 MiB, tails written, 8 KiB gathered"
    );
    assert!(!describe(buffered_write::SETTINGS, &written).contains_key("recv_depth"));
}

#[test]
fn direct_read_settings_hold_together() {
    use rdma_conn::direct_read::{AckMode, Config as Policies, SignalAt};
    let base = direct_read::DirectReadSettings { policies: Policies::default(), size: 64 };
    let policies = Policies { ack: AckMode::Pull, signal_at: SignalAt::Tail, ..base.policies };
    let other = direct_read::DirectReadSettings { policies, size: 1 << 20 };
    hold_together(direct_read::SETTINGS, &base, &other);
    assert_eq!(title(direct_read::SETTINGS, &other), "32 unacknowledged, acknowledged by pull");
}

#[test]
fn direct_write_settings_hold_together() {
    use rdma_conn::direct_write::{Config, Detection};
    let base = Config::default();
    let other = Config { buffers: 7, detection: Detection::Polled, batch: 3, ..base };
    hold_together(direct_write::SETTINGS, &base, &other);
    let title = title(direct_write::SETTINGS, &other);
    assert_eq!(title, "7 buffers, messages found by polling, 3 in a batch");
}

#[test]
fn shared_write_settings_hold_together() {
    use rdma_conn::shared_write::Config;
    let base = Config::default();
    let other = Config { extents: 7, extent_bytes: 4096, batch: 3, ..base };
    hold_together(shared_write::SETTINGS, &base, &other);
    let title = title(shared_write::SETTINGS, &other);
    assert_eq!(title, "7 extents of 4 KiB, 3 in a batch");
}
