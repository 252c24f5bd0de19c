//! Figures as people read them, and the table of rates.

use base::table::ResultTable;

pub(crate) use base::readable::{bytes, counted_as, memory, rate, size, spread};

/// At which end figures are taken that differ between the ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum TakenAt {
    Sender,
    Receiver,
    /// At the end that connects, whichever way the bytes go.
    Connecting,
    /// At the one that listens: the connecting end tells it the rates, and it counts events itself.
    Listening,
    /// Both are in this process.
    Both,
}

impl TakenAt {
    /// For the head of a column.
    pub(crate) fn name(self) -> &'static str {
        match self {
            TakenAt::Sender => "(sender)",
            TakenAt::Receiver => "(receiver)",
            TakenAt::Connecting => "(connecting\nend)",
            TakenAt::Listening => "(listening\nend)",
            TakenAt::Both => "(both)",
        }
    }
}

/// A table of rates, without rows.
pub(crate) fn rates_table(taken: TakenAt) -> ResultTable {
    let at = |end: TakenAt, what: &str| format!("{what}\n{}", end.name());
    let timed = if taken == TakenAt::Listening { TakenAt::Connecting } else { taken };
    let header = [
        "size",
        &at(timed, "messages/s"),
        "± of\nrounds",
        &at(timed, "bytes/s"),
        "RDMA ops/\nmessage\n(both)",
        &at(taken, "RNR\nevents"),
        "memory\n(receiver)",
    ];
    ResultTable::new(1, &header)
}

#[cfg(test)]
mod tests;
