//! The flags that set up a connection.

use base::cli::values;
use base::outcome::{CommandResult, usage};
use clap::builder::{PossibleValue, PossibleValuesParser, TypedValueParser, ValueParser};
use clap::{Arg, ArgAction, ArgMatches, Args as ClapArgs, Command, FromArgMatches};

use super::WaitFlag;
use super::protocol::{Protocol, ProtocolParser};
use crate::settings::{FlagSpec, Given, Takes, Value};

/// Options of a connection, for every command that makes one.
#[derive(ClapArgs, Debug, Clone, Default)]
#[command(next_help_heading = "Connection")]
pub(crate) struct ConnectionArgs {
    /// Connection to use [default: send-recv; of pipe: buffered-read]
    #[arg(long, value_name = "NAME", value_parser = ProtocolParser)]
    pub(crate) protocol: Option<Protocol>,
    /// Waiting strategy
    #[arg(long, value_enum, default_value_t)]
    pub(crate) wait: WaitFlag,
    #[command(flatten)]
    pub(crate) given: Given,
}

/// A flag for each setting of a connection.
impl ClapArgs for Given {
    fn augment_args(command: Command) -> Command {
        command.args(Protocol::all_flags().iter().map(arg))
    }

    fn augment_args_for_update(command: Command) -> Command {
        Given::augment_args(command)
    }
}

impl FromArgMatches for Given {
    fn from_arg_matches(matches: &ArgMatches) -> Result<Given, clap::Error> {
        let mut given = Given::default();
        given.update_from_arg_matches(matches)?;
        Ok(given)
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), clap::Error> {
        for flag in Protocol::all_flags() {
            let value = match flag.takes {
                Takes::Off => matches.get_flag(flag.id()).then_some(Value::Switch(false)),
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
        Takes::Off => return arg.action(ArgAction::SetTrue),
        Takes::Number(name) => (name, clap::value_parser!(u32).map(Value::from).into()),
        Takes::Bytes => ("BYTES", (|text: &str| values::byte_count(text).map(Value::from)).into()),
        Takes::Word(name, understood) => (name, understood.into()),
        Takes::Words(name, words) => {
            let words = words().into_iter().map(|(word, help)| PossibleValue::new(word).help(help));
            (name, PossibleValuesParser::new(words).map(Value::Word).into())
        }
    };
    arg.value_name(name).value_parser(parser)
}

impl ConnectionArgs {
    /// The connection that was asked for, or Send/Receive.
    pub(crate) fn protocol(&self) -> Protocol {
        self.protocol.unwrap_or(Protocol::SendRecv)
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
