//! The flags that set up a connection.

use base::cli::values;
use base::outcome::{CommandResult, usage};
use clap::builder::{PossibleValue, PossibleValuesParser, TypedValueParser, ValueParser};
use clap::{Arg, ArgAction, ArgMatches, Args as ClapArgs, Command, FromArgMatches};

use super::WaitFlag;
use super::protocol::{ProtocolKind, ProtocolParser};
use crate::settings::{FlagSpec, GivenSettings, SettingValue, ValueSyntax};

/// Options of a connection, for every command that makes one.
#[derive(ClapArgs, Debug, Clone, Default)]
#[command(next_help_heading = "Connection")]
pub(crate) struct ConnectionArgs {
    /// Connection to use [default: send-recv; of pipe: buffered-read]
    #[arg(long, value_name = "NAME", value_parser = ProtocolParser)]
    pub(crate) protocol: Option<ProtocolKind>,
    /// Waiting strategy
    #[arg(long, value_enum, default_value_t)]
    pub(crate) wait: WaitFlag,
    #[command(flatten)]
    pub(crate) given: GivenSettings,
}

/// A flag for each setting of a connection.
impl ClapArgs for GivenSettings {
    fn augment_args(command: Command) -> Command {
        command.args(ProtocolKind::all_flags().iter().map(arg))
    }

    fn augment_args_for_update(command: Command) -> Command {
        GivenSettings::augment_args(command)
    }
}

impl FromArgMatches for GivenSettings {
    fn from_arg_matches(matches: &ArgMatches) -> Result<GivenSettings, clap::Error> {
        let mut given = GivenSettings::default();
        given.update_from_arg_matches(matches)?;
        Ok(given)
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), clap::Error> {
        for flag in ProtocolKind::all_flags() {
            let value = match flag.takes {
                ValueSyntax::Off => {
                    matches.get_flag(flag.id()).then_some(SettingValue::Switch(false))
                }
                _ => matches.get_one(flag.id()).cloned(),
            };
            if let Some(value) = value {
                self.set(&flag, value);
            }
        }
        Ok(())
    }
}

/// A flag, as the parser has it.
fn arg(flag: &FlagSpec) -> Arg {
    let arg = Arg::new(flag.id()).long(flag.id()).help(flag.help.trim()).help_heading(flag.heading);
    let (name, parser): (_, ValueParser) = match flag.takes {
        ValueSyntax::Off => return arg.action(ArgAction::SetTrue),
        ValueSyntax::Number(name) => {
            (name, clap::value_parser!(u32).map(SettingValue::from).into())
        }
        ValueSyntax::Bytes => {
            ("BYTES", (|text: &str| values::byte_count(text).map(SettingValue::from)).into())
        }
        ValueSyntax::Word(name, understood) => (name, understood.into()),
        ValueSyntax::Words(name, words) => {
            let words = words().into_iter().map(|(word, help)| PossibleValue::new(word).help(help));
            (name, PossibleValuesParser::new(words).map(SettingValue::Word).into())
        }
    };
    arg.value_name(name).value_parser(parser)
}

impl ConnectionArgs {
    /// The connection that was asked for, or Send/Receive.
    pub(crate) fn protocol(&self) -> ProtocolKind {
        self.protocol.unwrap_or(ProtocolKind::SendRecv)
    }

    /// Refuses flags that mean nothing to a verb without a connection, which has `known`.
    pub(crate) fn check_raw(&self, known: &[FlagSpec]) -> CommandResult {
        let is_known = |name: &&str| known.iter().any(|flag| flag.name == *name);
        match self.given.names().into_iter().find(|name| !is_known(name)) {
            Some(flag) => Err(usage(format!("{flag} means nothing to --op: leave it out"))),
            None => Ok(()),
        }
    }
}
