//! The promises of a group, checked when all of its members have ended.

use std::time::{Duration, Instant};

use rdma_conn::multicast::{GroupError, Rank, Reason};

use super::limits::{
    GOODBYE, agreement, death_detection, silence_detection, stops_for_long, suspect_after,
};
use super::outcome::{Delivered, MemberOutcome};
use crate::case::{SendStep, WorldCase};
use crate::checks::us;

/// Checks all members, by rank; those that were not set up are `None`.
pub(super) fn check(case: &WorldCase, members: &[Option<MemberOutcome>]) {
    let group = PlayedGroup { case, members };
    for (at, member) in group.each() {
        group.expect_messages(at, member);
        group.expect_reasons(at, member);
    }
    group.expect_one_sequence();
    group.expect_ends();
}

/// A group that has been played.
struct PlayedGroup<'p> {
    case: &'p WorldCase,
    members: &'p [Option<MemberOutcome>],
}

/// The loss of a member: when it has happened, and when all that stay have noticed it.
struct MemberLoss {
    at: Instant,
    noticed_at: Instant,
}

impl<'p> PlayedGroup<'p> {
    fn each(&self) -> impl Iterator<Item = (usize, &'p MemberOutcome)> {
        let members = self.members.iter().enumerate();
        members.filter_map(|(at, member)| Some((at, member.as_ref()?)))
    }

    /// Reports whether a member may have cut off members that live: its requests fail, or it was
    /// stopped while the others went on without it.
    fn may_stray(&self, member: &MemberOutcome) -> bool {
        self.case.requests_may_fail() || stops_for_long(self.case, member.process)
    }

    /// Reports whether the others may cut a member off.
    fn may_be_cut_off(&self, at: usize) -> bool {
        self.members[at].as_ref().is_none_or(|member| {
            member.has_left || member.died_at.is_some() || self.may_stray(member)
        })
    }

    /// True if a member that leaves may need more than a second to deliver its own messages and say
    /// goodbye: requests fail or are held up, or other members are slow to take their turns or are
    /// lost, and nothing is delivered before.
    fn may_leave_late(&self) -> bool {
        let case = self.case;
        let time = |step: &SendStep| match step {
            SendStep::Sleep(us) | SendStep::WaitAll(us) | SendStep::SendWithin(_, us) => *us,
            _ => 0,
        };
        let waits_us: u64 = case.senders.iter().flatten().map(time).sum();
        let is_held_up = case.stall_one_in > 0 || case.stop.is_some() || case.kill.is_some();
        let is_alone = self.members.iter().any(Option::is_none);
        let is_cut = case.network.partition_us > 0;
        // The rounds between these waits take time, too.
        let is_slow = us(waits_us) >= GOODBYE / 2;
        case.requests_may_fail() || is_held_up || is_alone || is_cut || is_slow
    }
}

/// Each member by itself.
impl PlayedGroup<'_> {
    /// A member delivers what each other one has sent, in its order, and all in the order of turns.
    fn expect_messages(&self, at: usize, member: &MemberOutcome) {
        let turns = member.delivered.iter().map(|it| (it.turn, it.from));
        assert!(turns.is_sorted_by(|one, next| one < next), "another order at member {at}");
        for (from, sender) in self.members.iter().enumerate() {
            let mut sent = sender.iter().flat_map(|sender| &sender.sent);
            let delivered = member.delivered.iter().filter(|it| it.from == from);
            for (number, Delivered { bytes, .. }) in delivered.enumerate() {
                assert_eq!(Some(bytes), sent.next(), "message {number} of member {from} at {at}");
            }
            let ended = member.ended.is_ok() && member.died_at.is_none();
            let is_all = from != at || !ended || sent.next().is_none();
            assert!(is_all, "member {at} ended before its messages were delivered");
        }
    }

    /// A member that lives hears of no other failures than those of the case.
    fn expect_reasons(&self, at: usize, member: &MemberOutcome) {
        if member.died_at.is_some() {
            return;
        }
        for error in member.told.iter().chain(member.ended.as_ref().err()) {
            let is_explained = match *error {
                GroupError::CutOff { member: lost, reason } => {
                    self.may_cut_off(member, lost, reason)
                }
                GroupError::Excluded { .. } => self.may_stray(member),
                GroupError::TimedOut { .. } => member.has_left && self.may_leave_late(),
                _ => false,
            };
            assert!(is_explained, "member {at}: {error}");
        }
        let wrongly = |lost: &Rank| !self.may_stray(member) && !self.may_be_cut_off(lost.index());
        let wrong = member.cut_off.and_then(|cut_off| cut_off.iter().find(wrongly));
        assert!(wrong.is_none(), "member {at} has cut off {wrong:?}");
    }

    /// Reports whether a member may cut off another one for this reason. All of them keep to the
    /// protocol.
    fn may_cut_off(&self, member: &MemberOutcome, lost: Rank, reason: Reason) -> bool {
        let stops = |it: &MemberOutcome| stops_for_long(self.case, it.process);
        let fits = match reason {
            Reason::StandsStill | Reason::Unreachable | Reason::AccusedBy(_) => true,
            Reason::Left => self.members[lost.index()].as_ref().is_some_and(|it| it.has_left),
            Reason::Withholds => {
                self.case.requests_may_fail() || self.each().any(|(_, it)| stops(it))
            }
            _ => false,
        };
        fits && (self.may_stray(member) || self.may_be_cut_off(lost.index()))
    }
}

