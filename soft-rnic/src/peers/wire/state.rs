//! The state of a device on the network, and of a queue pair on it.

use core::net::{IpAddr, Ipv6Addr, SocketAddr};
use core::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use host::sync::OnceLock;
use std::collections::VecDeque;
use std::os::fd::OwnedFd;
use std::sync::Arc;

use host::sync::Mutex;

use roce_core::congestion::NotificationPoint;
use roce_core::icrc::Flow;
use roce_core::psn::Psn;
use roce_core::requester::{Requester, SendSlot};
use roce_core::responder::{Responder, ResponseSlot};
use roce_core::{uc, ud};
use verbs_sys::ibv_sge;

use super::answers::Answers;
use super::port_state::PortState;
use super::symptoms::Symptoms;
use crate::check::packets::Packets;
use crate::counters::{Counters, PacketCounters};
use crate::lock::{Lock, Padded};
use crate::memory::paging::PendingPages;
use crate::peers::process::workers::Workers;
use crate::queues::address::GidBytes;
use crate::timing::network::NetworkFaults;
use crate::udp::{Capture, Marks, PacketInbox, PacketOutbox, SendPorts, UdpPort};
use host::random::Random;

/// The network's part of a device.
#[derive(Debug)]
pub(crate) struct RoceWire {
    pub(crate) port: UdpPort,
    /// The place of this process on the address, if there can be others.
    pub(crate) place: Option<u32>,
    /// Further source ports.
    pub(crate) send_ports: SendPorts,
    pub(crate) gid: GidBytes,
    pub(crate) port_state: PortState,
    /// The process that has opened it.
    pub(crate) process: u32,
    /// The network namespace that the address is in.
    pub(crate) namespace: Option<(u64, u64)>,
    /// The queue pairs of this device reach each other over the network as well.
    pub(crate) loops: bool,
    /// Reliable connections tell the network that they heed congestion notifications.
    pub(crate) has_ecn: bool,
    pub(crate) rx: Padded<Lock<Rx>>,
    pub(crate) tx: Padded<Lock<PacketOutbox>>,
    /// A thread has timed out while waiting for room to send, and nothing was sent since. It is
    /// written under the lock of `tx`.
    pub(crate) is_stuck: AtomicBool,
    /// Counts polls, so that the device's thread sees whether there are any.
    pub(crate) polls: AtomicU64,
    /// Counts polls that found the receive lock taken.
    pub(crate) missed: AtomicU32,
    /// The device's thread looks again after two of its longest pauses: a poll may happen just after
    /// it has asked whether there was one. It is cleared under the lock of `rx`.
    pub(crate) is_watched: AtomicBool,
    /// The device's thread was started: what wakes it, if it was.
    pub(crate) thread: OnceLock<Option<OwnedFd>>,
    pub(crate) exit: ExitRequest,
    /// Threads that wait for pages which requests of peers need.
    pub(crate) workers: Arc<Workers>,
    /// Threads that wait for pages of requesters' own memory.
    pub(crate) own_workers: Arc<Workers>,
    /// Time at which a peer was answered last.
    pub(crate) answered_ns: AtomicU64,
    /// Queue pairs that have ended, the oldest first.
    pub(crate) departed: Mutex<VecDeque<Departed>>,
    pub(crate) counts: PacketCounts,
    pub(crate) memberships: Memberships,
    /// Symptoms that speak for the reason if a peer does not answer.
    pub(crate) symptoms: Symptoms,
    /// The capture that its packets are written to, if that was asked for.
    pub(crate) capture: Option<Capture>,
}

/// The request of a process that exits to the device's thread, and the answer.
#[derive(Debug, Default)]
pub(crate) struct ExitRequest {
    pub(crate) is_asked: AtomicBool,
    pub(crate) is_done: AtomicBool,
}

/// A queue pair that has ended.
#[derive(Debug)]
pub(crate) struct Departed {
    pub(crate) number: u32,
    pub(crate) machine: Responder<Vec<ResponseSlot>>,
    pub(crate) path: PacketPath,
    pub(crate) reads: Vec<KeptRead>,
    pub(crate) until_ns: u64,
}

