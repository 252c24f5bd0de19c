use super::*;

/// A word in memory that a child of fork shares.
fn shared_word() -> &'static AtomicU32 {
    use rustix::mm::{MapFlags, ProtFlags, mmap_anonymous};
    let (prot, flags) = (ProtFlags::READ | ProtFlags::WRITE, MapFlags::SHARED);
    // SAFETY: a new mapping, which is never taken away.
    unsafe { &*mmap_anonymous(null_mut(), 4096, prot, flags).unwrap().cast() }
}

/// A process whose only thread the word is about, until `ends` returns there.
fn process(word: &'static AtomicU32, ends: impl FnOnce(Liveness)) -> libc::pid_t {
    // SAFETY: the word is never taken away.
    let liveness = unsafe { Liveness::new(word) };
    // SAFETY: the child makes a few system calls, and ends.
    let child = unsafe { libc::fork() };
    if child == 0 {
        liveness.begin();
        ends(liveness);
        // SAFETY: it ends the process, and runs nothing of it.
        unsafe { libc::_exit(0) };
    }
    child
}

fn wait_for(word: &AtomicU32, value: libc::pid_t) {
    while word.load(Ordering::Relaxed) != value as u32 {
        std::thread::yield_now();
    }
}

fn reap(child: libc::pid_t) {
    // SAFETY: a child of this thread's, which has no other one to wait for it.
    assert_eq!(unsafe { libc::waitpid(child, null_mut(), 0) }, child);
}

#[test]
fn the_word_of_a_process_that_was_killed_says_so() {
    let word = shared_word();
    // SAFETY: the call touches no memory.
    let child = process(word, |_liveness| _ = unsafe { libc::pause() });
    wait_for(word, child);
    // SAFETY: a child that was not reaped.
    assert_eq!(unsafe { libc::kill(child, libc::SIGKILL) }, 0);
    reap(child);
    assert_eq!(word.load(Ordering::Relaxed), OWNER_DIED);
}

#[test]
fn the_kernel_leaves_a_word_alone_that_was_given_back() {
    let word = shared_word();
    let child = process(word, drop);
    reap(child);
    assert_eq!(word.load(Ordering::Relaxed), child as u32);
}
