//! Where the system has no memory, the set-up of a queue pair is a typed error. One test: it limits its process.
//!
//! Only on soft0: the memory of a card's queues is not all the process's.

mod common;

use common::context;
use verbs_safe::*;

/// Limits what this process maps to `more` bytes beyond what it has, or ends the limit.
fn limit(more: Option<u64>) {
    let statm = std::fs::read_to_string("/proc/self/statm").unwrap();
    let pages: u64 = statm.split(' ').next().unwrap().parse().unwrap();
    let rlim_cur = more.map_or(libc::RLIM_INFINITY, |more| pages * 4_096 + more);
    let limit = libc::rlimit { rlim_cur, rlim_max: libc::RLIM_INFINITY };
    // SAFETY: a limit of this process.
    assert_eq!(unsafe { libc::setrlimit(libc::RLIMIT_AS, &raw const limit) }, 0);
}

#[test]
fn a_queue_pair_for_which_there_is_no_memory_is_an_error() {
    const MOST: usize = 1_000;
    const DEPTH: u32 = 8_192;
    let context = context();
    let pd = context.alloc_pd().unwrap();
    let make = || -> Result<_, Box<dyn std::error::Error>> {
        let cq = context.create_cq(CqConfig::new(2 * DEPTH))?;
        let config = QueuePairConfig {
            max_send_wr: DEPTH,
            send_slots: 1,
            send_slot_bytes: 8,
            recv: RecvSide::Own { slots: DEPTH, slot_bytes: 8 },
            ..QueuePairConfig::new(&cq, &cq)
        };
        Ok(pd.create_qp(&config, ())?)
    };
    let mut made = Vec::with_capacity(MOST);
    limit(Some(24 << 20));
    let error = loop {
        match make() {
            Ok(qp) if made.len() < MOST => made.push(qp),
            Ok(_) => break None,
            Err(error) => break Some(error),
        }
    };
    limit(None);
    let error = error.expect("memory ends").to_string();
    let no_memory = std::io::Error::from_raw_os_error(libc::ENOMEM).to_string();
    let no_memory = no_memory.split(" (").next().unwrap();
    assert!(error.contains(no_memory), "{error}");
    drop(made);
    make().unwrap();
}