/// The bytes that a READ has read, which may be asked for again.
#[derive(Debug)]
pub(crate) struct KeptRead {
    pub(crate) rkey: u32,
    pub(crate) va: u64,
    pub(crate) bytes: Vec<u8>,
}

impl KeptRead {
    /// A part of it.
    pub(crate) fn part(&self, rkey: u32, va: u64, length: u32) -> Option<&[u8]> {
        let from = usize::try_from(va.checked_sub(self.va)?).ok()?;
        let bytes = self.bytes.get(from..from.checked_add(length as usize)?)?;
        (self.rkey == rkey).then_some(bytes)
    }
}

/// The receiving side of a device.
#[derive(Debug, Default)]
pub(crate) struct Rx {
    pub(crate) inbox: PacketInbox,
    pub(crate) groups: GroupSockets,
    /// Queue pairs whose responders have to answer: behind the batch, or, if the device's thread
    /// watches, with what the program sends next, or at its next poll.
    pub(crate) answering: Answers,
    /// Queue pairs whose requesters got a response.
    pub(crate) resuming: Vec<u32>,
    /// The run that a look has left in the outbox, for packets that may join it.
    pub(crate) left_run: u64,
    /// Faults of the network, applied to received packets; `None` if it has none.
    pub(crate) faults: Option<PacketFaults>,
    /// A packet that others overtake, and how many will.
    pub(crate) late: Option<(LatePacket, u32)>,
}

/// The memberships of this process in multicast groups.
#[derive(Debug, Default)]
pub(crate) struct Memberships {
    /// Held while one begins or ends. The number of the interface that they are known to be on:
    /// each is of one interface, and ends with it.
    pub(crate) changing: Mutex<Option<u32>>,
    /// Readable while a socket of a group is: made for the first one.
    pub(crate) ready: OnceLock<OwnedFd>,
}

/// The sockets of groups.
#[derive(Debug, Default)]
pub(crate) struct GroupSockets {
    /// At most [`MAX_WIRE_GROUPS`](crate::limits::MAX_WIRE_GROUPS).
    pub(crate) all: Vec<GroupSocket>,
    /// Number of packets for which sockets that are closed now had no room.
    pub(crate) dropped: u32,
}

/// The socket of a group.
#[derive(Debug)]
pub(crate) struct GroupSocket {
    pub(crate) gid: GidBytes,
    pub(crate) port: UdpPort,
    /// Packets that it had no room for.
    pub(crate) dropped: u32,
    /// A packet to the group that others overtake, and how many will.
    pub(crate) late: Option<(LatePacket, u32)>,
}

impl GroupSockets {
    /// Packets that the sockets had no room for; it wraps.
    fn dropped(&self) -> u32 {
        self.all.iter().fold(self.dropped, |sum, socket| sum.wrapping_add(socket.dropped))
    }
}

/// Faults of the network, drawn from a seed.
#[derive(Debug)]
pub(crate) struct PacketFaults {
    pub(crate) network: NetworkFaults,
    pub(crate) random: Random,
}

/// A packet that was set aside.
#[derive(Debug)]
pub(crate) struct LatePacket {
    pub(crate) from: SocketAddr,
    pub(crate) marks: Marks,
    pub(crate) bytes: Vec<u8>,
    pub(crate) nth: u16,
    pub(crate) was_handed_over: bool,
}

/// Packets. What is counted for each has one writer at a time, which holds the lock of what
/// receives, or of what sends.
#[derive(Debug, Default)]
pub(crate) struct PacketCounts {
    pub(crate) received: AtomicU64,
    pub(crate) sent: Padded<AtomicU64>,
    /// Requests that were executed before.
    pub(crate) duplicates: AtomicU64,
    /// Requests before which one is missing.
    pub(crate) out_of_sequence: AtomicU64,
    /// Requests that have met no receive request.
    pub(crate) not_ready: AtomicU64,
    /// The ICRC does not fit.
    pub(crate) bad_icrc: AtomicU64,
    /// For no queue pair here, or not from its peer.
    pub(crate) strangers: AtomicU64,
    /// They are no packets.
    pub(crate) malformed: AtomicU64,
    /// They have met congestion.
    pub(crate) ecn_marked: AtomicU64,
    /// Notifications of that: sent, heeded, and ignored.
    pub(crate) cnp_sent: AtomicU64,
    pub(crate) cnp_handled: AtomicU64,
    pub(crate) cnp_ignored: AtomicU64,
}

