//! Settings that a command line gives.

use super::{FlagSpec, SettingValue};

/// Settings that were given on a command line, by flag.
#[derive(Debug, Clone, Default)]
pub(crate) struct GivenSettings(Vec<(&'static str, SettingValue)>);

impl GivenSettings {
    /// Returns the value that was given for a flag.
    pub(crate) fn value(&self, flag: &FlagSpec) -> Option<&SettingValue> {
        self.0.iter().find(|(name, _)| *name == flag.name).map(|(_, value)| value)
    }

    pub(crate) fn has(&self, flag: &FlagSpec) -> bool {
        self.value(flag).is_some()
    }

    /// The number that was given for a flag.
    pub(crate) fn number(&self, flag: &FlagSpec) -> Option<u32> {
        self.value(flag)?.get()
    }

    /// The word that was given for a flag.
    pub(crate) fn word(&self, flag: &FlagSpec) -> Option<&str> {
        self.value(flag)?.word()
    }

    /// Takes a value as given.
    pub(crate) fn set(&mut self, flag: &FlagSpec, value: SettingValue) {
        self.0.retain(|(name, _)| *name != flag.name);
        self.0.push((flag.name, value));
    }

    /// The flags that were given.
    pub(crate) fn names(&self) -> Vec<&'static str> {
        self.0.iter().map(|(name, _)| *name).collect()
    }
}
