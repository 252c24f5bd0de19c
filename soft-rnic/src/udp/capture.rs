//! Captures: the packets of a device, as a file that Wireshark and tcpdump read.
//!
//! A socket shows no headers of IP and UDP: they are made anew, as they are on the wire. Packets
//! are copied into a buffer of [`CAPTURE`] bytes, which a thread of its own writes to the file:
//!
//! ```text
//!   record ──> buffer ── swapped, 20 times a second or when it is half full ──> file
//! ```
//!
//! **Contract: no thread that sends or receives waits for the disk.** A packet for which the buffer
//! has no room is not in the file; it is counted, and the count reported when the process ends.
//! What was captured in the last 50 ms before a SIGKILL is lost.
//!
//! The format is pcap's with nanoseconds, and packets that begin with their IP header
//! (LINKTYPE_RAW).

use core::net::{IpAddr, SocketAddr};
use core::time::Duration;
use host::thread::JoinHandle;
use std::fs::{File, OpenOptions};
use std::io::{self, ErrorKind, Read, Seek, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use host::sync::{Condvar, Mutex, OnceLock};
use rustix::fs::{FlockOperation, flock};

use super::outbox::Marks;

/// Bytes that wait to be written, at most; as many again may be under way to the file.
pub const CAPTURE: usize = 8 << 20;
/// Time that packets wait while the buffer is less than half full.
const DELAY: Duration = Duration::from_millis(50);

/// The magic number of pcap files with nanoseconds, in the processor's order, as all of its fields.
const MAGIC: u32 = 0xa1b2_3c4d;
const VERSION: [u16; 2] = [2, 4];
const LINKTYPE_RAW: u32 = 101;
/// Bytes of a packet that are kept: all.
const SNAPLEN: u32 = 65_535;

const DONT_FRAGMENT: u16 = 1 << 14;
const PROTOCOL_UDP: u8 = 17;
const UDP: usize = 8;

/// A packet that was sent or received.
#[derive(Debug, Clone, Copy)]
pub struct Captured<'p> {
    /// Its sender.
    pub from: SocketAddr,
    /// Its destination.
    pub to: SocketAddr,
    /// Fields of its IP header.
    pub marks: Marks,
    /// The identification of an IPv4 header, and whether routers may not fragment it.
    pub id: (u16, bool),
    /// Bytes behind the UDP header.
    pub bytes: &'p [u8],
}

/// A file that packets are written to.
#[derive(Debug)]
pub struct Capture {
    shared: Arc<CaptureShared>,
    writer: Option<JoinHandle<()>>,
}

#[derive(Debug)]
struct CaptureShared {
    path: PathBuf,
    /// The process that writes it: a child of fork does not.
    process: u32,
    /// The file, and the other buffer; locked before `waiting`.
    file: Mutex<(File, Vec<u8>)>,
    waiting: Mutex<CaptureBacklog>,
    /// There is something to write.
    wake: Condvar,
}

/// Packets that wait to be written.
#[derive(Debug, Default)]
struct CaptureBacklog {
    bytes: Vec<u8>,
    packets: u64,
    /// Packets that are not in the file.
    dropped: u64,
    /// Reason why the file takes no more.
    failed: Option<ErrorKind>,
    has_ended: bool,
}

/// Captures whose rest is written when the process ends.
static ALL: Mutex<Vec<Arc<CaptureShared>>> = Mutex::new(Vec::new());

impl Capture {
    /// A capture in this file; `%p` in its name is the number of the process. An earlier capture is
    /// replaced; any other file is left unchanged.
    ///
    /// # Errors
    /// What the system says; that the file is something else (`AlreadyExists`), or is being written
    /// (`WouldBlock`).
    pub fn create(path: &Path) -> io::Result<Capture> {
        let process = std::process::id();
        let path = PathBuf::from(path.to_string_lossy().replace("%p", &process.to_string()));
        let mut file = open(&path)?;
        file.write_all(&file_header())?;
        let shared = Arc::new(CaptureShared {
            path,
            process,
            file: Mutex::new((file, Vec::new())),
            waiting: Mutex::default(),
            wake: Condvar::new(),
        });
        let writer = Arc::clone(&shared);
        let writer = Some(host::thread::spawn("soft-rnic-pcap", move || writer.run())?);
        static AT_EXIT: OnceLock<()> = OnceLock::new();
        // SAFETY: the function stays: the library is never unloaded.
        AT_EXIT.get_or_init(|| _ = unsafe { libc::atexit(at_exit) });
        ALL.lock().push(Arc::clone(&shared));
        Ok(Capture { shared, writer })
    }

