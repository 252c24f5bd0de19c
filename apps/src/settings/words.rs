//! Settings with words as values.

use std::mem::discriminant;

use clap::builder::{PossibleValue, PossibleValuesParser};
use rdma_conn::buffered_write::Tail;
use rdma_conn::direct_read::{AckMode, SignalAt};
use rdma_conn::direct_write::Detection;
use serde_json::Value;

/// Words of a flag: what each means, the word, and its help.
type Words<T> = [(T, &'static str, &'static str)];

/// Receives for immediates, where no other number was given.
const WINDOW: u32 = 512;

pub(super) const TAILS: &Words<Tail> = &[
    (Tail::Immediate { window: WINDOW }, "immediate", "As the immediate of the last WRITE"),
    (Tail::Written, "written", "By a WRITE of its own"),
];

pub(super) const ACKS: &Words<AckMode> = &[
    acked(AckMode::FencedWrite, "A WRITE behind each READ, held back by a fence"),
    acked(AckMode::Write, "A WRITE for each READ, when that has completed"),
    acked(AckMode::Send, "A SEND when READs have completed"),
    acked(AckMode::Cumulative, "A WRITE of how many were read, for many messages"),
    acked(AckMode::Pull, "The sender READs how many were read, when it needs buffers"),
];

const fn acked(by: AckMode, help: &'static str) -> (AckMode, &'static str, &'static str) {
    (by, by.name(), help)
}

pub(super) const SIGNALS: &Words<SignalAt> = &[
    (SignalAt::Tail, "tail", "Behind the message's buffer"),
    (SignalAt::Separate, "separate", "In memory of its own"),
];

pub(super) const DETECTIONS: &Words<Detection> = &[
    (Detection::Immediate, "immediate", "By an immediate, which wakes it"),
    (Detection::Polled, "polled", "By the trailer at the end of the buffer, which it polls"),
];

/// Parses one of the words, and tells help and completions all of them.
pub(super) fn parser<T>(words: &Words<T>) -> PossibleValuesParser {
    let values = words.iter().map(|(_, word, help)| PossibleValue::new(*word).help(*help));
    PossibleValuesParser::new(values)
}

/// The word for a value; the fields of the value are ignored.
pub(super) fn word<T>(words: &Words<T>, value: &T) -> Value {
    let word = words.iter().find(|(known, ..)| discriminant(known) == discriminant(value));
    word.map_or(Value::Null, |(_, word, _)| (*word).into())
}

/// Sets what a word means. A value that has this word already is kept, with what is in it.
pub(super) fn set_word<T: Copy>(words: &Words<T>, to: &mut T, word: &Value) -> Option<()> {
    let (meant, ..) = words.iter().find(|(_, known, _)| word.as_str() == Some(*known))?;
    if discriminant(meant) != discriminant(to) {
        *to = *meant;
    }
    Some(())
}

/// Access to a field with words as values, for [`Setting::own`](super::Setting::own) and
/// [`Setting::told`](super::Setting::told).
macro_rules! in_words {
    ($words:ident, $($field:ident).+) => {
        (
            |config| $crate::settings::words::word($words, &config.$($field).+),
            |config, value| {
                $crate::settings::words::set_word($words, &mut config.$($field).+, value)
            },
        )
    };
}
pub(super) use in_words;
