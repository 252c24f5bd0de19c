use super::*;
use core::sync::atomic::AtomicU64;

/// As long as a huge page.
struct Huge([AtomicU64; 1 << 18]);

// SAFETY: atomic integers.
unsafe impl SharedLayout for Huge {}

#[test]
fn a_file_of_huge_pages_is_not_mapped() {
    let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
    let sealed = |flags| {
        let file = rustix::fs::memfd_create("test", flags).ok()?;
        ftruncate(&file, size_of::<Huge>() as u64).ok()?;
        fcntl_add_seals(&file, SealFlags::SHRINK).ok()?;
        Some(file)
    };
    let plain = Mapped::<Huge>::open(&sealed(flags).unwrap()).unwrap();
    assert_eq!(plain.0[7].load(core::sync::atomic::Ordering::Relaxed), 0);
    // Pages of 2 MiB, if there are any.
    if let Some(huge) = sealed(flags | MemfdFlags::HUGETLB) {
        assert_eq!(Mapped::<Huge>::open(&huge).err(), Some(Errno::INVAL));
    }
}