    /// Takes a packet, if there is room for it.
    #[cold]
    pub fn record(&self, packet: &Captured<'_>) {
        let shared = &self.shared;
        let mut waiting = shared.waiting.lock();
        if waiting.failed.is_some() || !waiting.take(packet) {
            waiting.dropped += 1;
            return;
        }
        waiting.packets += 1;
        // The first one begins the delay.
        let is_due = waiting.packets == 1 || waiting.is_half_full();
        drop(waiting);
        if is_due {
            shared.wake.notify_one();
        }
    }

    /// Packets that there was no room for.
    #[must_use]
    pub fn dropped(&self) -> u64 {
        self.shared.waiting.lock().dropped
    }
}

impl Drop for Capture {
    fn drop(&mut self) {
        let Capture { shared, writer } = self;
        ALL.lock().retain(|other| !Arc::ptr_eq(other, shared));
        // A child of fork has no such thread.
        if shared.process == std::process::id() {
            shared.waiting.lock().has_ended = true;
            shared.wake.notify_one();
            let _ = writer.take().map(JoinHandle::join);
            shared.end();
        }
    }
}

impl CaptureBacklog {
    fn is_half_full(&self) -> bool {
        self.bytes.len() >= CAPTURE / 2
    }

    /// Appends a packet; returns true if there was room.
    fn take(&mut self, packet: &Captured<'_>) -> bool {
        let Some((header, len)) = headers(packet) else { return false };
        let total = len + packet.bytes.len();
        if self.bytes.len() + RECORD + total > CAPTURE {
            return false;
        }
        self.bytes.extend(record_header(total as u32));
        self.bytes.extend(&header[..len]);
        self.bytes.extend(packet.bytes);
        true
    }
}

impl CaptureShared {
    /// The writing thread.
    fn run(&self) {
        loop {
            let mut waiting = self.waiting.lock();
            while waiting.bytes.is_empty() && !waiting.has_ended {
                self.wake.wait(&mut waiting);
            }
            if !waiting.is_half_full() && !waiting.has_ended {
                self.wake.wait_for(&mut waiting, host::time::by_system(DELAY));
            }
            let has_ended = waiting.has_ended;
            drop(waiting);
            self.write();
            if has_ended {
                return;
            }
        }
    }

    /// Writes what waits.
    fn write(&self) {
        // A thread that exits out of a signal handler may have either: what is not written then is
        // lost.
        let Some(mut file) = self.file.try_lock_for(DELAY) else { return };
        let (file, bytes) = &mut *file;
        let packets = {
            let Some(mut waiting) = self.waiting.try_lock_for(DELAY) else { return };
            core::mem::swap(&mut waiting.bytes, bytes);
            core::mem::take(&mut waiting.packets)
        };
        if let Err(error) = file.write_all(bytes) {
            let mut waiting = self.waiting.lock();
            // Some may be in the file.
            waiting.dropped += packets;
            waiting.failed = Some(error.kind());
        }
        bytes.clear();
    }

    /// Writes the rest, and reports what is missing.
    fn end(&self) {
        if self.process != std::process::id() {
            return;
        }
        self.write();
        // A thread that exits out of a signal handler may have it.
        let Some(waiting) = self.waiting.try_lock_for(DELAY) else { return };
        let path = self.path.display();
        let why = match (waiting.failed, waiting.dropped) {
            (_, 0) => return,
            (None, _) => "they arrived faster than the disk takes them".to_owned(),
            (Some(kind), _) => format!("the file takes no more: {kind}"),
        };
        // There may be no standard error.
        let _ =
            writeln!(io::stderr(), "the capture {path} lacks {} packets: {why}", waiting.dropped);
    }
}

/// Writes all packets to their files that were captured until now, without a report of those that
/// are missing: for a program that ends without `exit`, or reads a capture while it runs.
pub fn write_captures() {
    let all: Vec<Arc<CaptureShared>> = ALL.lock().clone();
    all.iter()
        .filter(|shared| shared.process == std::process::id())
        .for_each(|shared| shared.write());
}

extern "C" fn at_exit() {
    // A thread that has the lock may be gone.
    let Some(all) = ALL.try_lock_for(DELAY) else { return };
    all.iter().for_each(|shared| shared.end());
}

/// Opens the file, which is empty then.
#[expect(clippy::disallowed_methods, reason = "the lock is tried only")]
fn open(path: &Path) -> io::Result<File> {
    // It has the data of others.
    let mut file = OpenOptions::new()
        .read(true)
        .write(true)
        .create(true)
        .truncate(false)
        .mode(0o600)
        .open(path)?;
    flock(&file, FlockOperation::NonBlockingLockExclusive)?;
    if file.metadata()?.is_file() {
        let mut begin = Vec::new();
        (&mut file).take(4).read_to_end(&mut begin)?;
        if !begin.is_empty() && begin != MAGIC.to_ne_bytes() {
            return Err(ErrorKind::AlreadyExists.into());
        }
        file.set_len(0)?;
        file.rewind()?;
    }
    Ok(file)
}

