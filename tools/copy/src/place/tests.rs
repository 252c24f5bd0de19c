use super::*;

/// A directory of its own, removed in the end.
struct ScratchDirectory(std::path::PathBuf);

impl ScratchDirectory {
    fn new(name: &str) -> ScratchDirectory {
        let path = std::env::temp_dir().join(format!("{name}-{}", std::process::id()));
        std::fs::create_dir_all(&path).unwrap();
        ScratchDirectory(path)
    }
}

impl Drop for ScratchDirectory {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

#[test]
fn no_name_leads_out_of_the_directory() {
    let bad: [&[u8]; 9] =
        [b"", b"/", b"/etc/passwd", b"..", b"a/../b", b"a//b", b"a/", b"./a", b"a\0b"];
    for path in bad {
        assert!(names(path).is_err(), "{path:?}");
    }
    assert!(names(&[b'a'; 256]).is_err());
    let place = Root::open(&ScratchDirectory::new("copy-parts").0).unwrap().place(b"file").unwrap();
    assert!(names(format!("a/{}", place.partial_name()).as_bytes()).is_err());
    assert_eq!(names(b"a/b..c/...").unwrap(), [&b"a"[..], b"b..c", b"..."]);
}

#[test]
fn an_unwritable_directory_is_refused_with_a_remedy() {
    // No user can make directories there, not even root.
    let refused = format!("{:#}", Root::open(Path::new("/proc")).unwrap_err());
    assert!(refused.contains("nothing can be written to /proc"), "{refused}");
    assert!(refused.contains("choose another --into"), "{refused}");
    let full = std::io::Error::from_raw_os_error(Errno::NOSPC.raw_os_error());
    let full = anyhow::Error::from(full).context("writing");
    assert_eq!(remedy(&full), Some("make room there"));
    assert_eq!(remedy(&Errno::ROFS.into()), Some("have its file system mounted for writing"));
    assert_eq!(remedy(&Errno::ACCESS.into()), None, "a directory may be the only one");
    let scratch = ScratchDirectory::new("copy-probed");
    Root::open(&scratch.0).unwrap();
    assert_eq!(std::fs::read_dir(&scratch.0).unwrap().count(), 0, "something is left");
}

#[test]
fn what_takes_nothing_new_may_have_directories_that_do() {
    for errno in [Errno::ACCESS, Errno::PERM, Errno::MLINK] {
        assert_eq!(hopeless(errno), None, "{errno}");
    }
    for errno in [Errno::ROFS, Errno::NOSPC, Errno::DQUOT] {
        assert!(hopeless(errno).is_some(), "{errno}");
    }
    // Made by another process of the same number.
    let scratch = ScratchDirectory::new("copy-probed-twice");
    let theirs = scratch.0.join(format!(".{}{PARTIAL}", std::process::id()));
    std::fs::create_dir(&theirs).unwrap();
    Root::open(&scratch.0).unwrap();
    assert!(theirs.exists(), "it is not ours to remove");
}

#[test]
fn no_link_leads_out_of_the_directory() {
    let (inside, outside) =
        (ScratchDirectory::new("copy-inside"), ScratchDirectory::new("copy-outside"));
    let root = Root::open(&inside.0).unwrap();
    // As a sender would make them, or another process meanwhile.
    let target = outside.0.as_os_str().as_bytes();
    root.place(b"way").unwrap().make_link(target, false).unwrap();
    assert!(root.place(b"way/file").is_err(), "through a link");
    let place = root.place(b"file").unwrap();
    let partial = inside.0.join(place.partial_name());
    std::os::unix::fs::symlink(outside.0.join("stolen"), &partial).unwrap();
    assert!(place.open_partial().is_err(), "to where a link leads");
    assert!(root.place(b"way").unwrap().open().is_err(), "what a link leads to");
    assert!(root.place(b"way").unwrap().make_directory().is_err());
    assert!(root.place(b"way").unwrap().set_directory_mode(0o777).is_err());
    assert_eq!(std::fs::read_dir(&outside.0).unwrap().count(), 0);
}

#[test]
fn a_file_gets_its_name_when_nothing_has_it_or_by_force() {
    let scratch = ScratchDirectory::new("copy-names");
    let place = Root::open(&scratch.0).unwrap().place(b"file").unwrap();
    let path = scratch.0.join("file");
    let gather = |bytes: &[u8], force| {
        let (file, _claim) = place.open_partial()?;
        file.set_len(0)?;
        std::os::unix::fs::FileExt::write_all_at(&file, bytes, 0)?;
        place.finish(&file, 0o640, force)
    };
    gather(b"one", false).unwrap();
    assert!(gather(b"two", false).is_err());
    assert_eq!(std::fs::read(&path).unwrap(), b"one");
    gather(b"two", true).unwrap();
    assert_eq!(std::fs::read(&path).unwrap(), b"two");
    let (gathered, _claim) = place.open_partial().unwrap();
    assert!(place.open_partial().is_err(), "two copies gather it");
    // Locks or not.
    flock(&gathered, FlockOperation::Unlock).unwrap();
    assert!(place.open_partial().unwrap_err().to_string().contains(BUSY));
    // A partial file that was renamed meanwhile is neither finished nor removed by its name.
    let (name, aside) = (scratch.0.join(place.partial_name()), scratch.0.join("aside"));
    std::fs::rename(&name, &aside).unwrap();
    assert!(place.finish(&gathered, 0o640, true).is_err());
    std::fs::write(&name, b"another one's").unwrap();
    assert!(place.finish(&gathered, 0o640, true).is_err());
    place.abandon(&gathered);
    assert_eq!(std::fs::read(&name).unwrap(), b"another one's");
    std::fs::rename(&aside, &name).unwrap();
    place.abandon(&gathered);
    assert_eq!(std::fs::read_dir(&scratch.0).unwrap().count(), 1);
}

/// As a copy leaves it that ends between a link and the removal of the first name.
#[test]
fn what_has_its_final_name_is_not_gathered_in() {
    let scratch = ScratchDirectory::new("copy-linked");
    let place = Root::open(&scratch.0).unwrap().place(b"file").unwrap();
    let (path, partial) = (scratch.0.join("file"), scratch.0.join(place.partial_name()));
    std::fs::write(&path, b"whole").unwrap();
    std::fs::hard_link(&path, &partial).unwrap();
    let (file, _claim) = place.open_partial().unwrap();
    file.set_len(0).unwrap();
    assert_eq!(std::fs::read(&path).unwrap(), b"whole");
    assert!(place.finish(&file, 0o600, false).is_err(), "the name is taken");
}

#[test]
fn remaking_a_closed_directory_opens_it_until_its_mode_is_set() {
    let scratch = ScratchDirectory::new("copy-closed");
    let place = Root::open(&scratch.0).unwrap().place(b"closed").unwrap();
    place.make_directory().unwrap();
    let mode = || statat(&place.directory, "closed", AtFlags::empty()).unwrap().st_mode & 0o777;
    place.set_directory_mode(0o555).unwrap();
    assert_eq!(mode(), 0o555);
    place.make_directory().unwrap();
    assert_eq!(mode(), 0o755, "a user other than root makes nothing in it");
    place.set_directory_mode(0o555).unwrap();
}
