use std::os::fd::AsRawFd;

use super::*;

#[test]
fn what_has_no_length_beforehand_is_not_taken_for_empty() {
    let path = PathBuf::from("/proc/version");
    let entry = tree(std::slice::from_ref(&path)).unwrap().entries.pop().unwrap();
    assert_eq!(entry.len, 0, "the kernel tells it now");
    assert_eq!(entry.fault(&File::open(path).unwrap()).unwrap(), Some(OTHER_LENGTH));
    let (pipe, _writer) = std::io::pipe().unwrap();
    let path = PathBuf::from(format!("/proc/self/fd/{}", pipe.as_raw_fd()));
    let SourceTree { entries, left_out } = tree(&[path]).unwrap();
    assert!(entries.is_empty(), "{entries:?}");
    assert!(left_out[0].1.to_string().contains("rdma-conn pipe"), "{left_out:?}");
}

#[test]
fn a_link_is_copied_as_a_link_and_a_fifo_alone_is_left_out() {
    let folder = std::env::temp_dir().join(format!("copy-odd-{}", std::process::id()));
    let _ = std::fs::remove_dir_all(&folder);
    std::fs::create_dir_all(folder.join("sub")).unwrap();
    std::fs::write(folder.join("sub/file"), b"here").unwrap();
    let fifo = folder.join("sub/a fifo");
    rustix::fs::mkfifoat(rustix::fs::CWD, &fifo, rustix::fs::Mode::RWXU).unwrap();
    let links = ["sub", "nowhere"].map(|target| {
        let link = folder.join(format!("to {target}"));
        std::os::unix::fs::symlink(target, &link).unwrap();
        link
    });
    let of = |paths: &[PathBuf]| {
        let tree = tree(paths).unwrap();
        let entries = tree.entries.iter();
        let names = entries.map(|e| (String::from_utf8_lossy(&e.name).into_owned(), e.what));
        (names.collect::<Vec<_>>(), tree.left_out)
    };
    let (names, left_out) = of(&links);
    let expected = [("to sub", EntryKind::Link), ("to nowhere", EntryKind::Link)];
    assert!(names.iter().map(|(name, what)| (&**name, *what)).eq(expected), "{names:?}");
    assert!(left_out.is_empty());
    // What it leads to is asked for by a slash, as elsewhere.
    let (names, left_out) = of(&[folder.join("to sub/")]);
    let expected = [("to sub", EntryKind::Directory), ("to sub/file", EntryKind::File)];
    assert!(names.iter().map(|(name, what)| (&**name, *what)).eq(expected), "{names:?}");
    assert!(left_out.len() == 1 && left_out[0].0.ends_with("a fifo"), "{left_out:?}");
    assert!(tree(&[folder.join("neither")]).is_err());
    std::fs::remove_dir_all(&folder).unwrap();
}
