//! Attributes that change while a connection works.

use std::sync::Arc;

use roce_core::headers::RnrTimer;
use roce_core::requester::Changeable;

use super::device::WireMemory;
use super::requester::timeout;
use crate::objects::state::{Qp, ResponderState, Sq};
use crate::peers::wire::state::{ReceivingMachine, WireSq};

impl Qp {
    /// Attributes have changed; those of the path, and how many READs and atomics are remembered, if
    /// that is so. Both locks are held. (On the way to a state it finds no machines yet.)
    pub(crate) fn change_wire(
        self: &Arc<Qp>,
        sq: &mut Sq,
        responder: &mut ResponderState,
        (of_path, of_slots): (bool, bool),
        memory: &mut WireMemory,
    ) {
        let Some(wire) = self.pd.context.device.wire() else { return };
        if of_path && let Some(path) = self.wire_path(sq, wire) {
            if let Some(to) = sq.wire.as_deref_mut() {
                *to.path() = path;
            }
            if let Some(from) = responder.wire.as_mut().and_then(|wire| wire.path.as_mut()) {
                *from = path;
            }
        }
        self.change_requester(sq);
        change_responder(responder, of_slots.then_some(memory));
    }

    fn change_requester(self: &Arc<Qp>, sq: &mut Sq) {
        let (requester, wire) = (&sq.requester, sq.wire.as_deref_mut());
        let Some(WireSq::Reliable(wire)) = wire else { return };
        // They were checked.
        let _ = wire.machine.change(Changeable {
            timeout: timeout(requester.timeout),
            retry_cnt: requester.retry_cnt,
            rnr_retry: requester.rnr_retry,
            max_rd_atomic: requester.max_rd_atomic,
        });
        self.arm_wire(wire);
    }
}

fn change_responder(responder: &mut ResponderState, slots: Option<&mut WireMemory>) {
    let Some(wire) = &mut responder.wire else { return };
    let ReceivingMachine::Reliable(machine) = &mut wire.machine else { return };
    if let Some(timer) = RnrTimer::new(responder.min_rnr_timer) {
        machine.set_min_rnr_timer(timer);
    }
    if let Some(memory) = slots {
        machine.replace_slots(core::mem::take(&mut memory.responses));
    }
}
