//! Plays a case of a group: members that threads drive. All but the last one send.

use std::sync::Arc;
use std::time::Duration;

use host::sync::Mutex;
use host::{thread, time, world};
use rdma_conn::multicast::{
    Config, Group, GroupError, Policy, Running, SendError, Ticket, in_process,
};
use rdma_conn::raw::Link;

use crate::case::{RETRIES, SendStep, SenderEnding, WorldCase};
use crate::checks::{content, timed, us};
use crate::places::Site;

/// Longer than all sleeps of a case, and than what the survivors of a failure wait for each other.
const PATIENCE: Duration = Duration::from_secs(300);

/// The time within which a member leaves, or gives that up.
const GOODBYE: Duration = Duration::from_secs(1);

/// Outcome of a member.
#[derive(Debug)]
struct MemberOutcome {
    /// Messages that it has accepted, in order.
    sent: Vec<Vec<u8>>,
    /// Delivered messages: the sender's rank, and the bytes.
    delivered: Vec<(u8, Vec<u8>)>,
    has_left: bool,
    ended: Result<(), GroupError>,
}

type Deliveries = Arc<Mutex<Vec<(u8, Vec<u8>)>>>;

/// Plays it on the device of the first site.
pub(crate) fn play_group(case: &Arc<WorldCase>, sites: &[Site]) {
    let members = match in_process(&sites[0].device, &config(case)) {
        Ok(members) => members,
        Err(e) if case.may_fail() || case.kill.is_some() => {
            return world::note(|| format!("no group: {e}"));
        }
        Err(e) => panic!("no group: {e}"),
    };
    let threads: Vec<_> = (members.into_iter().enumerate())
        .map(|(at, member)| {
            let case = Arc::clone(case);
            thread::spawn("member", move || play_member(&case, member, at)).expect("a thread")
        })
        .collect();
    let members: Vec<MemberOutcome> =
        threads.into_iter().map(|thread| thread.join().expect("no panic")).collect();
    check(case, &members);
}

fn config(case: &WorldCase) -> Config {
    let settings = &case.settings;
    let senders = case.senders.len() as u8;
    Config {
        members: senders + 1,
        senders,
        window: settings.window,
        message_bytes: settings.message_bytes,
        policy: match (settings.other_way, settings.batch) {
            (true, 1) => Policy::Opportunistic,
            (true, _) => Policy::OpportunisticWithNulls,
            (false, k) => Policy::Every(k),
        },
        link: Link { timeout: settings.timeout, retry_count: RETRIES, ..Link::default() },
        ..Config::default()
    }
}

fn play_member(case: &WorldCase, member: Group, at: usize) -> MemberOutcome {
    let deliveries = Deliveries::default();
    let to = Arc::clone(&deliveries);
    let running = member.spawn(move |message| {
        host::progress();
        to.lock().push((message.from.0, message.bytes.to_vec()));
    });
    let mut sending =
        PlayedMember { running: running.expect("a thread"), at, sent: vec![], last: None };
    for step in case.senders.get(at).map_or(&[][..], Vec::as_slice) {
        world::note(|| format!("member {at}: {step:?}"));
        if let Err(e) = sending.step(case, *step) {
            world::note(|| format!("member {at} ended: {e}"));
            assert!(may_end(case), "member {at} ended: {e}");
            break;
        }
    }
    let PlayedMember { running, sent, .. } = sending;
    let has_left = case.ends.get(at) == Some(&SenderEnding::Drop);
    let ended = match has_left {
        true => timed(case, "leave", GOODBYE, || running.leave_timeout(PATIENCE)),
        false => running.finish_timeout(PATIENCE),
    };
    world::note(|| format!("member {at}: {ended:?}"));
    let delivered = std::mem::take(&mut *deliveries.lock());
    MemberOutcome { sent, delivered, has_left, ended: ended.map(drop) }
}

/// Reports whether the others may miss a member.
fn may_end(case: &WorldCase) -> bool {
    case.may_fail() || case.kill.is_some() || case.ends.contains(&SenderEnding::Drop)
}

/// True if a member that leaves may need more than a second to deliver its own messages and say
/// goodbye: requests fail, or other members are slow to take their turns, and nothing is delivered
/// before they do.
fn may_leave_late(case: &WorldCase) -> bool {
    let time = |step: &SendStep| match step {
        SendStep::Sleep(us) | SendStep::WaitAll(us) | SendStep::SendWithin(_, us) => *us,
        _ => 0,
    };
    let waits_us: u64 = case.senders.iter().flatten().map(time).sum();
    case.may_fail() || case.stall_one_in > 0 || us(waits_us) >= GOODBYE
}

