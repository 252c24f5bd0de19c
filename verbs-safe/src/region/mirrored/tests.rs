use super::*;

#[test]
fn a_byte_written_in_one_copy_is_read_in_the_other() {
    let mirrored = Mirrored::new(5000).unwrap();
    let (base, capacity) = (mirrored.base().as_ptr(), mirrored.capacity());
    // SAFETY: the offsets lie within both copies, and no other code uses the memory.
    unsafe {
        base.add(3).write_volatile(7);
        base.add(2 * capacity - 1).write_volatile(9);
        assert_eq!(base.add(capacity + 3).read_volatile(), 7);
        assert_eq!(base.add(capacity - 1).read_volatile(), 9);
    }
}

#[test]
fn the_memory_cannot_be_cut_off_through_its_descriptor() {
    let mirrored = Mirrored::new(4096).unwrap();
    assert!(rustix::fs::ftruncate(&mirrored, 0).is_err());
}

#[test]
fn a_size_that_cannot_be_had_says_which_step_failed() {
    assert_eq!(Mirrored::new(usize::MAX / 2).unwrap_err().step, "mirroring");
    let huge = Mirrored::new(1 << 50).unwrap_err();
    assert!(huge.to_string().contains("mirror"), "{huge}");
}

#[test]
fn huge_pages_are_mapped_or_their_lack_is_an_error() {
    match Mirrored::with_pages(1, Pages::Huge2M) {
        Ok(mirrored) => assert_eq!(mirrored.len(), 4 << 20),
        Err(error) => assert_eq!(error.errno, Errno::ENOMEM, "{error}"),
    }
}
