//! Packets that are to be sent.

mod headers;

use core::mem::MaybeUninit;
use core::net::SocketAddr;

use libc::{iovec, mmsghdr};
use rustix::io::Errno;

use super::errors::last_error;
use super::port::UdpPort;
#[cfg(feature = "simulation")]
use super::world_network::Parcel;
use headers::{Addr, OutboundControl};

pub use headers::Marks;

/// Bytes that an outbox holds at most.
pub const OUTBOX: usize = 256 << 10;
/// Messages of one system call, and those that are few, for which there is little to prepare.
const MESSAGES: usize = 64;
const FEW: usize = 4;
/// Segments of one run, and their bytes: what kernels since 4.18 cut (`UDP_MAX_SEGMENTS`).
const SEGMENTS: usize = 64;
const RUN: usize = 65_000;

/// Errors of runs where single packets may be sent. (Without an address, packets of both kinds get
/// the second one.) While the network is not there, all packets get others.
const REFUSES_RUNS: [Errno; 4] = [Errno::IO, Errno::INVAL, Errno::MSGSIZE, Errno::OPNOTSUPP];

/// Packets that are to be sent, in order.
#[derive(Debug)]
pub struct PacketOutbox {
    /// [`OUTBOX`] bytes. Those of packets are from the first run's on to `used`.
    bytes: Box<[u8]>,
    used: usize,
    runs: Vec<OutboundRun>,
    /// The last run waits for packets that join it.
    is_held: bool,
    /// Runs that were begun so far; it wraps.
    begun: u64,
    /// Equal packets are to go as one run (`may_cut`), and they do (`cuts`): the system may refuse
    /// runs.
    may_cut: bool,
    cuts: bool,
    /// The place that packets which are pushed are for.
    place: u32,
    /// The source port of packets that are pushed: see `send_ports`.
    source: u8,
    /// The last run is for another place or from another source port.
    is_run_over: bool,
}

/// Packets to one destination that are as long as each other, but for the last, which may be
/// shorter.
#[derive(Debug, Clone, Copy)]
struct OutboundRun {
    to: SocketAddr,
    marks: Marks,
    from: usize,
    len: usize,
    segment: usize,
    packets: usize,
    source: u8,
    /// Its packets go one by one: the system has refused it as a whole, and some may have gone.
    is_split: bool,
}

impl OutboundRun {
    /// Reports whether it has as many packets of its length as one can have.
    fn is_full(&self) -> bool {
        self.packets == SEGMENTS || self.len + self.segment > RUN
    }

    /// Reports whether a packet that is as long as the others can be its next one.
    fn is_open(&self) -> bool {
        self.takes(self.to, self.marks, self.segment)
    }

    /// Reports whether a packet of `len` bytes can be its next one.
    fn takes(&self, to: SocketAddr, marks: Marks, len: usize) -> bool {
        let is_full = self.segment > 0 && self.len == self.packets * self.segment;
        let fits = self.packets < SEGMENTS && self.len + len <= RUN;
        let is_of_it = self.to == to && self.marks == marks && !self.is_split;
        is_of_it && is_full && len <= self.segment && fits
    }
}

impl PacketOutbox {
    /// An empty one. Without `cuts` each packet goes by itself, which what is between the two ends
    /// may need (netem drops a run as a whole).
    #[must_use]
    pub fn new(cuts: bool) -> PacketOutbox {
        let (bytes, runs) = (vec![0; OUTBOX].into_boxed_slice(), Vec::with_capacity(MESSAGES));
        PacketOutbox {
            bytes,
            used: 0,
            runs,
            is_held: false,
            begun: 0,
            may_cut: cuts,
            cuts,
            place: 0,
            source: 0,
            is_run_over: false,
        }
    }

    /// The packets that are pushed from now on leave by this source port: 0 is the port that they
    /// are sent by, and others are in the list that [`send_from`](Self::send_from) is given.
    pub fn choose_source(&mut self, source: u8) {
        if self.source != source {
            (self.source, self.is_run_over) = (source, true);
        }
    }

