//! Addresses that a thread polls.

/// The addresses that a thread has polled since its last rest, and the news of a change at one of
/// them.
#[derive(Debug, Default)]
pub(super) struct WatchedAddresses {
    /// Addresses of words and queues.
    addresses: Vec<usize>,
    is_signalled: bool,
}

/// A thread that watches more addresses sleeps for the shortest time only, as one that watches
/// none.
const MOST: usize = 256;

impl WatchedAddresses {
    pub(super) fn add(&mut self, address: usize) {
        if self.addresses.len() <= MOST && !self.addresses.contains(&address) {
            self.addresses.push(address);
        }
    }

    /// `len` bytes from there on change.
    pub(super) fn notify(&mut self, from: usize, len: usize) {
        self.is_signalled |= self.addresses.iter().any(|address| address.wrapping_sub(from) < len);
    }

    pub(super) fn is_signalled(&self) -> bool {
        self.is_signalled
    }

    /// Reports whether the watch covers all that the thread has polled.
    pub(super) fn is_complete(&self) -> bool {
        (1..=MOST).contains(&self.addresses.len())
    }

    /// The thread looks anew.
    pub(super) fn clear(&mut self) {
        self.addresses.clear();
        self.is_signalled = false;
    }
}

#[cfg(test)]
mod tests;
