use rustix::event::{PollFd, PollFlags, Timespec, poll};

use super::super::returns::SlotReturns;
use super::*;

/// Its senders may wait for buffers that will not come.
#[test]
fn a_failed_pool_wakes_its_sleeping_receiver() {
    let device = crate::device::soft().unwrap();
    for reposting in Reposting::ALL {
        let (buffers, buffer_bytes) = (4, 64);
        let sizes =
            SharedConfig { buffers, buffer_bytes, max_peers: 1, reposting, repost_batch: 1 };
        let pool = SharedPool::new(&device, sizes).unwrap();
        let returns = SlotReturns::new(1, buffers).unwrap();
        let address = LinkAddress { returns: returns.clone(), place: 0 };
        let _member = pool.join(&address, Some(4)).unwrap();
        let inner = &pool.owner.inner;
        returns.wakeup().announce();
        // It is posted already.
        inner.post(&[0]);
        assert!(inner.failed.load(Ordering::SeqCst));
        let mut wakeup = [PollFd::new(returns.wakeup(), PollFlags::IN)];
        let woken = poll(&mut wakeup, Some(&Timespec { tv_sec: 0, tv_nsec: 0 })).unwrap();
        assert_eq!(woken, 1, "{reposting:?}");
    }
}

#[test]
fn pools_of_impossible_sizes_are_refused_before_they_are_made() {
    let device = crate::device::soft().unwrap();
    let reposting = Reposting::Combining;
    let fine = SharedConfig {
        buffers: 4,
        buffer_bytes: 64,
        max_peers: 1,
        reposting,
        repost_batch: u32::MAX,
    };
    SharedPool::new(&device, fine).unwrap();
    for (field, bad) in [
        ("buffers", SharedConfig { buffers: 0, ..fine }),
        ("buffers", SharedConfig { buffers: u32::MAX, ..fine }),
        ("buffers", SharedConfig { max_peers: 3, ..fine }),
        ("buffers", SharedConfig { max_peers: 1 << 20, ..fine }),
        ("buffer_bytes", SharedConfig { buffer_bytes: 0, ..fine }),
        ("buffer_bytes", SharedConfig { buffer_bytes: u32::MAX, ..fine }),
        ("max_peers", SharedConfig { max_peers: 0, ..fine }),
        ("max_peers", SharedConfig { max_peers: u32::MAX, ..fine }),
    ] {
        let ConnectError::Config(error) = SharedPool::new(&device, bad).unwrap_err() else {
            panic!("{bad:?}");
        };
        assert_eq!(error.field, field);
    }
}
