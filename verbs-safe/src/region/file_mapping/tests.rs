use rustix::fs::{MemfdFlags, memfd_create};

use super::*;

#[test]
fn files_in_memory_and_their_page_size_are_recognized() {
    let memory = FilePages::for_file(&memfd_create("small", MemfdFlags::CLOEXEC).unwrap()).unwrap();
    assert!(memory.in_memory);
    assert_eq!(memory.bytes, page_bytes());
    let other = FilePages::for_file(&std::fs::File::open("/proc/self/status").unwrap()).unwrap();
    assert!(!other.in_memory);
    // A kernel without huge pages has no such files.
    let Ok(huge) = memfd_create("huge", MemfdFlags::CLOEXEC | MemfdFlags::HUGETLB) else {
        return;
    };
    let huge = FilePages::for_file(&huge).unwrap();
    assert!(huge.in_memory);
    assert!(huge.bytes > page_bytes() && huge.bytes.is_power_of_two(), "{}", huge.bytes);
}