    /// The packets that are pushed from now on are for this place of their destination (see
    /// `group`). A run is for one place: it comes as a whole, and goes where its first packet goes.
    pub fn choose_place(&mut self, place: u32) {
        if self.place != place {
            (self.place, self.is_run_over) = (place, true);
        }
    }

    /// Makes runs again although the system has refused one: the interface has changed.
    pub(crate) fn cut_again(&mut self) {
        self.cuts = self.may_cut;
    }

    /// Reports whether nothing is to be sent.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.runs.is_empty()
    }

    /// Reports whether [`push`](Self::push) has room for such a packet.
    #[must_use]
    pub fn has_room(&self, to: SocketAddr, marks: Marks, len: usize) -> bool {
        let has_run = self.runs.len() < MESSAGES || self.joins(to, marks, len);
        self.has_bytes(len) && has_run
    }

    /// Reports whether there is room for a packet of `len` bytes, wherever it goes.
    #[must_use]
    pub fn has_room_for_any(&self, len: usize) -> bool {
        self.has_bytes(len) && self.runs.len() < MESSAGES
    }

    fn has_bytes(&self, len: usize) -> bool {
        self.used - self.first() + len <= OUTBOX
    }

    /// Returns the offset of the first packet.
    fn first(&self) -> usize {
        self.runs.first().map_or(self.used, |run| run.from)
    }

    /// Moves the packets to the front.
    #[cold]
    fn compact(&mut self) {
        let first = self.first();
        self.bytes.copy_within(first..self.used, 0);
        self.used -= first;
        self.runs.iter_mut().for_each(|run| run.from -= first);
    }

    /// From now on the last run is not [due](Self::has_due), if more packets may join it: what is
    /// pushed next may be for the same destination, and as long.
    pub fn hold(&mut self) {
        self.is_held =
            self.cuts && !self.is_run_over && self.runs.last().is_some_and(OutboundRun::is_open);
    }

    /// Reports whether the last run has as many packets as one can have.
    #[must_use]
    pub fn is_full(&self) -> bool {
        self.runs.last().is_some_and(OutboundRun::is_full)
    }

    /// All that is there is due.
    pub fn release(&mut self) {
        self.is_held = false;
    }

    /// Reports whether a run waits for packets that join it.
    #[must_use]
    pub fn is_held(&self) -> bool {
        self.is_held
    }

    /// Reports whether [`send`](Self::send) has anything to send.
    #[must_use]
    pub fn has_due(&self) -> bool {
        self.due() > 0
    }

    fn due(&self) -> usize {
        self.runs.len() - usize::from(self.is_held)
    }

    /// Packets that wait for others to join them.
    #[must_use]
    pub fn held(&self) -> usize {
        self.runs.last().filter(|_| self.is_held).map_or(0, |run| run.packets)
    }

    /// Runs that were begun so far; it wraps.
    #[must_use]
    pub fn begun(&self) -> u64 {
        self.begun
    }

    fn joins(&self, to: SocketAddr, marks: Marks, len: usize) -> bool {
        self.cuts
            && !self.is_run_over
            && self.runs.last().is_some_and(|run| run.takes(to, marks, len))
    }

    /// Room for a packet of so many bytes behind the others, whatever is in it, and which one of
    /// its run it is: the identification that the kernel gives it. `None` if it has to be sent
    /// first.
    pub fn push(&mut self, to: SocketAddr, marks: Marks, len: usize) -> Option<(u16, &mut [u8])> {
        if !self.has_room(to, marks, len) {
            return None;
        }
        if self.used + len > OUTBOX {
            self.compact();
        }
        let from = self.used;
        let joins = self.joins(to, marks, len);
        self.used += len;
        if !joins {
            // It is held only if that is said of it.
            (self.is_held, self.begun) = (false, self.begun.wrapping_add(1));
            self.runs.push(OutboundRun {
                to,
                marks,
                from,
                len: 0,
                segment: len,
                packets: 0,
                source: self.source,
                is_split: false,
            });
            self.is_run_over = false;
        }
        let run = self.runs.last_mut()?;
        let nth = run.packets as u16;
        (run.len, run.packets) = (run.len + len, run.packets + 1);
        Some((nth, &mut self.bytes[from..from + len]))
    }

    /// Takes the packet back that was pushed last, if it was not sent.
    pub fn withdraw(&mut self) {
        let Some(run) = self.runs.last_mut() else { return };
        let len = run.len - (run.packets - 1) * run.segment;
        self.used -= len;
        (run.len, run.packets) = (run.len - len, run.packets - 1);
        if run.packets == 0 {
            self.runs.pop();
            self.is_held = false;
            // The one before it may be for another place.
            self.is_run_over = true;
        }
    }

    /// Sends what is due, as far as the kernel takes it now, and keeps the rest. How many packets
    /// were sent. If the system refuses a run because it is one, its packets go one by one, as do
    /// all later packets.
    ///
    /// # Errors
    /// What the system says of the first run, or the first packet of one that it has refused, which
    /// is dropped: the network may lose any. Not that there is no room ([`Errno::AGAIN`]): then
    /// nothing is sent, or less.
    pub fn send(&mut self, port: &UdpPort) -> Result<usize, Errno> {
        self.send_from(port, &[], |_, _, _| ())
    }

    /// [`send`](Self::send) by several source ports: `port`, and `others` from 1 on. `renumber` is
    /// given what goes by itself although it was pushed as one of a run, with where it comes from
    /// and goes to: its identification is 0, not what [`push`](Self::push) has said.
    ///
    /// # Errors
    /// As [`send`](Self::send).
    pub fn send_from(
        &mut self,
        port: &UdpPort,
        others: &[UdpPort],
        renumber: impl Fn(SocketAddr, SocketAddr, &mut [u8]),
    ) -> Result<usize, Errno> {
        let (mut done, mut packets) = (0, 0);
        let result = loop {
            if done == self.due() {
                break Ok(packets);
            }
            let (port, n) = self.next_source(done, port, others);
            let sent = match n {
                0 => self.send_one(port, done, &renumber),
                1..=FEW => self.send_runs::<FEW>(port, &self.runs[done..done + n]),
                _ => self.send_runs::<MESSAGES>(port, &self.runs[done..done + n]),
            };
            match sent {
                Ok(_) if n == 0 => {
                    packets += 1;
                    done += self.drop_one(done);
                }
                Ok(n) => {
                    packets +=
                        self.runs[done..done + n].iter().map(|run| run.packets).sum::<usize>();
                    done += n;
                }
                Err(Errno::INTR) => {}
                Err(Errno::AGAIN | Errno::NOBUFS) => break Ok(packets),
                // An interface that computes no checksums may be one that cuts no runs.
                Err(error)
                    if n > 0 && REFUSES_RUNS.contains(&error) && self.runs[done].packets > 1 =>
                {
                    self.cuts = false;
                    self.runs[done].is_split = true;
                }
                Err(error) => {
                    done += if n == 0 { self.drop_one(done) } else { 1 };
                    break Err(error);
                }
            }
        };
        self.runs.drain(..done);
        if self.runs.is_empty() {
            self.used = 0;
        }
        result
    }

    /// The source port of what goes first: if [`send_from`](Self::send_from) has left it, that is
    /// full.
    #[must_use]
    pub fn first_source<'p>(
        &self,
        port: &'p UdpPort,
        others: &'p [UdpPort],
    ) -> Option<&'p UdpPort> {
        (!self.is_empty()).then(|| self.next_source(0, port, others).0)
    }

    /// Reports whether the packets of a run go one by one.
    fn is_split(&self, run: &OutboundRun) -> bool {
        run.is_split || run.packets > 1 && !self.cuts
    }

    /// Sends the first packet of a run that is split.
    fn send_one(
        &mut self,
        port: &UdpPort,
        at: usize,
        renumber: impl Fn(SocketAddr, SocketAddr, &mut [u8]),
    ) -> Result<usize, Errno> {
        let run = &mut self.runs[at];
        run.is_split = true;
        let one = OutboundRun { len: run.len.min(run.segment), packets: 1, ..*run };
        renumber(port.local(), one.to, &mut self.bytes[one.from..one.from + one.len]);
        self.send_runs::<1>(port, &[one])
    }

    /// The first packet of a run was sent, or is lost: how many runs are over, this one or none.
    fn drop_one(&mut self, at: usize) -> usize {
        let run = &mut self.runs[at];
        let len = run.len.min(run.segment);
        (run.from, run.len, run.packets) = (run.from + len, run.len - len, run.packets - 1);
        usize::from(run.packets == 0)
    }

    /// The source port of a run, and how many runs from there on leave by it in one call: none, if
    /// the run is split.
    fn next_source<'p>(
        &self,
        first: usize,
        port: &'p UdpPort,
        others: &'p [UdpPort],
    ) -> (&'p UdpPort, usize) {
        let source = self.runs[first].source;
        let port = usize::from(source).checked_sub(1).and_then(|at| others.get(at)).unwrap_or(port);
        let goes = |run: &&OutboundRun| run.source == source && !self.is_split(run);
        (port, self.runs[first..self.due()].iter().take_while(goes).count())
    }

    /// Sends these runs, of which there are `N` at most; how many the kernel has taken, at least
    /// one.
    #[expect(clippy::disallowed_methods, reason = "the socket does not block")]
    fn send_runs<const N: usize>(
        &self,
        port: &UdpPort,
        runs: &[OutboundRun],
    ) -> Result<usize, Errno> {
        #[cfg(feature = "simulation")]
        if let Some(endpoint) = &port.endpoint {
            for run in runs {
                endpoint.send(Parcel {
                    from: port.local(),
                    to: run.to,
                    marks: [run.marks.class, run.marks.hops],
                    segment: run.segment,
                    bytes: self.bytes[run.from..run.from + run.len].to_vec(),
                });
            }
            return Ok(runs.len());
        }
        let mut addrs = [Addr::default(); N];
        let mut controls = [OutboundControl::default(); N];
        let mut pieces = [iovec { iov_base: core::ptr::null_mut(), iov_len: 0 }; N];
        // SAFETY: zeroes are valid: null pointers, and lengths of 0.
        let mut messages: [mmsghdr; N] = unsafe { MaybeUninit::zeroed().assume_init() };
        for (at, run) in runs.iter().enumerate() {
            let bytes = &self.bytes[run.from..run.from + run.len];
            // The kernel reads it only.
            pieces[at] = iovec { iov_base: bytes.as_ptr().cast_mut().cast(), iov_len: run.len };
            let segment = (run.packets > 1).then_some(run.segment as u16);
            let (name, namelen) = addrs[at].set(run.to);
            let controllen = controls[at].set(run.to, run.marks, segment);
            let header = &mut messages[at].msg_hdr;
            (header.msg_name, header.msg_namelen) = (name, namelen);
            (header.msg_iov, header.msg_iovlen) = (&raw mut pieces[at], 1);
            (header.msg_control, header.msg_controllen) =
                ((&raw mut controls[at]).cast(), controllen);
        }
        let n = runs.len() as u32;
        // The call itself: the C library's function lets threads be cancelled in it, which takes
        // time. SAFETY: each header names an address, a piece of `bytes` and control messages that
        // live here, with their lengths.
        let sent =
            unsafe { libc::syscall(libc::SYS_sendmmsg, port.raw(), messages.as_mut_ptr(), n, 0) };
        usize::try_from(sent).map_err(|_| last_error())
    }
}

#[cfg(test)]
mod tests;