fn file_header() -> [u8; 24] {
    let mut bytes = [0; 24];
    bytes[..4].copy_from_slice(&MAGIC.to_ne_bytes());
    bytes[4..6].copy_from_slice(&VERSION[0].to_ne_bytes());
    bytes[6..8].copy_from_slice(&VERSION[1].to_ne_bytes());
    bytes[16..20].copy_from_slice(&SNAPLEN.to_ne_bytes());
    bytes[20..].copy_from_slice(&LINKTYPE_RAW.to_ne_bytes());
    bytes
}

/// Bytes of what precedes a packet.
const RECORD: usize = 16;

fn record_header(len: u32) -> [u8; RECORD] {
    let now = host::time::wall_ns();
    let mut bytes = [0; RECORD];
    // The format has 32 bits for seconds.
    let words = [(now / 1_000_000_000) as u32, (now % 1_000_000_000) as u32, len, len];
    for (to, word) in bytes.chunks_exact_mut(4).zip(words) {
        to.copy_from_slice(&word.to_ne_bytes());
    }
    bytes
}

/// The headers of IP and UDP, and their length; `None` between two families, or where it is too
/// long.
fn headers(packet: &Captured<'_>) -> Option<([u8; 48], usize)> {
    let mut bytes = [0; 48];
    let udp = u16::try_from(UDP + packet.bytes.len()).ok()?;
    let (ip_len, sum) = match (packet.from.ip().to_canonical(), packet.to.ip().to_canonical()) {
        (IpAddr::V4(from), IpAddr::V4(to)) => {
            let (id, dont_fragment) = packet.id;
            let flags = if dont_fragment { DONT_FRAGMENT } else { 0 };
            (bytes[0], bytes[1]) = (0x45, packet.marks.class);
            bytes[2..4].copy_from_slice(&udp.checked_add(20)?.to_be_bytes());
            bytes[4..6].copy_from_slice(&id.to_be_bytes());
            bytes[6..8].copy_from_slice(&flags.to_be_bytes());
            (bytes[8], bytes[9]) = (packet.marks.hops, PROTOCOL_UDP);
            bytes[12..16].copy_from_slice(&from.octets());
            bytes[16..20].copy_from_slice(&to.octets());
            let sum = checksum(sum_of(&bytes[..20], 0));
            bytes[10..12].copy_from_slice(&sum.to_be_bytes());
            (20, sum_of(&bytes[12..20], 0))
        }
        (IpAddr::V6(from), IpAddr::V6(to)) => {
            let class = packet.marks.class;
            (bytes[0], bytes[1]) = (0x60 | class >> 4, class << 4);
            bytes[4..6].copy_from_slice(&udp.to_be_bytes());
            (bytes[6], bytes[7]) = (PROTOCOL_UDP, packet.marks.hops);
            bytes[8..24].copy_from_slice(&from.octets());
            bytes[24..40].copy_from_slice(&to.octets());
            (40, sum_of(&bytes[8..40], 0))
        }
        _ => return None,
    };
    let header = &mut bytes[ip_len..ip_len + UDP];
    header[..2].copy_from_slice(&packet.from.port().to_be_bytes());
    header[2..4].copy_from_slice(&packet.to.port().to_be_bytes());
    header[4..6].copy_from_slice(&udp.to_be_bytes());
    let sum = sum_of(header, sum + u64::from(udp) + u64::from(PROTOCOL_UDP));
    // 0 stands for none.
    let sum = match checksum(sum_of(packet.bytes, sum)) {
        0 => u16::MAX,
        sum => sum,
    };
    header[6..8].copy_from_slice(&sum.to_be_bytes());
    Some((bytes, ip_len + UDP))
}

/// The sum of words of 16 bits, with what was summed before.
fn sum_of(bytes: &[u8], before: u64) -> u64 {
    let words = bytes.chunks(2).map(|word| match *word {
        [high, low] => u16::from_be_bytes([high, low]),
        [high, ..] => u16::from_be_bytes([high, 0]),
        [] => 0,
    });
    words.fold(before, |sum, word| sum + u64::from(word))
}

/// The internet checksum of a sum.
fn checksum(mut sum: u64) -> u16 {
    while sum > u64::from(u16::MAX) {
        sum = (sum & u64::from(u16::MAX)) + (sum >> 16);
    }
    !(sum as u16)
}

#[cfg(test)]
mod tests;
