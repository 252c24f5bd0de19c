//! The format: what is written is read, and what is not is not believed.

use core::sync::atomic::{AtomicBool, Ordering};
use std::net::{IpAddr, Ipv6Addr};
use std::path::PathBuf;
use std::sync::Arc;

use rustix::io::Errno;

use super::*;
use crate::trace::completions::CqTrace;
use crate::trace::layout::{ENTRY, EventKind, entry, flag, wait};
use crate::trace::queue::{QueueProperties, QueueTrace, TracedPost};
use crate::trace::tracer::Tracer;

/// Address of the other end.
const ADDRESS: IpAddr = IpAddr::V6(Ipv6Addr::new(0xfd00, 1, 2, 3, 4, 5, 6, 7));

/// A file that goes with the value.
struct TempTraceFile(PathBuf);

impl TempTraceFile {
    fn new(name: &str) -> TempTraceFile {
        TempTraceFile(std::env::temp_dir().join(format!("soft-rnic-{}-{name}", std::process::id())))
    }

    fn tracer(&self) -> Arc<Tracer> {
        Arc::new(Tracer::create(&self.0, 7).unwrap())
    }

    /// The used part of the file.
    fn bytes(&self) -> Vec<u8> {
        let mut bytes = Vec::new();
        let mut file = std::fs::File::open(&self.0).unwrap();
        (&mut file).take(OBJECTS as u64 * 8).read_to_end(&mut bytes).unwrap();
        let used = TraceWords(&bytes).get(head::USED) * 8 - bytes.len() as u64;
        file.take(used).read_to_end(&mut bytes).unwrap();
        bytes
    }

    fn trace(&self) -> Trace {
        load(&mut std::fs::File::open(&self.0).unwrap()).unwrap()
    }
}

impl Drop for TempTraceFile {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0);
    }
}

const SHAPE: QueueProperties = QueueProperties {
    number: 0x41,
    transport: 0,
    send_capacity: 4,
    recv_capacity: 2,
    send_cq: 1,
    recv_cq: 1,
    srq: 0,
};

fn posting(wr_id: u64, flags: u64) -> TracedPost {
    TracedPost { wr_id, operation: 1, flags, len: 64, to: 0 }
}

/// The words of a completion.
fn completion(wr_id: u64, status: u64) -> [u64; 6] {
    [wr_id, status, 0, u64::from(SHAPE.number) << 32, 0, 0]
}

/// A queue pair and a completion queue, with requests in each stage: 1 is covered by 2, whose
/// completion was not polled, 3 was executed, and 4 waits.
fn filled(file: &TempTraceFile) -> (Arc<Tracer>, Arc<QueueTrace>, CqTrace) {
    let tracer = file.tracer();
    let cq = CqTrace::new(&tracer, 4).unwrap();
    let queue = tracer.pair(&SHAPE, None).unwrap();
    queue.connection((0x42, Some(ADDRESS)), [14, 5, 6]);
    queue.state(3, 0);
    for (position, flags) in [(1, 0), (2, flag::SIGNALED), (3, 0), (4, flag::SIGNALED)] {
        queue.posted(position, &posting(100 + u64::from(position), flags));
    }
    cq.came(&completion(102, 0), Some(2));
    cq.produced(1);
    for _ in 0..3 {
        queue.waits(4, wait::RNR, 104);
    }
    queue.progress(3, 0, true);
    for index in 0..2 {
        queue.posted_recv(index, 200 + u64::from(index), 32);
    }
    (tracer, queue, cq)
}

/// Has two threads poll one queue: one has read how far it is, and stands still; what is kept in
/// the end is what the other one has read after it.
fn kept_of_two(say: &(dyn Fn(&dyn Fn() -> u32) + Sync), kept: impl Fn() -> u32) {
    let (first, second) = (AtomicBool::new(false), AtomicBool::new(false));
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !first.load(Ordering::Acquire) {
                host::thread::yield_now();
            }
            say(&|| 2);
            second.store(true, Ordering::Release);
        });
        say(&|| {
            first.store(true, Ordering::Release);
            // The other one has all the time that it wants.
            let mut yields = (0..1_000).map(|_| host::thread::yield_now());
            yields.any(|()| second.load(Ordering::Acquire));
            1
        });
    });
    assert_eq!(kept(), 2);
}

