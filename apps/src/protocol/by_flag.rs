//! Invalid configurations of connections, by the flags that they are made of.

use base::outcome::{CommandError, usage};
use rdma_conn::send_recv::{Config, ConfigError};

/// An invalid configuration, by the flags that it is made of.
pub(crate) fn by_flag(error: &ConfigError, config: &Config) -> CommandError {
    let most = Config::MAX_MESSAGE_BYTES;
    match error.field {
        "message_bytes" if config.pack_bytes != config.message_bytes => {
            size_over(error.value, most.into())
        }
        // Buffers are as long as a pack is.
        "message_bytes" | "pack_bytes" => {
            usage(format!("--pack {}: it may be 0 (off), or 8 to {most}", error.value))
        }
        _ => {
            let windows =
                [("unacked", config.unacked.into()), ("recv_depth", config.recv_depth.into())];
            by_flag_within(error, &windows)
        }
    }
}

/// A message that is too long.
pub(crate) fn size_over(size: u64, most: u64) -> CommandError {
    usage(format!("--size {size}: it may be up to {most}"))
}

/// As [`by_flag`], for whichever configuration; the rule may speak of these of its fields.
pub(crate) fn by_flag_within(error: &ConfigError, bounds: &[(&str, u64)]) -> CommandError {
    let flag = |field: &str| match field {
        "message_bytes" => "--size".to_owned(),
        field => format!("--{}", field.replace('_', "-")),
    };
    let rule = error.rule.replace("2^32", "4294967296");
    let rule = bounds.iter().fold(rule, |rule, (field, value)| {
        rule.replace(field, &format!("{} ({value})", flag(field)))
    });
    usage(format!("{} {}: it may be {rule}", flag(error.field), error.value))
}

#[cfg(test)]
mod tests;
