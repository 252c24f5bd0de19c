//! Buffers that are posted again, and the credits for them.

use conn_core::control::Control;
use conn_core::credit::CreditGrantor;
use conn_core::wr::WrClass;
use host::plant::{Plant, is_planted};
use verbs_safe::{RecvBuf, RecvRun, SendOp};

use super::{BufferSource, ControlPosted, LinkState, OwedWork, SendRecvLink};
use crate::error::{CloseReason, ProtocolError};
use crate::send_recv::shared::SlotReturn;

impl SendRecvLink {
    /// A message was freed on the receiver's own thread.
    #[inline(always)]
    pub(crate) fn reclaim(&mut self, buffer: RecvBuf<SlotReturn>) {
        match &mut self.source {
            BufferSource::Own(own) => own.reclaim(buffer),
            BufferSource::Shared(member) => member.reclaim(buffer),
        }
    }

    /// Shows the messages of a run that is this link's, and takes each back at once.
    #[inline]
    pub(crate) fn reclaim_each(
        &mut self,
        run: &mut RecvRun<SlotReturn>,
        mut each: impl FnMut(&[u8]),
    ) {
        match &mut self.source {
            BufferSource::Own(own) => {
                while let Some(buffer) = run.next() {
                    each(&buffer);
                    own.reclaim(buffer);
                }
            }
            BufferSource::Shared(member) => {
                while let Some(buffer) = run.next() {
                    each(&buffer);
                    member.reclaim(buffer);
                }
            }
        }
    }

    /// A message was freed by another thread.
    pub(crate) fn free(&mut self, slot: u32) {
        if let BufferSource::Own(own) = &mut self.source {
            own.free(slot);
        }
    }

    /// Reposts and grants due buffers, or all of them when `idle`. Returns the work that is still
    /// owed; an error to report is such work.
    #[inline]
    pub(crate) fn settle(&mut self, idle: bool) -> OwedWork {
        self.book();
        let mut waits_for_idle = false;
        if self.state == LinkState::Open {
            // A sender that is out of credits waits for every single buffer, even
            // while others keep the receiver busy.
            let spent = |g: &CreditGrantor| g.expected() == 0;
            let all = idle || self.grantor.as_ref().is_some_and(spent);
            let settled = match &mut self.source {
                BufferSource::Own(own) => own.repost(all).map(|count| self.grant(count)),
                BufferSource::Shared(member) => member.settle(idle).map(|rests| {
                    waits_for_idle = rests;
                    self.lend();
                }),
            };
            if let Err(ended) = settled {
                self.fail(ended);
            }
        }
        let owed = match (self.state, &mut self.source) {
            // The error waits to be reported: messages may have arrived before it, since the queue
            // was found empty.
            _ if self.error.is_some() => {
                self.unreported = self.unreported.saturating_add(1);
                OwedWork::More
            }
            (LinkState::Open, BufferSource::Own(own)) if own.waiting() == 0 => OwedWork::Nothing,
            (LinkState::Open, BufferSource::Own(_)) if !idle => OwedWork::Rest,
            (LinkState::Open, BufferSource::Own(_)) => OwedWork::More,
            // The pool notifies the link of all other events of its buffers.
            (LinkState::Open, BufferSource::Shared(_)) if waits_for_idle => OwedWork::Rest,
            (LinkState::Open, BufferSource::Shared(_)) => OwedWork::Nothing,
            (_, BufferSource::Own(_)) => OwedWork::Nothing,
            // Once idle, all that had arrived is booked.
            (_, BufferSource::Shared(_)) if !idle => OwedWork::More,
            // In ERR, the device may keep a buffer of an unfinished message: the share is returned
            // when the device reports that it keeps none.
            (_, BufferSource::Shared(member)) if self.is_silent => {
                member.post_gathered();
                OwedWork::Nothing
            }
            (_, BufferSource::Shared(member)) => {
                member.leave();
                OwedWork::Nothing
            }
        };
        self.marked = owed == OwedWork::More;
        owed
    }

    #[inline]
    fn grant(&mut self, reposted: u32) {
        let Some(grantor) = &mut self.grantor else { return };
        let granted = reposted + u32::from(is_planted(Plant::ExtraCredit));
        if granted > 0 && grantor.on_reposted(granted).is_err() {
            self.fail(CloseReason::Protocol(ProtocolError::Completion));
            return;
        }
        let Some(credit) = grantor.due() else { return };
        // A full control share loses nothing: credits are cumulative, and a completion of the share
        // leads back here.
        if self.send_control(Control::Credit(credit), false) != ControlPosted::Yes {
            return;
        }
        self.credits_sent += 1;
        if let Some(grantor) = &mut self.grantor {
            // It was due a moment ago, so it can be granted.
            let _ = grantor.mark_granted(credit);
        }
    }

    /// Sends the control messages that the pool has for the sender. Where the control share is
    /// full, they stay due.
    fn lend(&mut self) {
        while let BufferSource::Shared(member) = &self.source
            && let Some(control) = member.due()
        {
            if self.send_control(control, false) != ControlPosted::Yes {
                return;
            }
            self.credits_sent += u64::from(control != Control::Recall);
            if let BufferSource::Shared(member) = &mut self.source {
                member.mark_sent(control);
            }
        }
    }

    /// The pool has something for the sender.
    pub(in crate::send_recv) fn tell(&mut self) {
        if let BufferSource::Shared(member) = &mut self.source {
            member.tell();
        }
    }

    pub(super) fn send_control(&mut self, control: Control, signalled: bool) -> ControlPosted {
        self.post_control(SendOp::SendImm { len: 0, imm: control.encode() }, signalled)
    }

    pub(super) fn post_control(&mut self, op: SendOp, signalled: bool) -> ControlPosted {
        let planned = self.posting.plan(WrClass::Control, signalled);
        let Some(planned) = planned else { return ControlPosted::Full };
        let staged = self.posting.queue_mut().stage(op, planned.signalled);
        let staged = staged.map_err(|e| CloseReason::Device(e.to_string()));
        if let Err(reason) = staged.and_then(|()| self.posting.post()) {
            self.fail(reason);
            // Also if the link was not open any more: a refused post moves the queue pair to ERR.
            self.is_silent |= self.posting.ended().is_some();
            return ControlPosted::Failed;
        }
        ControlPosted::Yes
    }
}