/// Each member delivers what each other one has sent, in its order; all of them in one order; and
/// those that stay reach the same end. Where requests fail, a group may split, and each side
/// continues.
fn check(case: &WorldCase, members: &[MemberOutcome]) {
    for (at, member) in members.iter().enumerate() {
        let is_out_of_time = matches!(member.ended, Err(GroupError::TimedOut { .. }));
        assert!(
            !is_out_of_time || member.has_left && may_leave_late(case),
            "member {at} did not end"
        );
        assert!(member.ended.is_ok() || may_end(case), "member {at}: {:?}", member.ended);
        for (from, sender) in members.iter().enumerate() {
            let of = |(rank, _): &&(u8, Vec<u8>)| usize::from(*rank) == from;
            let mut sent = sender.sent.iter();
            for (number, (_, bytes)) in member.delivered.iter().filter(of).enumerate() {
                assert_eq!(Some(bytes), sent.next(), "message {number} of member {from} at {at}");
            }
            let is_all = from != at || member.ended.is_err() || sent.next().is_none();
            assert!(is_all, "member {at} ended before its messages were delivered");
        }
    }
    if case.may_fail() {
        return;
    }
    let longest = members.iter().max_by_key(|member| member.delivered.len()).expect("members");
    for (at, member) in members.iter().enumerate() {
        assert!(longest.delivered.starts_with(&member.delivered), "another order at member {at}");
    }
    let stays = |member: &&MemberOutcome| {
        let has_gone = matches!(member.ended, Err(GroupError::Excluded { .. } | GroupError::Gone));
        !member.has_left && !has_gone
    };
    let ends: Vec<_> = members.iter().filter(stays).map(|member| member.delivered.len()).collect();
    assert!(ends.windows(2).all(|two| two[0] == two[1]), "those that stay end at {ends:?}");
}

/// A member's steps.
struct PlayedMember {
    running: Running,
    at: usize,
    sent: Vec<Vec<u8>>,
    last: Option<Ticket>,
}

impl PlayedMember {
    fn message(&self, length: u32, case: &WorldCase) -> Vec<u8> {
        let length = length.min(case.settings.message_bytes) as usize;
        content(self.at, self.sent.len() as u64, length)
    }

    fn took(
        &mut self,
        message: Vec<u8>,
        sent: Result<Ticket, SendError>,
    ) -> Result<bool, GroupError> {
        match sent {
            Ok(ticket) => {
                host::progress();
                self.sent.push(message);
                self.last = Some(ticket);
                Ok(true)
            }
            Err(SendError::WindowFull | SendError::TimedOut { .. }) => Ok(false),
            Err(SendError::Group(e)) => Err(e),
            Err(e) => panic!("member {}: {e}", self.at),
        }
    }

    fn step(&mut self, case: &WorldCase, step: SendStep) -> Result<(), GroupError> {
        let sender = self.running.sender().clone();
        match step {
            SendStep::Send(length) => {
                let message = self.message(length, case);
                let sent = sender.send(&message);
                self.took(message, sent).map(drop)
            }
            SendStep::TrySend(length) => {
                let message = self.message(length, case);
                let sent = sender.try_send(&message);
                self.took(message, sent).map(drop)
            }
            SendStep::SendWithin(length, time) => {
                let message = self.message(length, case);
                let send = || sender.send_timeout(&message, us(time));
                let sent = timed(case, "send_timeout", us(time), send);
                self.took(message, sent).map(drop)
            }
            SendStep::Batch(length, count) => {
                for _ in 0..count {
                    let message = self.message(length, case);
                    let sent = sender.try_send(&message);
                    if !self.took(message, sent)? {
                        break;
                    }
                }
                Ok(())
            }
            SendStep::Reserve(length, commits) => {
                let message = self.message(length, case);
                let sent = match sender.get_buffer(message.len()) {
                    Ok(_) if !commits => return Ok(()),
                    Ok(mut buffer) => {
                        buffer.write(0, &message);
                        Ok(buffer.send())
                    }
                    Err(e) => Err(e),
                };
                self.took(message, sent).map(drop)
            }
            SendStep::Flush => match sender.flush() {
                Err(SendError::Group(e)) => Err(e),
                Ok(_) | Err(SendError::WindowFull) => Ok(()),
                Err(e) => panic!("flush of member {}: {e}", self.at),
            },
            SendStep::Ask => {
                let _ = self.last.map(|ticket| sender.is_delivered(ticket));
                Ok(())
            }
            SendStep::WaitAll(time) => {
                let Some(ticket) = self.last else { return Ok(()) };
                let wait = || sender.wait_timeout(ticket, us(time));
                match timed(case, "wait_timeout", us(time), wait) {
                    Err(SendError::Group(e)) => Err(e),
                    _ => Ok(()),
                }
            }
            SendStep::Sleep(time) => {
                time::sleep(us(time));
                Ok(())
            }
        }
    }
}
