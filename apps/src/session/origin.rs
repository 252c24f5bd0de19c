//! Origins of two ends, told in the handshake, which show whether the ends can reach each other:
//! the software device connects the processes of one user on one machine, and what it cannot
//! connect would only be noticed when nothing arrives.

use std::sync::OnceLock;

use rdma_conn::device::{Device, Provider};
use serde::{Deserialize, Serialize};

use super::refusal::differs;

/// Origin of a process: the provider of its device, its user, and its machine. On the wire
/// `s1000.6c1f…`: `s` for the software device or `c` for what reaches other machines, a card or a
/// device that speaks RoCE v2 from user space; the user, and 8 hexadecimal digits of the machine's
/// boot.
#[derive(Serialize, Deserialize, Debug, Clone, Copy, PartialEq, Eq)]
#[serde(into = "String", try_from = "String")]
pub(crate) struct Origin {
    is_soft: bool,
    user: u32,
    boot: u32,
}

/// Reports whether the device of this name speaks RoCE v2: to another machine, user, or a card.
fn is_on_the_network(name: &str) -> bool {
    name.starts_with("roce:")
}

/// Origin of this process.
static HERE: OnceLock<Origin> = OnceLock::new();

impl From<Origin> for String {
    fn from(origin: Origin) -> String {
        origin.encode()
    }
}

impl TryFrom<String> for Origin {
    type Error = &'static str;

    fn try_from(text: String) -> Result<Origin, &'static str> {
        Origin::decode(&text).ok_or("not where a process runs")
    }
}

impl Origin {
    /// Returns the origin of this process, with the device that it has opened.
    pub(crate) fn here() -> Origin {
        *HERE.get_or_init(|| Origin::with(true))
    }

    /// This process works with `device`: the first one that it opens.
    pub(crate) fn open(device: &Device) {
        let is_soft = device.provider() == Provider::Soft && !is_on_the_network(device.name());
        HERE.get_or_init(|| Origin::with(is_soft));
    }

    fn with(is_soft: bool) -> Origin {
        let boot = std::fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default();
        Origin {
            is_soft,
            user: rustix::process::geteuid().as_raw(),
            boot: crc32fast::hash(boot.as_bytes()),
        }
    }

    /// The text that is sent to the other end.
    pub(crate) fn encode(self) -> String {
        let Origin { is_soft, user, boot } = self;
        format!("{}{user}.{boot:08x}", if is_soft { 's' } else { 'c' })
    }

    /// Decodes the origin that another end has told, if `text` is one.
    pub(crate) fn decode(text: &str) -> Option<Origin> {
        let (is_soft, rest) = match text.strip_prefix('s') {
            Some(rest) => (true, rest),
            None => (false, text.strip_prefix('c')?),
        };
        let (user, boot) = rest.split_once('.')?;
        Some(Origin {
            is_soft,
            user: user.parse().ok()?,
            boot: u32::from_str_radix(boot, 16).ok()?,
        })
    }

    /// Checks that the listening end, which this is, is within the reach of a connecting one.
    ///
    /// # Errors
    /// The words of a refusal.
    pub(crate) fn reaches(self, connecting: Origin) -> Result<(), String> {
        let name = |soft: bool| if soft { "the device soft0" } else { "a card or roce:ADDRESS" };
        if self.is_soft != connecting.is_soft {
            let remedy = "give both ends the same --device";
            return Err(differs("", name(connecting.is_soft), name(self.is_soft), remedy));
        }
        if !self.is_soft {
            return Ok(());
        }
        if self.boot != connecting.boot {
            return Err(
                "soft0 connects the processes of one machine, and the connecting end is on \
                        another: run both on one, or give both ends a card (--device)"
                    .into(),
            );
        }
        if self.user != connecting.user {
            let remedy = "soft0 connects the processes of one user: run both as the same";
            let (there, here) = (connecting.user.to_string(), self.user.to_string());
            return Err(differs("the user", &there, &here, remedy));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests;