#[test]
fn of_what_two_polling_threads_say_the_latest_is_kept() {
    use std::os::unix::fs::FileExt;
    let file = TempTraceFile::new("two-threads");
    let (_tracer, queue, cq) = filled(&file);
    let opened = std::fs::File::open(&file.0).unwrap();
    // The completion queue is the first object, and the queue pair the second.
    let word = |at: usize| {
        let mut word = [0; 8];
        opened.read_exact_at(&mut word, (OBJECTS + at) as u64 * 8).unwrap();
        u64::from_ne_bytes(word) as u32
    };
    kept_of_two(&|head| cq.consumed(head), || word(object::CONSUMED));
    kept_of_two(&|freed| queue.polled(freed), || word(HEADER + object::POLLED));
}

fn words(bytes: &[u8], at: usize) -> u64 {
    TraceWords(bytes).get(at)
}

fn ids(requests: &[TracedRequest]) -> Vec<u64> {
    requests.iter().map(|request| request.wr_id).collect()
}

#[test]
fn what_is_outstanding_is_read_back() {
    let file = TempTraceFile::new("read-back");
    let _kept = filled(&file);
    let trace = file.trace();
    assert_eq!((trace.process, trace.torn, trace.left_out), (7, 0, 0));
    // The number is not that of a process that this test knows.
    assert_eq!(trace.started, crate::trace::started(7).unwrap_or(0));
    assert!(!trace.program.is_empty() && trace.last_ns > 0 && trace.began_ns > 0);
    let [pair] = &trace.queue_pairs[..] else { panic!("{trace:?}") };
    assert_eq!((pair.number, pair.transport, pair.state), (0x41, "RC", "RTS"));
    assert_eq!((pair.peer, pair.retry_cnt, pair.rnr_retry), (Some(0x42), 5, 6));
    assert_eq!(pair.peer_address, Some(ADDRESS));
    assert_eq!(ids(&pair.sends), [102, 103, 104]);
    let stages: Vec<Stage> = pair.sends.iter().map(|request| request.stage).collect();
    assert_eq!(stages, [Stage::Completed("SUCCESS"), Stage::Executed, Stage::Queued]);
    let waiting = pair.waiting.unwrap();
    assert_eq!((waiting.reason, waiting.tries), (TracedWaitReason::Receiver, 3));
    assert_eq!((pair.sends[2].operation, pair.sends[2].len), ("WRITE", 64));
    assert!(pair.sends[2].is_signaled && !pair.sends[1].is_signaled);
    assert_eq!(ids(&pair.receives), [200, 201]);
    assert_eq!(trace.completion_queues[0].unpolled, 1);
    let last = trace.events.last().unwrap();
    assert_eq!((last.what, last.operation, last.wr_id), ("post", Some("RECV"), 201));
    // Of three tries the first two.
    assert_eq!(trace.events.iter().filter(|event| event.what == "wait").count(), 2);
}

