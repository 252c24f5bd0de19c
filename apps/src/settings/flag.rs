//! Flags with their values, so that two ends can compare them.

use serde_json::Value;

/// A flag and its value, as people write them.
pub(crate) type Flag = (&'static str, String);

/// A value as people write it.
pub(crate) fn shown(value: &impl ToString) -> String {
    value.to_string()
}

/// A flag without a value, as one with it.
pub(crate) fn switch(on: bool) -> String {
    if on { "on" } else { "off" }.to_owned()
}

/// A flag with its number, if it was given.
pub(crate) fn number<T: ToString>(flag: &'static str, value: Option<T>) -> Option<Flag> {
    value.map(|value| (flag, value.to_string()))
}

/// The flag of a setting, with the setting's value: `--no-credits` is on where there are none.
pub(super) fn with_value(flag: &'static str, value: &Value) -> Flag {
    let text = match value {
        Value::Null => switch(false),
        Value::Bool(on) => switch(*on != flag.starts_with("--no-")),
        Value::String(word) => word.clone(),
        other => other.to_string(),
    };
    (flag, text)
}
