use super::*;
use rustix::fs::{MemfdFlags, ftruncate, memfd_create};
use rustix::mm::{MapFlags, ProtFlags, mmap};

const LIST: &str = "\
1000-3000 rw-p 00000000 00:00 0 [heap]
4000-8000 rw-s 00010000 00:01 77 /memfd:rdma-ring (deleted)
8000-c000 rw-s 00010000 00:01 77 /memfd:rdma-ring (deleted)
c000-d000 rw-s 00000000 00:01 78 /memfd:other (deleted)
d000-e000 r--s 00000000 00:01 78 /memfd:other (deleted)
";

#[test]
fn memory_is_found_in_one_piece_or_two_of_one_file() {
    let locate = |addr, len| pieces(addr, len, |at| Ok(Mapping::listed(LIST, at))).unwrap();
    let find = |addr, len| locate(addr, len).map(|(_, f)| (f.offset, f.split, f.second));
    assert_eq!(find(0x4010, 0x20), Some((0x10010, 0x20, 0)));
    assert_eq!(find(0x4000, 0x8000), Some((0x10000, 0x4000, 0x10000)));
    assert_eq!(find(0x1000, 0x10), None, "private");
    assert_eq!(find(0xb000, 0x2000), None, "two files");
    assert_eq!(find(0xd000, 0x10), None, "read-only");
    assert_eq!(find(0x3000, 0x2000), None, "a hole in front");
    assert_eq!(find(0xdff0, 0x20), None, "ends behind");
    assert_eq!(find(0x4000, 0x9000), None, "three pieces");
    assert_eq!(find(0x4000, 0), None, "nothing");
    let file = |addr| locate(addr, 1).map(|(file, _)| (file.device, file.inode));
    assert_eq!(file(0xc000), Some((1, 78)));
}

#[test]
fn the_kernel_says_of_an_address_what_its_list_says() {
    let page = rustix::param::page_size();
    // As long as a name can be.
    let name = "n".repeat(249);
    let file = memfd_create(name, MemfdFlags::CLOEXEC).unwrap();
    ftruncate(&file, 4 * page as u64).unwrap();
    let (both, read) = (ProtFlags::READ | ProtFlags::WRITE, ProtFlags::READ);
    let map = |prot, flags| {
        // SAFETY: a new mapping, which stays.
        let at = unsafe { mmap(core::ptr::null_mut(), page, prot, flags, &file, page as u64) };
        at.unwrap() as u64
    };
    let shared = map(both, MapFlags::SHARED);
    let others = [map(read, MapFlags::SHARED), map(both, MapFlags::PRIVATE), 0];
    let maps = std::fs::File::open(MAPS).unwrap().into();
    let list = std::fs::read_to_string(MAPS).unwrap();
    let all = [shared, shared + 1].map(|at| (at, true)).into_iter();
    for (at, is_shared) in all.chain(others.map(|at| (at, false))) {
        let listed = Mapping::listed(&list, at);
        assert_eq!(listed.is_some_and(|m| m.is_shared_memory), is_shared, "{at:x}");
        match query(&maps, at) {
            Ok(found) => assert_eq!(found, listed, "{at:x}"),
            // Older kernels do not know the question, sandboxes do not let it through;
            // but it is well put.
            Err(errno) => assert!(![Errno::FAULT, Errno::TOOBIG].contains(&errno), "{errno}"),
        }
    }
}
