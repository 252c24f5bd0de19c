//! Values of settings.

use serde::{Deserialize, Serialize};

/// The value of a setting, as the handshake and the JSON have it.
#[derive(Serialize, Deserialize, Debug, Clone, PartialEq)]
#[serde(untagged)]
pub(crate) enum Value {
    /// The setting means nothing beside the others.
    Nothing,
    Switch(bool),
    Number(u64),
    Word(String),
}

impl Value {
    /// As the type of a field, if it is a value of that.
    pub(crate) fn get<T: FromValue>(&self) -> Option<T> {
        T::from_value(self)
    }

    pub(crate) fn word(&self) -> Option<&str> {
        match self {
            Value::Word(word) => Some(word),
            _ => None,
        }
    }

    pub(super) fn into_json(self) -> serde_json::Value {
        match self {
            Value::Nothing => serde_json::Value::Null,
            Value::Switch(on) => on.into(),
            Value::Number(number) => number.into(),
            Value::Word(word) => word.into(),
        }
    }
}

/// A type that a value may be of.
pub(crate) trait FromValue: Sized {
    fn from_value(value: &Value) -> Option<Self>;
}

impl FromValue for u64 {
    fn from_value(value: &Value) -> Option<u64> {
        match value {
            Value::Number(number) => Some(*number),
            _ => None,
        }
    }
}

impl FromValue for u32 {
    fn from_value(value: &Value) -> Option<u32> {
        u64::from_value(value)?.try_into().ok()
    }
}

impl FromValue for bool {
    fn from_value(value: &Value) -> Option<bool> {
        match value {
            Value::Switch(on) => Some(*on),
            _ => None,
        }
    }
}

impl From<u64> for Value {
    fn from(number: u64) -> Value {
        Value::Number(number)
    }
}

impl From<u32> for Value {
    fn from(number: u32) -> Value {
        Value::Number(number.into())
    }
}

impl From<bool> for Value {
    fn from(on: bool) -> Value {
        Value::Switch(on)
    }
}

impl From<&str> for Value {
    fn from(word: &str) -> Value {
        Value::Word(word.into())
    }
}
