use super::*;

use core::ptr::null_mut;

use rustix::mm::{MapFlags, ProtFlags, mmap_anonymous};

#[test]
fn pages_are_there_when_they_were_written_to() {
    const N: usize = AT_ONCE + 3;
    let (page, prot) = (rustix::param::page_size(), ProtFlags::READ | ProtFlags::WRITE);
    // SAFETY: a new mapping, which stays.
    let at = unsafe { mmap_anonymous(null_mut(), N * page, prot, MapFlags::PRIVATE) }.unwrap();
    let addr = at.expose_provenance();
    // SAFETY: in the mapping, which no other thread knows.
    let write = |nth: usize| unsafe { at.cast::<u8>().add(nth * page).write(1) };
    // A huge page would bring others.
    // SAFETY: nothing but its kind changes.
    unsafe { rustix::mm::madvise(at, N * page, rustix::mm::Advice::LinuxNoHugepage) }.unwrap();
    let look = |from: usize, len: usize| are_present(addr + from, len, true);
    assert_eq!((look(0, 1), look(5, 0)), (Some(false), Some(true)));
    (0..N - 1).for_each(write);
    assert_eq!(look(1, (N - 1) * page - 1), Some(true));
    assert_eq!(look(1, (N - 1) * page), Some(false));
    write(N - 1);
    assert_eq!(look(0, N * page), Some(true));
    assert!(is_there(IS_PRESENT | IS_WRITE_PROTECTED, false));
    assert!(!is_there(IS_PRESENT | IS_WRITE_PROTECTED, true));
}
