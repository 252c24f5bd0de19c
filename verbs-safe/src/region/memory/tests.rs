use super::*;

#[test]
fn lengths_are_whole_pages_and_the_memory_is_zero() {
    let mapping = Mapping::new(1).unwrap();
    assert_eq!(mapping.len(), page_bytes());
    // SAFETY: the mapping is that long, and no other code uses it.
    let bytes = unsafe { std::slice::from_raw_parts(mapping.base().as_ptr(), mapping.len()) };
    assert!(bytes.iter().all(|b| *b == 0));
}

#[test]
fn memory_is_zero_again_whatever_was_there_before() {
    let len = 5 * page_bytes();
    for _ in 0..100 {
        let mapping = Mapping::new(len).unwrap();
        // SAFETY: the mapping is that long, and nothing else has it.
        let bytes = unsafe { std::slice::from_raw_parts_mut(mapping.base().as_ptr(), len) };
        assert!(bytes.iter().all(|byte| *byte == 0));
        bytes.fill(7);
    }
}

/// Runs `act` in a child of fork; returns true if it succeeded.
fn in_a_child(act: impl FnOnce() -> bool) -> bool {
    // SAFETY: the child takes no lock of another thread but the allocator's, which
    // the system's library keeps usable, and leaves without running destructors.
    unsafe {
        let child = libc::fork();
        if child == 0 {
            libc::_exit(i32::from(!act()));
        }
        let mut status = 0;
        assert_eq!(libc::waitpid(child, &mut status, 0), child);
        status == 0
    }
}

#[test]
fn what_a_child_drops_stays_its_parents() {
    let mapping = std::mem::ManuallyDrop::new(Mapping::new(1).unwrap());
    // SAFETY: the mapping is that long, and no other code uses it.
    unsafe { mapping.base().as_ptr().write_volatile(7) };
    // SAFETY: the child has a copy of the value, which is dropped once there.
    let copy = || drop(unsafe { std::ptr::read(&raw const *mapping) });
    assert!(in_a_child(|| {
        copy();
        true
    }));
    // SAFETY: `mapping` is that long, and no other code uses it: the child has ended.
    assert_eq!(unsafe { mapping.base().as_ptr().read_volatile() }, 7);
    drop(std::mem::ManuallyDrop::into_inner(mapping));
}

#[test]
fn a_child_does_not_unmap_a_later_mapping_at_the_same_place() {
    let mapping = std::mem::ManuallyDrop::new(Mapping::new(1).unwrap());
    assert!(in_a_child(|| {
        let (at, len) = (mapping.base().as_ptr(), mapping.len());
        let (protection, flags) = (ProtFlags::READ, MapFlags::PRIVATE);
        // SAFETY: a mapping at a place where there is none; it is read after the value
        // was dropped that had another one there in the parent.
        unsafe {
            let since = mmap_anonymous(at.cast(), len, protection, flags).unwrap();
            drop(std::ptr::read(&raw const *mapping));
            since == at.cast() && madvise(since, len, Advice::Normal).is_ok()
        }
    }));
    drop(std::mem::ManuallyDrop::into_inner(mapping));
}

#[test]
fn a_child_takes_no_new_memory_out_of_its_parents_file() {
    let ours = Mapping::new(1).unwrap();
    // The child knows the places that were taken until now, as its parent does: both
    // would take the next one.
    assert!(in_a_child(|| Mapping::new(1).unwrap().piece.is_none()));
    assert!(ours.piece.is_some(), "there is a file, where the tests run");
}

#[test]
fn huge_pages_are_mapped_or_their_lack_is_an_error() {
    match Mapping::with_pages(1, Pages::Huge2M) {
        Ok(mapping) => assert_eq!(mapping.len(), 2 << 20),
        Err(error) => assert_eq!(error.errno, Errno::ENOMEM),
    }
}

#[test]
fn a_length_beyond_the_address_space_is_refused() {
    for bytes in [usize::MAX, usize::MAX - 4096, 1 << 60] {
        assert_eq!(Mapping::new(bytes).unwrap_err().bytes, bytes);
    }
}

#[test]
fn nothing_is_mapped_as_one_page() {
    assert_eq!(Mapping::new(0).unwrap().len(), page_bytes());
}
