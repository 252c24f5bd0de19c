//! A member: a thread plays its steps, and another one drives it, of the library or of the program.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use host::sync::Mutex;
use host::thread::JoinHandle;
use host::{thread, time, world};
use rdma_conn::multicast::{
    Counts, Group, GroupError, Members, Message, Running, SendError, Sender, Ticket,
};

use super::limits::{GOODBYE, IDLE, death_detection};
use super::outcome::{Delivered, MemberOutcome};
use crate::case::{SendStep, SenderEnding, WaitKind, WorldCase};
use crate::checks::{content, timed, us};
use crate::places::Death;

/// Longer than all sleeps of a case, and than what the survivors of a failure wait for each other.
const PATIENCE: Duration = Duration::from_secs(300);

/// Polls without a message after which a program that drives a member sleeps between two.
const POLLS: u32 = 8;

type MemberResult = Result<Counts, GroupError>;

/// The members that one has cut off when it delivers nothing more, if that is known, and its result.
type DrivenToEnd = (Option<Members>, MemberResult);

/// A member that a thread drives.
enum DrivenMember {
    /// One of the library.
    Spawned(Running),
    /// One of the program: it polls.
    Polled { sender: Sender, leaves: Arc<AtomicBool>, thread: JoinHandle<DrivenToEnd> },
}

impl DrivenMember {
    fn new(
        case: &WorldCase,
        member: Group,
        deliver: impl FnMut(Message<'_>) + Send + 'static,
    ) -> DrivenMember {
        if case.settings.wait == WaitKind::Block {
            return DrivenMember::Spawned(member.spawn(deliver).expect("a thread"));
        }
        let (sender, leaves) = (member.sender(), Arc::new(AtomicBool::new(false)));
        let is_to_leave = Arc::clone(&leaves);
        let drive = move || drive(member, &is_to_leave, deliver);
        let thread = thread::spawn("driver", drive).expect("a thread");
        DrivenMember::Polled { sender, leaves, thread }
    }

    fn sender(&self) -> Sender {
        match self {
            DrivenMember::Spawned(running) => running.sender().clone(),
            DrivenMember::Polled { sender, .. } => sender.clone(),
        }
    }

    fn end(self, leaves_early: bool) -> DrivenToEnd {
        match self {
            DrivenMember::Spawned(running) if leaves_early => {
                (None, running.leave_timeout(PATIENCE))
            }
            DrivenMember::Spawned(running) => (None, running.finish_timeout(PATIENCE)),
            DrivenMember::Polled { sender, leaves, thread } => {
                match leaves_early {
                    // Relaxed: it publishes nothing else.
                    true => leaves.store(true, Ordering::Relaxed),
                    false => sender.end(),
                }
                thread.join().expect("no panic")
            }
        }
    }
}

/// Drives a member by polling, to its end, or until it leaves.
fn drive(
    mut member: Group,
    leaves: &AtomicBool,
    mut deliver: impl FnMut(Message<'_>),
) -> DrivenToEnd {
    let is_over = |member: &Group| {
        let is_excluded = matches!(member.error(), Some(GroupError::Excluded { .. }));
        is_excluded || member.is_finished()
    };
    let mut vain = 0;
    // Relaxed: it publishes nothing else.
    while !is_over(&member) && !leaves.load(Ordering::Relaxed) {
        match member.poll(time::now(), &mut deliver) {
            1.. => vain = 0,
            0 if vain < POLLS => {
                vain += 1;
                thread::yield_now();
            }
            0 => time::sleep(IDLE),
        }
    }
    let cut_off = is_over(&member).then(|| member.cut_off());
    let ended = match cut_off {
        Some(_) => member.finish(GOODBYE, deliver),
        None => member.leave(GOODBYE, deliver),
    };
    (cut_off, ended)
}

/// Plays a member of a process, among processes that may be killed, to its end.
pub(super) fn play_member(
    case: &WorldCase,
    member: Group,
    process: usize,
    deaths: &[Death],
) -> MemberOutcome {
    let at = usize::from(member.rank().0);
    let begun_at = time::now();
    let deliveries = Arc::new(Mutex::new(Vec::new()));
    let (to, death) = (Arc::clone(&deliveries), deaths[process].clone());
    let deliver = move |message: Message<'_>| {
        host::progress();
        if death.time().is_none() {
            let Message { from, turn, bytes } = message;
            to.lock().push(Delivered { from: usize::from(from.0), turn, bytes: bytes.to_vec() });
        }
    };
    let driven = DrivenMember::new(case, member, deliver);
    let mut playing = PlayedMember {
        sender: driven.sender(),
        at,
        process,
        deaths,
        begun_at,
        sent: vec![],
        last: None,
    };
    let mut told = None;
    for step in case.senders.get(at).map_or(&[][..], Vec::as_slice) {
        world::note(|| format!("member {at}: {step:?}"));
        if let Err(e) = playing.step(case, *step) {
            world::note(|| format!("member {at} ended: {e}"));
            told = Some(e);
            break;
        }
    }
    let sent = playing.sent;
    let has_left = case.ends.get(at) == Some(&SenderEnding::Drop);
    let called_at = time::now();
    let (cut_off, ended) = match has_left {
        true => timed(case, "leave", GOODBYE, || driven.end(true)),
        false => driven.end(false),
    };
    let ended_at = time::now();
    world::note(|| format!("member {at}: {ended:?}, cut off {cut_off:?}"));
    let died_at = deaths[process].time().filter(|at| *at <= ended_at);
    let delivered = std::mem::take(&mut *deliveries.lock());
    let ended = ended.map(drop);
    MemberOutcome {
        process,
        sent,
        delivered,
        has_left,
        died_at,
        begun_at,
        called_at,
        ended_at,
        told,
        cut_off,
        ended,
    }
}

/// A member's steps.
struct PlayedMember<'d> {
    sender: Sender,
    at: usize,
    process: usize,
    deaths: &'d [Death],
    begun_at: Instant,
    sent: Vec<Vec<u8>>,
    last: Option<Ticket>,
}

