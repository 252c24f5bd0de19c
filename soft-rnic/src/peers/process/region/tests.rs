use super::*;

/// A descriptor of this process as a peer would name it.
fn opened(file: &OwnedFd) -> Result<OwnedFd, Errno> {
    open_in(std::process::id() as i32, file.as_raw_fd() as u32, || true)
}

#[test]
fn a_file_is_not_taken_for_one_of_the_same_number() {
    use rustix::fs::{MemfdFlags, fcntl_add_seals, memfd_create};
    let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
    let memory = memfd_create("test", flags).unwrap();
    fcntl_add_seals(&memory, SealFlags::SHRINK).unwrap();
    let (files, id) = (Files::default(), FileId::from_fd(&memory).unwrap());
    assert!(files.descriptor(id).is_some());
    assert_eq!(files.descriptor(id.elsewhere()), None);
    files.release(id.inode());
    assert!(files.open.lock().is_empty(), "the other one counts for nothing");
}

#[test]
fn a_descriptor_of_a_peer_opens_memory_files_only() {
    use rustix::fs::{MemfdFlags, memfd_create};
    let memory = memfd_create("test", MemfdFlags::CLOEXEC).unwrap();
    assert!(opened(&memory).is_ok());
    let me = std::process::id() as i32;
    let gone = open_in(me, memory.as_raw_fd() as u32, || false);
    assert_eq!(gone.err(), Some(Errno::INVAL), "the number is another's");
    // To open it for writing and reading does something: it has a reader then.
    let dir = std::env::temp_dir().join(format!("soft-rnic-{me}"));
    rustix::fs::mkfifoat(rustix::fs::CWD, &dir, Mode::RWXU).unwrap();
    let look = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let fifo = rustix::fs::open(&dir, look, Mode::empty());
    std::fs::remove_file(&dir).unwrap();
    let named = std::fs::File::open("/dev/null").unwrap().into();
    for other in [fifo.unwrap(), named] {
        assert_eq!(opened(&other).err(), Some(Errno::INVAL));
    }
    let huge = MemfdFlags::CLOEXEC | MemfdFlags::HUGETLB;
    if let Ok(huge) = memfd_create("test", huge) {
        assert_eq!(opened(&huge).err(), Some(Errno::INVAL), "huge pages");
    }
}
