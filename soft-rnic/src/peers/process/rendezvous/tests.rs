//! Processes that introduce themselves, in one process.

use rustix::net::{AddressFamily, SocketType};
use rustix::process::{PidfdFlags, pidfd_open};

use super::super::directory::SLOTS;
use super::super::marker::MarkerProbe;
use super::super::rendezvous::*;
use crate::testing::unfilled::Unfilled;

fn here() -> LocalProcess {
    LocalProcess::claim(&SocketNames::default(), 1, 2).unwrap()
}

fn accepted(here: &LocalProcess) -> OwnedFd {
    loop {
        match accept_with(&here.listener, SocketFlags::CLOEXEC) {
            Ok(socket) => return socket,
            Err(error) => assert_eq!(error, Errno::AGAIN),
        }
    }
}

#[test]
fn a_doorbell_that_is_none_is_not_rung() {
    let here = here();
    let rings: Mapped<Rings> = Mapped::create("test").unwrap();
    let (_read, pipe) = rustix::pipe::pipe().unwrap();
    let files = [here.directory.file().unwrap(), rings.file().unwrap()];
    for (doorbell, is_one) in [(here.doorbell.as_fd(), true), (pipe.as_fd(), false)] {
        let socket = new_socket().unwrap();
        connect(&socket, &here.names.slot(here.slot).unwrap()).unwrap();
        let said = [files[0], files[1], doorbell];
        send(&socket, &here.words().to_bytes(), &said).unwrap();
        let heard = read(&accepted(&here));
        assert_eq!(heard.err(), (!is_one).then_some(Errno::PROTO));
    }
}

#[test]
fn a_process_that_claims_the_slot_of_another_is_not_taken_in() {
    let (here, mut rendezvous) = (here(), ProcessRendezvous::default());
    // This process has introduced itself to another process in that slot.
    let mut other =
        std::process::Command::new("cat").stdin(std::process::Stdio::piped()).spawn().unwrap();
    let pid = Pid::from_child(&other);
    let (socket, _other_end) = connection();
    let introduction = Introduction {
        socket,
        pid: pid.as_raw_pid(),
        pidfd: pidfd_open(pid, PidfdFlags::empty()).unwrap(),
        outgoing: Mapped::create("test").unwrap(),
    };
    rendezvous.known.entry(here.slot).or_default().ours = Some(introduction);
    let intro = call(&here, here.slot, &mut None, |_| true).unwrap().unwrap();
    assert!(rendezvous.take_in(&here, &PairsBySlot::new()).is_empty());
    assert!(rendezvous.awaits(here.slot).is_some());
    // Its connection is closed (once no process has a copy that another test has just forked).
    while !has_gone(&intro.pidfd, [&intro.socket; 2]) {
        host::thread::yield_now();
    }
    other.kill().unwrap();
    other.wait().unwrap();
    // The other has ended: a claim to the slot is accepted now.
    let _called = call(&here, here.slot, &mut None, |_| true).unwrap().unwrap();
    let complete = rendezvous.take_in(&here, &PairsBySlot::new());
    assert_eq!(complete.iter().map(|parts| parts.slot).collect::<Vec<_>>(), [here.slot]);
}

/// The pair that results when this process introduces itself with such a proof.
fn met(proof: impl Fn(Proof) -> Proof) -> (LocalProcess, ProcessPair) {
    let (here, mut rendezvous) = (here(), ProcessRendezvous::default());
    let words = here.words();
    let intro = IntroductionWords { proof: proof(words.proof), ..words };
    let rings: Mapped<Rings> = Mapped::create("test").unwrap();
    let socket = new_socket().unwrap();
    connect(&socket, &here.names.slot(here.slot).unwrap()).unwrap();
    let files = [here.directory.file().unwrap(), rings.file().unwrap()];
    let said = [files[0], files[1], here.doorbell.as_fd()];
    send(&socket, &intro.to_bytes(), &said).unwrap();
    let [parts] =
        <[PairParts; 1]>::try_from(rendezvous.take_in(&here, &PairsBySlot::new())).unwrap();
    (here, ProcessPair::new(parts))
}