/// The path of a connection's packets.
#[derive(Debug, Clone, Copy)]
pub(crate) struct PacketPath {
    pub(crate) peer: SocketAddr,
    pub(crate) marks: Marks,
    /// The source port: see [`SendPorts`].
    pub(crate) source: u8,
    /// For the ICRC of what is sent.
    pub(crate) flow: Flow,
}

/// The sending side of a connection.
#[derive(Debug)]
#[allow(clippy::large_enum_variant, reason = "a queue pair has it in a box")]
pub(crate) enum WireSq {
    Reliable(Reliable),
    Unreliable(uc::Sender, PacketPath),
}

impl PacketCounts {
    /// Reports whether packets have arrived again, or behind a gap: the network loses some.
    pub(crate) fn tell_of_loss(&self) -> bool {
        // Relaxed: statistics.
        [&self.duplicates, &self.out_of_sequence].iter().any(|n| n.load(Ordering::Relaxed) > 0)
    }
}

impl RoceWire {
    /// Reports whether this process is a child of fork: it shares the sockets with the one that has
    /// opened the device, whose threads may have held any lock at the fork. It leaves both alone.
    pub(crate) fn is_inherited(&self) -> bool {
        self.process != std::process::id()
    }

    pub(crate) fn packet_counters(&self) -> PacketCounters {
        // With both, what a packet has caused is not seen before it is counted.
        let (rx, _tx) = (self.rx.lock(), self.tx.lock());
        let PacketCounts { received, sent, .. } = &self.counts;
        let PacketCounts { duplicates, out_of_sequence, not_ready, .. } = &self.counts;
        let PacketCounts { bad_icrc, strangers, malformed, .. } = &self.counts;
        let PacketCounts { ecn_marked, cnp_sent, cnp_handled, cnp_ignored, .. } = &self.counts;
        // Relaxed: statistics.
        let value = |count: &AtomicU64| count.load(Ordering::Relaxed);
        PacketCounters {
            sent: value(sent),
            received: value(received),
            duplicates: value(duplicates),
            out_of_sequence: value(out_of_sequence),
            not_ready: value(not_ready),
            bad_icrc: value(bad_icrc),
            strangers: value(strangers),
            malformed: value(malformed),
            overflowed: rx.inbox.dropped().wrapping_add(rx.groups.dropped()).into(),
            np_ecn_marked_packets: value(ecn_marked),
            np_cnp_sent: value(cnp_sent),
            rp_cnp_handled: value(cnp_handled),
            rp_cnp_ignored: value(cnp_ignored),
        }
    }
}

impl WireSq {
    /// Adds what its machine has counted.
    pub(crate) fn add_counts(&self, counters: &mut Counters) {
        if let WireSq::Reliable(wire) = self {
            let counts = wire.machine.counts();
            counters.rnr_naks += counts.rnr_naks;
            counters.retries += counts.retries;
        }
    }

    pub(crate) fn path(&mut self) -> &mut PacketPath {
        match self {
            WireSq::Reliable(Reliable { path, .. }) | WireSq::Unreliable(_, path) => path,
        }
    }
}

/// The state of the pages of a send queue's requests.
#[derive(Debug, Default)]
pub(crate) struct OwnPages {
    pub(crate) asked: Option<Arc<PendingPages>>,
    /// Some request has had on-demand memory.
    pub(crate) are_used: bool,
    /// No thread was free for a request that waits.
    pub(crate) looks_again: bool,
}

