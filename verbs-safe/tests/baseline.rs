//! The raw loop that everything is compared with does move what it says.
//!
//! Only on soft0, rxe0: it takes devices of soft-rnic by no other name.

mod common;

use verbs_safe::baseline::{RawLoop, RawLoopConfig, RawLoopError};

#[test]
fn all_messages_arrive_in_one_thread_and_in_two() {
    let batched = RawLoopConfig::default();
    let odd = RawLoopConfig {
        size: 8,
        batch: 3,
        unacked: 7,
        signal_every: 5,
        poll_batch: 1,
        repost_batch: 2,
        slots: 9,
        inline: true,
    };
    let sequential = RawLoopConfig { batch: 1, unacked: 1, signal_every: 1, ..batched };
    for config in [batched, odd, sequential, RawLoopConfig { size: 0, ..batched }] {
        let mut raw = RawLoop::new(&common::context(), config).unwrap();
        for messages in [0, 1, 1000, 777] {
            raw.run(messages).unwrap();
            raw.run_two_threads(messages).unwrap();
        }
        assert_eq!(raw.messages(), 2 * 1778);
    }
}

#[test]
fn settings_with_which_it_would_stand_still_are_refused() {
    let good = RawLoopConfig::default();
    let bad = [
        RawLoopConfig { batch: 0, ..good },
        RawLoopConfig { signal_every: 250, ..good },
        RawLoopConfig { batch: 257, ..good },
        RawLoopConfig { repost_batch: 513, ..good },
        RawLoopConfig { repost_batch: 512, ..good },
    ];
    let context = common::context();
    for config in bad {
        let error = RawLoop::new(&context, config).err().expect("a refusal");
        assert!(matches!(error, RawLoopError::Config(_)), "{error}");
    }
}
