//! Processes with all that they have started.

use std::fs;
use std::process::Child;

use rustix::process::{Pid, Signal, kill_process};

/// Ends the processes that `child` has started, then `child` itself: an emulator that has
/// lost its parent is no longer found among its descendants.
pub(crate) fn end_tree(child: &mut Child) {
    for id in descendants(child.id()) {
        if let Some(pid) = Pid::from_raw(id as i32) {
            let _ = kill_process(pid, Signal::KILL);
        }
    }
    let _ = child.kill();
    let _ = child.wait();
}

/// The processes below `root`, from /proc.
fn descendants(root: u32) -> Vec<u32> {
    let of = |pid: u32| -> Vec<u32> {
        let threads = fs::read_dir(format!("/proc/{pid}/task")).into_iter().flatten().flatten();
        threads
            .filter_map(|thread| fs::read_to_string(thread.path().join("children")).ok())
            .flat_map(|list| {
                list.split_whitespace().filter_map(|id| id.parse().ok()).collect::<Vec<_>>()
            })
            .collect()
    };
    let mut all = of(root);
    let mut next = 0;
    while next < all.len() {
        all.extend(of(all[next]));
        next += 1;
    }
    all
}