#[test]
fn what_is_polled_taken_or_cleared_is_over() {
    let file = TempTraceFile::new("over");
    let (tracer, queue, cq) = filled(&file);
    queue.polled(|| 2);
    cq.consumed(|| 1);
    cq.came(&completion(200, 0), None);
    let pair = file.trace().queue_pairs.remove(0);
    assert_eq!((ids(&pair.sends), ids(&pair.receives)), (vec![103, 104], vec![201]));
    assert_eq!(file.trace().completion_queues[0].unpolled, 0);
    queue.clear();
    let pair = file.trace().queue_pairs.remove(0);
    assert_eq!((pair.sends, pair.receives, pair.waiting), (vec![], vec![], None));
    // Positions of receive requests continue, those of sends begin anew.
    queue.posted_recv(2, 300, 8);
    queue.posted(1, &posting(301, 0));
    let pair = file.trace().queue_pairs.remove(0);
    assert_eq!((ids(&pair.sends), ids(&pair.receives)), (vec![301], vec![300]));
    // A request that waits in the slot in which one has waited before began to wait just now.
    let mut before = 0;
    for _ in 0..2 {
        queue.waits(1, wait::RNR, 301);
        let since_ns = file.trace().queue_pairs[0].waiting.unwrap().since_ns;
        assert!(since_ns > before, "{since_ns} after {before}");
        before = file.trace().last_ns;
        queue.clear();
        queue.posted(1, &posting(301, 0));
    }
    tracer.forget(&queue);
    assert_eq!(file.trace().queue_pairs, []);
}

#[test]
fn what_is_outstanding_stays_when_the_log_and_the_tables_wrap() {
    let file = TempTraceFile::new("wrap");
    let tracer = file.tracer();
    let queue = tracer.pair(&QueueProperties { send_capacity: 4, ..SHAPE }, None).unwrap();
    let cq = CqTrace::new(&tracer, 4).unwrap();
    queue.posted_recv(0, 9, 1);
    let last = LOG_RECORDS as u32;
    for position in 1..=last {
        queue.posted(position, &posting(position.into(), flag::SIGNALED));
        if position + 2 <= last {
            cq.came(&completion(position.into(), 0), Some(position));
            queue.progress(position, 0, false);
            queue.polled(|| position);
        }
    }
    let trace = file.trace();
    assert_eq!(trace.events.len(), LOG_RECORDS);
    assert_eq!(ids(&trace.queue_pairs[0].sends), [u64::from(last) - 1, last.into()]);
    assert_eq!(ids(&trace.queue_pairs[0].receives), [9]);
    assert_eq!(trace.torn, 0);
}

#[test]
fn receive_requests_of_a_shared_queue_are_taken_in_any_order() {
    let file = TempTraceFile::new("shared");
    let tracer = file.tracer();
    let shared = tracer.shared(5, 4).unwrap();
    let shape = QueueProperties { recv_capacity: 0, srq: 5, ..SHAPE };
    let _pair = tracer.pair(&shape, Some(Arc::clone(&shared))).unwrap();
    let cq = CqTrace::new(&tracer, 4).unwrap();
    (0..4).for_each(|index| shared.posted_recv(index, index.into(), 8));
    cq.came(&completion(2, 0), None);
    assert_eq!(ids(&file.trace().shared_queues[0].receives), [0, 1, 3]);
    cq.came(&completion(0, 0), None);
    assert_eq!(ids(&file.trace().shared_queues[0].receives), [1, 3]);
    assert_eq!(file.trace().queue_pairs[0].srq, Some(5));
}

#[test]
fn what_was_being_written_is_counted_and_not_shown() {
    let file = TempTraceFile::new("torn");
    let (tracer, _queue, _cq) = filled(&file);
    let whole = file.trace();
    // The queue pair lies behind the completion queue.
    let pair = OBJECTS + HEADER;
    let (request, record) = (pair + HEADER + 3 * ENTRY, HEADER + RECORD);
    for (at, word) in [(request, entry::STATE), (request, entry::WR_ID), (record, 0), (record, 2)] {
        let kept = tracer.file.word(at + word).swap(0, core::sync::atomic::Ordering::Relaxed);
        let torn = file.trace();
        assert_eq!(torn.torn, 1, "word {word} at {at}");
        let lost = usize::from(at == request);
        assert_eq!(torn.queue_pairs[0].sends.len() + lost, whole.queue_pairs[0].sends.len());
        assert_eq!(torn.events.len() + 1 - lost, whole.events.len());
        tracer.file.word(at + word).store(kept, core::sync::atomic::Ordering::Relaxed);
    }
    assert_eq!(file.trace(), whole);
}