impl PlayedMember<'_> {
    fn message(&self, length: u32, case: &WorldCase) -> Vec<u8> {
        let length = length.min(case.settings.message_bytes) as usize;
        content(self.at, self.sent.len() as u64, length)
    }

    fn took(
        &mut self,
        case: &WorldCase,
        message: Vec<u8>,
        sent: Result<Ticket, SendError>,
    ) -> Result<bool, GroupError> {
        match sent {
            Ok(ticket) => {
                host::progress();
                self.expect_the_living(case);
                self.sent.push(message);
                self.last = Some(ticket);
                Ok(true)
            }
            Err(SendError::WindowFull | SendError::TimedOut { .. }) => Ok(false),
            Err(SendError::Group(e)) => Err(e),
            Err(e) => panic!("member {}: {e}", self.at),
        }
    }

    /// The group has taken a message: that of a process that lives takes none once another process
    /// is dead for as long as it takes to detect that.
    fn expect_the_living(&self, case: &WorldCase) {
        if self.deaths[self.process].time().is_some() {
            return;
        }
        let bound = death_detection(case);
        for (process, death) in self.deaths.iter().enumerate() {
            let Some(died_at) = death.time() else { continue };
            let since = time::since(died_at.max(self.begun_at));
            assert!(
                since <= bound,
                "member {} sends, process {process} is dead for {since:?}, the bound is {bound:?}",
                self.at
            );
        }
    }

    fn step(&mut self, case: &WorldCase, step: SendStep) -> Result<(), GroupError> {
        let sender = self.sender.clone();
        match step {
            SendStep::Send(length) => {
                let message = self.message(length, case);
                let sent = sender.send(&message);
                self.took(case, message, sent).map(drop)
            }
            SendStep::TrySend(length) => {
                let message = self.message(length, case);
                let sent = sender.try_send(&message);
                self.took(case, message, sent).map(drop)
            }
            SendStep::SendWithin(length, time) => {
                let message = self.message(length, case);
                let send = || sender.send_timeout(&message, us(time));
                let sent = timed(case, "send_timeout", us(time), send);
                self.took(case, message, sent).map(drop)
            }
            SendStep::Batch(length, count) => {
                for _ in 0..count {
                    let message = self.message(length, case);
                    let sent = sender.try_send(&message);
                    if !self.took(case, message, sent)? {
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
                self.took(case, message, sent).map(drop)
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
