//! Notes on staged requests: those without a message, and the number of messages of the others.

use conn_core::wr::WrId;

/// The outstanding requests that carry no message.
#[derive(Debug, Default)]
pub(super) struct Controls {
    pub(super) total: u64,
    /// In order; at most as many as the control share of the send queue has places.
    pub(super) ids: Vec<WrId>,
}

impl Controls {
    /// One was planned. Those up to `completed` are not outstanding any more.
    pub(super) fn note(&mut self, id: WrId, completed: WrId) {
        self.total += 1;
        self.ids.retain(|id| id.0 > completed.0);
        self.ids.push(id);
    }

    pub(super) fn outstanding(&self, completed: WrId) -> u32 {
        self.ids.iter().filter(|id| id.0 > completed.0).count() as u32
    }
}

/// Number of messages in each of the last packs.
#[derive(Debug)]
pub(super) struct Packs(Box<[u32]>);

impl Packs {
    /// For up to `window` packs that are not acknowledged; none if nothing is packed.
    pub(super) fn new(window: u32) -> Packs {
        Packs(vec![0; window as usize].into_boxed_slice())
    }

    /// Notes that the pack behind `number` others has `messages` messages.
    pub(super) fn note(&mut self, number: u64, messages: u32) {
        let at = number % self.0.len().max(1) as u64;
        if let Some(count) = self.0.get_mut(at as usize) {
            *count = messages;
        }
    }

    /// Messages of the `last` requests of `sent`.
    pub(super) fn messages(&self, sent: u64, last: u32) -> u64 {
        if self.0.is_empty() {
            return last.into();
        }
        let first = sent - u64::from(last);
        (first..sent).map(|n| u64::from(self.0[(n % self.0.len() as u64) as usize])).sum()
    }
}