#[test]
fn no_bytes_are_believed() {
    let file = TempTraceFile::new("hostile");
    let _kept = filled(&file);
    let bytes = file.bytes();
    let log = HEADER * 8..OBJECTS * 8;
    for at in (0..bytes.len()).step_by(8).filter(|at| !log.contains(at)) {
        for value in [0, 1, 2, 31, 1 << 20, 1 << 31, 1 << 32, u64::MAX >> 1, u64::MAX] {
            let mut bytes = bytes.clone();
            bytes[at..at + 8].copy_from_slice(&u64::to_ne_bytes(value));
            if let Ok(trace) = read(&bytes) {
                let slots = (bytes.len() - OBJECTS * 8) / (ENTRY * 8);
                let pair = trace.queue_pairs.iter();
                assert!(pair.map(|p| p.sends.len() + p.receives.len()).sum::<usize>() <= slots);
                // No more are looked at than there are slots for.
                let logged = words(&bytes, head::LOGGED).min(LOG_RECORDS as u64);
                assert!(trace.torn <= slots as u64 + logged, "word {}", at / 8);
            }
        }
    }
    // A table that is longer than its object.
    let mut longer = bytes.clone();
    let at = (OBJECTS + HEADER + object::CAPACITY) * 8;
    longer[at..at + 8].copy_from_slice(&u64::to_ne_bytes(8));
    assert!(matches!(read(&longer), Ok(trace) if trace.queue_pairs.len() == 1));
    longer[at..at + 8].copy_from_slice(&u64::to_ne_bytes(16));
    assert!(matches!(read(&longer), Err(TraceError::Damaged { .. })));
    for len in (0..HEADER * 8).chain(OBJECTS * 8 - 9..bytes.len()) {
        assert!(read(&bytes[..len]).is_err(), "{len} bytes");
        assert!(load(&mut &bytes[..len]).is_err(), "{len} bytes");
    }
    assert!(matches!(read(&bytes[..bytes.len() - 1]), Err(TraceError::Truncated { .. })));
    assert!(matches!(read(&[]), Err(TraceError::NotATrace)));
    let mut other = bytes;
    other[head::VERSION * 8] ^= 0x10;
    assert!(matches!(read(&other), Err(TraceError::Version(_))));
}

#[test]
fn places_are_used_again_and_what_has_none_is_counted() {
    let file = TempTraceFile::new("full");
    let tracer = file.tracer();
    let used = || tracer.file.word(head::USED).load(core::sync::atomic::Ordering::Relaxed);
    let mut after_first = 0;
    for _ in 0..100 {
        let queue = tracer.pair(&SHAPE, None).unwrap();
        queue.posted(1, &posting(1, 0));
        tracer.forget(&queue);
        drop(queue);
        after_first = if after_first == 0 { used() } else { after_first };
        assert_eq!(used(), after_first);
    }
    // What was there before is gone.
    let _queue = tracer.pair(&SHAPE, None).unwrap();
    assert_eq!(file.trace().queue_pairs[0].sends, []);
    let shape = QueueProperties { number: 0x50, send_capacity: 1 << 23, ..SHAPE };
    assert!(tracer.pair(&shape, None).is_none());
    let trace = file.trace();
    assert_eq!((trace.left_out, trace.queue_pairs.len()), (1, 1));
}

#[test]
fn another_file_is_not_overwritten() {
    let file = TempTraceFile::new("another");
    std::fs::write(&file.0, "precious").unwrap();
    assert_eq!(Tracer::create(&file.0, 7).err(), Some(Errno::EXIST));
    assert_eq!(std::fs::read(&file.0).unwrap(), b"precious");
    std::fs::remove_file(&file.0).unwrap();
    file.tracer().log(EventKind::Open, (0, 0, 0), (0, 0), 0);
    // An old trace is.
    assert_eq!(
        file.tracer().file.word(head::LOGGED).load(core::sync::atomic::Ordering::Relaxed),
        0
    );
    let folder = file.0.join("no-folder");
    assert_eq!(Tracer::create(&folder, 7).err(), Some(Errno::NOTDIR));
}
