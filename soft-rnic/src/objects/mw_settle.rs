//! The end of accesses under the key of a memory window, after its binding has ended.
//!
//! Only those are looked for that can be under way: a window of type 2 is used through one queue
//! pair, by the peer of that one, or over an unreliable connection by all that send there; one of
//! type 1 by every peer of a queue pair of its domain. Accesses in this process hold the lock of
//! the receiving side that they reach, and never wait for another process meanwhile. Accesses by
//! other processes are looked at, and not waited for: a process takes as long as it likes.
//! (`objects::quiescence` says what other ends wait for.)

use rustix::io::Errno;

use crate::errno;
use crate::memory::mws::BindingEnd;
use crate::objects::state::{Device, PeerProcesses};
use crate::peers::process::directory::slot_of;
use crate::peers::process::outside::{INSIDE, Insiders};
use crate::queues::qp_state::QpTransport;

impl Device {
    /// Reports whether no access is under way any more under the key of an ending. `insiders` are
    /// the accesses that the look before has left. Of locks, that of a send queue may be held.
    pub(crate) fn try_settle(&self, ending: &BindingEnd, insiders: &mut Option<Insiders>) -> bool {
        if self.mrs.is_settled(ending) {
            return true;
        }
        let is_first = insiders.is_none();
        if is_first {
            self.end_deliveries(ending);
        }
        let mut left = match insiders.take() {
            Some(known) if !known.is_to_be_repeated() => known,
            _ => self.insiders(ending),
        };
        if left.have_left() {
            self.mrs.set_settled(ending);
            return true;
        }
        *insiders = Some(left);
        false
    }

    /// Waits for that, as long as for a deregistration: `EBUSY` if a process stays in the memory.
    pub(crate) fn settle(&self, ending: &BindingEnd) -> Result<(), Errno> {
        let (began, mut insiders) = (host::time::now(), None);
        while !self.try_settle(ending, &mut insiders) {
            if host::time::since(began) > INSIDE {
                return Err(errno::EBUSY);
            }
            host::thread::yield_now();
        }
        Ok(())
    }

    /// Waits until no request is under way that this process executes and that has seen the key.
    fn end_deliveries(&self, ending: &BindingEnd) {
        if ending.qpn != 0 {
            if let Some(qp) = self.qps.get(ending.qpn) {
                drop(qp.responder.lock());
            }
            return;
        }
        self.qps.all().iter().for_each(|qp| drop(qp.responder.lock()));
    }

    /// The accesses of other processes that can have seen the key.
    fn insiders(&self, ending: &BindingEnd) -> Insiders {
        let peers = self.peers.as_ref();
        match ending.peer {
            0 => peers.map(|peers| peers.all_insiders(|to| self.is_open_to(ending, to))),
            number => peers.map(|peers| peers.insiders_for(number)),
        }
        .unwrap_or_default()
    }

    /// Reports whether requests to this queue pair can use the window; what is not known of one
    /// that has gone is taken for granted.
    fn is_open_to(&self, ending: &BindingEnd, to: u32) -> bool {
        let base = self.peers.as_ref().map_or(0, PeerProcesses::base);
        if ending.qpn != 0 {
            return to == ending.qpn;
        }
        match self.qps.get(to) {
            // The domain is that of the queue that a request names.
            Some(qp) => qp.pd.id == ending.pd || qp.transport == QpTransport::XrcRecv,
            None => slot_of(to) == slot_of(base),
        }
    }
}
