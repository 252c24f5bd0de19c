//! Description of a flag for the command line.

use super::SettingValue;
use super::flag::switch;

/// A flag of the command line.
#[derive(Clone, Copy)]
pub(crate) struct FlagSpec {
    /// As people write it: `--ring-bytes`.
    pub(crate) name: &'static str,
    /// Heading under which the help lists it.
    pub(crate) heading: &'static str,
    pub(crate) takes: ValueSyntax,
    pub(crate) help: &'static str,
}

/// Syntax of the value that a flag takes.
#[derive(Clone, Copy)]
pub(crate) enum ValueSyntax {
    /// A whole number, under this name.
    Number(&'static str),
    Bytes,
    /// Nothing: what the flag names is off then, and on otherwise.
    Off,
    /// One of these words, each with its help, under this name.
    Words(&'static str, fn() -> Vec<(&'static str, &'static str)>),
    /// A word that this understands, under this name.
    Word(&'static str, fn(&str) -> Result<SettingValue, String>),
}

/// A flag: its help as a doc comment, its name, where the help has it, and what it takes.
macro_rules! flag {
    ($(#[doc = $help:literal])+ $name:literal, $heading:expr, $takes:expr) => {
        $crate::settings::FlagSpec {
            name: $name,
            heading: $heading,
            takes: $takes,
            help: concat!($($help),+),
        }
    };
}
pub(super) use flag;

impl FlagSpec {
    /// That of a setting without one.
    pub(crate) const NONE: FlagSpec =
        FlagSpec { name: "", heading: "", takes: ValueSyntax::Off, help: "" };

    /// Its name as the parser calls it.
    pub(crate) fn id(&self) -> &'static str {
        self.name.trim_start_matches("--")
    }

    /// The key of the setting that it is for.
    pub(super) fn key(&self) -> String {
        let id = match self.takes {
            ValueSyntax::Off => self.id().trim_start_matches("no-"),
            _ => self.id(),
        };
        id.replace('-', "_")
    }

    /// A value of the setting, as people write it behind the flag.
    pub(super) fn shown(&self, value: &SettingValue) -> String {
        match (self.takes, value) {
            (_, SettingValue::Nothing) => switch(false),
            (ValueSyntax::Off, SettingValue::Switch(on)) => switch(!on),
            (_, SettingValue::Switch(on)) => switch(*on),
            (_, SettingValue::Number(number)) => number.to_string(),
            (_, SettingValue::Word(word)) => word.clone(),
        }
    }
}