#[test]
fn a_process_that_runs_another_program_since_is_not_attached_to() {
    let (_here, it) = met(|proof| proof);
    assert!(it.attaches() && !it.is_dead());
    // Another program has something else there, or nothing.
    let others = [
        met(|proof| Proof { value: !proof.value, ..proof }),
        met(|proof| Proof { addr: 8, ..proof }),
    ];
    assert!(others.iter().all(|(_here, other)| !other.attaches() && other.is_dead()));
    assert_eq!(memory::refused_memory(), None);
}

/// The address that it names may be in a page that it fills whenever it likes.
#[test]
fn an_introduction_does_not_wait_for_the_memory_of_its_process() {
    let Some(page) = Unfilled::new() else { return };
    let addr = page.addr();
    let (done, met_it) = std::sync::mpsc::channel();
    std::thread::spawn(move || {
        let (_here, pair) = met(|proof| Proof { addr, ..proof });
        let _ = done.send(pair.is_dead());
    });
    let is_dead = met_it.recv_timeout(std::time::Duration::from_secs(60));
    page.fill();
    assert_eq!(is_dead, Ok(false));
}

fn connection() -> (OwnedFd, OwnedFd) {
    let flags = SocketFlags::CLOEXEC;
    rustix::net::socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None).unwrap()
}

#[test]
fn a_flood_of_connections_is_accepted_bit_by_bit() {
    let (here, mut rendezvous) = (here(), ProcessRendezvous::default());
    let many = AT_ONCE + 1;
    let connect = |_| {
        let socket = new_socket().unwrap();
        connect(&socket, &here.names.slot(here.slot).unwrap()).unwrap();
        socket
    };
    let sockets: Vec<_> = (0..many).map(connect).collect();
    rendezvous.take_in(&here, &PairsBySlot::new());
    assert!(rendezvous.has_unaccepted);
    for socket in sockets {
        rustix::net::shutdown(socket, rustix::net::Shutdown::Both).unwrap();
    }
    rendezvous.take_in(&here, &PairsBySlot::new());
    assert!(!rendezvous.has_unaccepted);
    rendezvous.take_in(&here, &PairsBySlot::new());
    assert!(!rendezvous.has_pending());
}

#[test]
fn connections_of_one_process_that_say_nothing_are_few() {
    let (here, mut rendezvous) = (here(), ProcessRendezvous::default());
    let connect = |_| {
        let socket = new_socket().unwrap();
        connect(&socket, &here.names.slot(here.slot).unwrap()).unwrap();
        socket
    };
    let _sockets: Vec<_> = (0..40).map(connect).collect();
    rendezvous.take_in(&here, &PairsBySlot::new());
    assert_eq!(rendezvous.pending.len(), PENDING_PER_PROCESS);
}

#[test]
fn connections_of_all_processes_that_say_nothing_are_so_many() {
    let (here, mut rendezvous) = (here(), ProcessRendezvous::default());
    let (ours, _silent) = connection();
    rustix::io::ioctl_fionbio(&ours, true).unwrap();
    let of = |pid| (pid, ours.try_clone().unwrap());
    rendezvous.pending = (0..PENDING as i32 + 9).map(of).collect();
    rendezvous.take_in(&here, &PairsBySlot::new());
    assert_eq!(rendezvous.pending.len(), PENDING);
}

#[test]
fn a_process_that_has_many_slots_is_met_with_a_few_of_them() {
    let (here, mut rendezvous) = (self::here(), ProcessRendezvous::default());
    let others: Vec<LocalProcess> = (0..10).map(|_| self::here()).collect();
    let (mut pairs, mut intro) = (PairsBySlot::new(), Vec::new());
    for round in 0..2 {
        let call = |other| call(other, here.slot, &mut None, |_| true).unwrap().unwrap();
        intro.extend(others.iter().map(call));
        for parts in rendezvous.take_in(&here, &pairs) {
            assert!(parts.outgoing.file().is_none(), "it was handed over");
            pairs.insert(parts.slot, Arc::new(ProcessPair::new(parts)));
        }
        assert_eq!(pairs.len(), SLOTS_PER_PROCESS, "round {round}");
    }
    // Nor does this process look for the others.
    let other = others.iter().find(|other| !pairs.contains_key(&other.slot)).unwrap();
    assert_eq!(rendezvous.introduce(&here, other.slot, &pairs), Ok(false));
}

