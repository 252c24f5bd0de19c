//! The settings of connections, each named once: an entry in the list of its connection
//! ([`send_recv`], [`buffered_read`], [`buffered_write`], [`direct_read`], [`direct_write`],
//! [`shared_write`]). The flag of the command line, the key in the JSON, the value in the handshake
//! and the words for people follow from that entry. Settings are looked at before and after a
//! measurement, and on no message's way.

pub(crate) mod buffered_read;
pub(crate) mod buffered_write;
pub(crate) mod direct_read;
pub(crate) mod direct_write;
mod flag;
mod given;
pub(crate) mod send_recv;
pub(crate) mod shared_write;
#[cfg(test)]
mod tests;
mod words;

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::measure::Described;
pub(crate) use flag::{Flag, number, shown, switch};
pub(crate) use given::GivenSettings;

/// Settings that the connecting end decides, as the handshake has them: a value for each of the
/// settings that are [told](Setting::told), in the order of their list.
#[derive(Serialize, Deserialize, Debug, Clone, PartialEq)]
pub(crate) struct SettingTerms(pub(crate) Vec<Value>);

/// Null if the setting means nothing beside the others.
type Getter<C> = fn(&C) -> Value;
/// `None` if the value is of another kind.
type Setter<C> = fn(&mut C, &Value) -> Option<()>;

/// One setting of a connection whose settings are a `C`.
pub(crate) struct Setting<C: 'static> {
    /// The flag, a field of [`GivenSettings`]; empty if the setting follows from others.
    pub(crate) flag: &'static str,
    is_told: bool,
    get: Getter<C>,
    set: Setter<C>,
    in_json: fn(&C) -> bool,
    /// Key in the JSON, if it is not the flag's name.
    key: Option<&'static str>,
    title: fn(&C) -> String,
}

impl<C> Setting<C> {
    /// Each end has its own.
    pub(crate) const fn own(flag: &'static str, (get, set): (Getter<C>, Setter<C>)) -> Setting<C> {
        let (in_json, title) = (|_: &C| false, |_: &C| String::new());
        Setting { flag, is_told: false, get, set, in_json, key: None, title }
    }

    /// The connecting end decides it, and tells the listening one.
    pub(crate) const fn told(flag: &'static str, access: (Getter<C>, Setter<C>)) -> Setting<C> {
        Setting { is_told: true, ..Setting::own(flag, access) }
    }

    /// A figure for the JSON that follows from other settings.
    pub(crate) const fn derived(key: &'static str, get: Getter<C>) -> Setting<C> {
        let set: Setter<C> = |_, _| None;
        Setting { key: Some(key), ..Setting::own("", (get, set)).json() }
    }

    /// The JSON has it, under the flag's name.
    pub(crate) const fn json(self) -> Setting<C> {
        self.json_if(|_| true)
    }

    /// The JSON has it, where this holds.
    pub(crate) const fn json_if(self, in_json: fn(&C) -> bool) -> Setting<C> {
        Setting { in_json, ..self }
    }

    /// The JSON has it under this name.
    pub(crate) const fn key(self, key: &'static str) -> Setting<C> {
        Setting { key: Some(key), ..self }
    }

    /// Sets the function of its text in titles for people; an empty text is left out.
    pub(crate) const fn title(self, title: fn(&C) -> String) -> Setting<C> {
        Setting { title, ..self }
    }

    fn json_key(&self) -> String {
        let name = self.flag.trim_start_matches("--").trim_start_matches("no-");
        self.key.map_or_else(|| name.replace('-', "_"), str::to_owned)
    }
}

/// Access to a field of a configuration, for [`Setting::own`] and [`Setting::told`].
macro_rules! field {
    ($($field:ident).+) => {
        (
            |config| ::serde_json::Value::from(config.$($field).+),
            |config, value| {
                config.$($field).+ = $crate::settings::read(value)?;
                Some(())
            },
        )
    };
}
pub(crate) use field;

/// A value as the type of a field, if it is one of that.
pub(crate) fn read<T: DeserializeOwned>(value: &Value) -> Option<T> {
    T::deserialize(value).ok()
}

/// Sets what was given on the command line.
pub(crate) fn set_given<C>(settings: &[Setting<C>], config: &mut C, given: &GivenSettings) {
    let given = given.by_flag();
    for setting in settings {
        if let Some(value) = given.get(setting.flag) {
            // The parser has seen to the kind of value.
            let _ = (setting.set)(config, value);
        }
    }
}

/// Returns the terms that the connecting end tells of its configuration.
pub(crate) fn terms<C>(settings: &[Setting<C>], config: &C) -> SettingTerms {
    SettingTerms(told(settings).map(|setting| (setting.get)(config)).collect())
}

/// Sets what the connecting end has told; `None` if these are not its settings.
#[must_use]
pub(crate) fn set_terms<C>(
    settings: &[Setting<C>],
    config: &mut C,
    terms: &SettingTerms,
) -> Option<()> {
    if told(settings).count() != terms.0.len() {
        return None;
    }
    told(settings).zip(&terms.0).try_for_each(|(setting, value)| (setting.set)(config, value))
}

/// Lists the terms that the connecting end has told, by flag.
pub(crate) fn by_flag<C>(settings: &[Setting<C>], terms: &SettingTerms) -> Vec<Flag> {
    let pairs = told(settings).zip(&terms.0).filter(|(setting, _)| !setting.flag.is_empty());
    pairs.map(|(setting, value)| flag::with_value(setting.flag, value)).collect()
}

/// Lists the flags given at this end that are the connecting end's to decide.
pub(crate) fn asked<C>(settings: &[Setting<C>], given: &GivenSettings) -> Vec<Flag> {
    let given = given.by_flag();
    let flag = |s: &Setting<C>| Some(flag::with_value(s.flag, given.get(s.flag)?));
    told(settings).filter_map(flag).collect()
}

fn told<C>(settings: &[Setting<C>]) -> impl Iterator<Item = &Setting<C>> {
    settings.iter().filter(|setting| setting.is_told)
}

/// The settings for the JSON.
pub(crate) fn describe<C>(settings: &[Setting<C>], config: &C) -> Described {
    let in_json = settings.iter().filter(|setting| (setting.in_json)(config));
    in_json
        .map(|setting| (setting.json_key(), (setting.get)(config)))
        .filter(|(_, value)| !value.is_null())
        .collect()
}

/// The settings for people, in a few words.
pub(crate) fn title<C>(settings: &[Setting<C>], config: &C) -> String {
    let said = settings.iter().map(|setting| (setting.title)(config));
    said.filter(|said| !said.is_empty()).collect::<Vec<_>>().join(", ")
}