/// All members.
impl PlayedGroup<'_> {
    /// A member that has delivered all has delivered, in the same order, what any other one has
    /// that did not cut it off before; so both have the same, if both have delivered all. Of the
    /// others, those that are sound have not delivered different messages either.
    fn expect_one_sequence(&self) {
        for (at, one) in self.each() {
            for (by, other) in self.each().filter(|(by, _)| *by != at) {
                if other.is_finished() && self.trusts(one, by) {
                    let is_begin = other.delivered.starts_with(&one.delivered);
                    assert!(is_begin, "member {by} has not delivered what member {at} has");
                }
                if !self.may_stray(one) && !self.may_stray(other) {
                    let length = one.delivered.len().min(other.delivered.len());
                    let are_same = one.delivered[..length] == other.delivered[..length];
                    assert!(are_same, "members {at} and {by} have delivered different messages");
                }
            }
        }
    }

    /// True if it is known that `member` has not cut off the one of rank `by`.
    fn trusts(&self, member: &MemberOutcome, by: usize) -> bool {
        let is_sound = !self.may_stray(member) && !self.may_be_cut_off(by);
        let is_seen = match (member.cut_off, &member.ended) {
            (Some(cut_off), _) => !cut_off.contains(Rank(by as u8)),
            (None, Ok(())) => !member.has_left,
            // The error names the lowest one.
            (None, Err(GroupError::CutOff { member: lost, .. })) => by < lost.index(),
            (None, Err(_)) => false,
        };
        is_sound || is_seen
    }

    /// Each member that stays ends in time: see [`expected_end`](Self::expected_end).
    fn expect_ends(&self) {
        let mut losses: Vec<MemberLoss> =
            (0..self.members.len()).filter_map(|at| self.loss_of(at)).collect();
        losses.sort_by_key(|loss| loss.at);
        for (at, member) in self.each().filter(|(_, member)| !member.has_left) {
            let (end, bound) = (member.ended_at, self.expected_end(member, &losses));
            let late = end.saturating_duration_since(bound);
            assert!(late == Duration::ZERO, "member {at} ended {late:?} after the bound");
        }
    }

    fn latest(&self, time: impl Fn(&MemberOutcome) -> Instant) -> Option<Instant> {
        self.each().map(|(_, member)| time(member)).max()
    }

    /// The loss of a member, if it is lost for a reason that is known.
    fn loss_of(&self, at: usize) -> Option<MemberLoss> {
        let (case, members) = (self.case, self.members);
        let Some(member) = &members[at] else {
            // It has never been there.
            let at = self.latest(|member| member.begun_at)?;
            return Some(MemberLoss { at, noticed_at: at + silence_detection(case) });
        };
        let (at, detection) = match (member.died_at, &member.ended) {
            (Some(died_at), _) => {
                (self.latest(|it| it.begun_at)?.max(died_at), death_detection(case))
            }
            // Its goodbye has arrived.
            (None, Ok(())) if member.has_left => (member.ended_at, Duration::ZERO),
            (None, Err(_)) if member.has_left => (member.ended_at, silence_detection(case)),
            (None, _) => return None,
        };
        Some(MemberLoss { at, noticed_at: at + detection })
    }

    /// The time at which a member has ended at the latest. All streams end when all programs have
    /// asked for that. A group fails with the first loss that is noticed, and each further one
    /// begins the agreement anew. Where members are lost that live, there are at most as many losses
    /// as members: each is noticed by its silence, and may be waited for once more in the agreement.
    fn expected_end(&self, member: &MemberOutcome, losses: &[MemberLoss]) -> Instant {
        let rest = agreement(self.case);
        let all_called = self.latest(|it| it.called_at).unwrap_or(member.called_at);
        if self.each().any(|(_, it)| self.may_stray(it)) {
            let each = 2 * suspect_after(self.case) + rest;
            return all_called + self.members.len() as u32 * each;
        }
        let begin = match (&member.ended, member.died_at) {
            (Ok(()), _) => all_called,
            // All others are lost.
            (Err(_), Some(died_at)) => {
                member.called_at.max(member.begun_at.max(died_at) + death_detection(self.case))
            }
            (Err(_), None) => {
                let first = losses.first().map_or(all_called, |loss| loss.noticed_at);
                member.called_at.max(first)
            }
        };
        losses.iter().fold(begin + rest, |end, loss| match loss.at <= end {
            true => end.max(loss.noticed_at + rest),
            false => end,
        })
    }
}