#[test]
fn unasked_processes_are_met_up_to_their_share() {
    let (here, mut rendezvous) = (self::here(), ProcessRendezvous::default());
    let others: [LocalProcess; 4] = core::array::from_fn(|_| self::here());
    let [first, second, third, asked] = others.each_ref().map(|other| other.slot);
    let pairs = PairsBySlot::new();
    let unasked = |rendezvous: &mut ProcessRendezvous, slot, most| {
        rendezvous.introduce_unasked(&here, slot, &pairs, most)
    };
    assert_eq!(unasked(&mut rendezvous, first, 2), Ok(true));
    assert_eq!(unasked(&mut rendezvous, second, 2), Ok(true));
    assert_eq!(unasked(&mut rendezvous, third, 2), Err(Errno::MFILE));
    assert!(rendezvous.awaits(third).is_none());
    // It has its place, and is not counted besides it.
    assert_eq!(unasked(&mut rendezvous, first, 2), Ok(true));
    // One that has gone needs none; nor does a slot that no process has.
    // (It has, once no process has a copy of its connection that another test has just forked.)
    drop(accepted(&others[1]));
    while unasked(&mut rendezvous, third, 2) == Err(Errno::MFILE) {
        host::thread::yield_now();
    }
    assert!(rendezvous.awaits(third).is_some());
    // What the program connects to is met in any case, and counts.
    assert_eq!(rendezvous.introduce(&here, asked, &pairs), Ok(true));
    assert_eq!(unasked(&mut rendezvous, second, 3), Err(Errno::MFILE));
    assert_eq!(unasked(&mut rendezvous, SLOTS, 3), Ok(false));
}

#[test]
fn pairs_and_introductions_are_counted_together_and_once() {
    let (here, mut rendezvous) = (self::here(), ProcessRendezvous::default());
    let [met, introduced] = [self::here(), self::here()];
    let _called = call(&met, here.slot, &mut None, |_| true).unwrap().unwrap();
    let [parts] =
        <[PairParts; 1]>::try_from(rendezvous.take_in(&here, &PairsBySlot::new())).unwrap();
    let pairs = PairsBySlot::from([(parts.slot, Arc::new(ProcessPair::new(parts)))]);
    assert_eq!(rendezvous.introduce(&here, introduced.slot, &pairs), Ok(true));
    let besides = |slot| rendezvous.pairs_besides(slot, &pairs);
    assert_eq!([SLOTS, met.slot, introduced.slot].map(besides), [2, 1, 1]);
}

#[test]
fn a_slot_whose_marker_another_process_has_is_not_claimed() {
    // Another test may claim it first.
    let (slot, others) = loop {
        let slot = here().slot;
        if let Ok(marker) = Marker::bind(&SocketNames::default(), slot) {
            break (slot, marker);
        }
    };
    let here = LocalProcess::claim(&SocketNames::default(), slot.into(), 2).unwrap();
    assert_ne!(here.slot, slot);
    drop(others);
    here.marker.show().unwrap();
    assert_eq!(MarkerProbe::new().unwrap().sees(&here.names, here.slot), Ok(true));
}

#[test]
fn the_user_that_unmapped_users_look_like_is_recognized() {
    let own = geteuid().as_raw();
    let (ours, some) = (format!("{own}\n"), "         0       1000          1\n");
    assert!(is_overflow_user(&ours, some) && is_overflow_user(&ours, ""));
    assert!(!is_overflow_user(&format!("{}\n", own + 1), some) && !is_overflow_user("", some));
    assert!(!is_overflow_user(&ours, "         0          0 4294967295\n"), "all are mapped");
}
