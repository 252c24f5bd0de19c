//! Values of settings.

use serde::{Deserialize, Serialize};

/// The value of a setting, as the handshake and the JSON have it.
#[derive(Serialize, Deserialize, Debug, Clone, PartialEq)]
#[serde(untagged)]
pub(crate) enum SettingValue {
    /// The setting means nothing beside the others.
    Nothing,
    Switch(bool),
    Number(u64),
    Word(String),
}

impl SettingValue {
    /// As the type of a field, if it is a value of that.
    pub(crate) fn get<T: FromValue>(&self) -> Option<T> {
        T::from_value(self)
    }

    pub(crate) fn word(&self) -> Option<&str> {
        match self {
            SettingValue::Word(word) => Some(word),
            _ => None,
        }
    }

    pub(super) fn into_json(self) -> serde_json::Value {
        match self {
            SettingValue::Nothing => serde_json::Value::Null,
            SettingValue::Switch(on) => on.into(),
            SettingValue::Number(number) => number.into(),
            SettingValue::Word(word) => word.into(),
        }
    }
}

/// A type that a value may be of.
pub(crate) trait FromValue: Sized {
    fn from_value(value: &SettingValue) -> Option<Self>;
}

impl FromValue for u64 {
    fn from_value(value: &SettingValue) -> Option<u64> {
        match value {
            SettingValue::Number(number) => Some(*number),
            _ => None,
        }
    }
}

impl FromValue for u32 {
    fn from_value(value: &SettingValue) -> Option<u32> {
        u64::from_value(value)?.try_into().ok()
    }
}

impl FromValue for bool {
    fn from_value(value: &SettingValue) -> Option<bool> {
        match value {
            SettingValue::Switch(on) => Some(*on),
            _ => None,
        }
    }
}

impl From<u64> for SettingValue {
    fn from(number: u64) -> SettingValue {
        SettingValue::Number(number)
    }
}

impl From<u32> for SettingValue {
    fn from(number: u32) -> SettingValue {
        SettingValue::Number(number.into())
    }
}

impl From<bool> for SettingValue {
    fn from(on: bool) -> SettingValue {
        SettingValue::Switch(on)
    }
}

impl From<&str> for SettingValue {
    fn from(word: &str) -> SettingValue {
        SettingValue::Word(word.into())
    }
}