/// The requester of a reliable connection.
#[derive(Debug)]
pub(crate) struct Reliable {
    pub(crate) machine: Requester<Vec<SendSlot>>,
    pub(crate) path: PacketPath,
    /// Index in the machine of the request at the head of the queue.
    pub(crate) first: u64,
    /// A request, by its index in the machine, whose own memory has gone: it fails when it is the
    /// head.
    pub(crate) lost: Option<u64>,
    /// The deadline that is armed: its token, and when.
    pub(crate) armed: Option<(u64, u64)>,
    pub(crate) own: OwnPages,
    /// Hashes of what packets have carried, if the process is checked.
    pub(crate) packets: Option<Packets>,
    /// The oldest packet without an answer when some were last to be sent again, if the process is
    /// traced.
    pub(crate) waits_at: Option<Psn>,
}

impl Reliable {
    /// For a trace: how many requests are on their way, and whether one of them is sent again.
    pub(crate) fn progress(&self) -> (u32, bool) {
        let sent = self.machine.outstanding() as u32;
        (sent, sent > 0 && self.waits_at == Some(self.machine.unacked_psn()))
    }
}

/// The receiving machine of each transport.
#[derive(Debug)]
pub(crate) enum ReceivingMachine {
    Reliable(Responder<Vec<ResponseSlot>>),
    Unreliable(uc::Receiver),
    Datagrams(ud::Receiver),
}

/// The receiving side of a queue pair.
#[derive(Debug)]
pub(crate) struct WireRq {
    pub(crate) machine: ReceivingMachine,
    /// The path to the peer of a connection.
    pub(crate) path: Option<PacketPath>,
    /// The receive request that was taken for the message that is arriving.
    pub(crate) taken: Option<TakenReceive>,
    /// A packet of the peer has arrived.
    pub(crate) is_established: bool,
    /// The state that limits the notifications for packets that have met congestion.
    pub(crate) point: NotificationPoint,
    pub(crate) kept: KeptReads,
    /// Pages that a thread brings for the next request, or has brought.
    pub(crate) asked: Option<Arc<PendingPages>>,
}

/// The last short READs of a peer. It may ask again when the response was lost, and their region
/// have ended meanwhile: the bytes that were sent then are still the right answer.
#[derive(Debug, Default)]
pub(crate) struct KeptReads {
    /// The one after the newest is the oldest.
    all: Vec<KeptRead>,
    newest: usize,
}

impl KeptReads {
    /// READs that are kept, and bytes of each, at most: they look at counters.
    pub(crate) const MOST: usize = 16;
    pub(crate) const BYTES: usize = 64;

    pub(crate) fn keep(&mut self, rkey: u32, va: u64, read: &[u8]) {
        if read.len() > Self::BYTES {
            return;
        }
        if self.all.len() < Self::MOST {
            self.newest = self.all.len();
            self.all.push(KeptRead { rkey, va, bytes: Vec::with_capacity(Self::BYTES) });
        } else {
            self.newest = (self.newest + 1) % Self::MOST;
        }
        let kept = &mut self.all[self.newest];
        (kept.rkey, kept.va) = (rkey, va);
        kept.bytes.clear();
        kept.bytes.extend_from_slice(read);
    }

    /// Finds the bytes that were read there last.
    pub(crate) fn find(&self, rkey: u32, va: u64, length: u32) -> Option<&[u8]> {
        let (newer, older) = self.all.split_at((self.newest + 1).min(self.all.len()));
        newer.iter().rev().chain(older.iter().rev()).find_map(|read| read.part(rkey, va, length))
    }
}

/// A receive request that was taken.
#[derive(Debug)]
pub(crate) struct TakenReceive {
    pub(crate) wr_id: u64,
    /// The domain of its buffers.
    pub(crate) pd: u32,
    pub(crate) sges: Vec<ibv_sge>,
}

/// The address that a GID stands for.
pub(crate) fn ip_of(gid: &GidBytes) -> IpAddr {
    IpAddr::V6(Ipv6Addr::from(*gid)).to_canonical()
}

/// The GID of an address.
pub(crate) fn gid_of(ip: IpAddr) -> GidBytes {
    match ip {
        IpAddr::V4(ip) => ip.to_ipv6_mapped().octets(),
        IpAddr::V6(ip) => ip.octets(),
    }
}
