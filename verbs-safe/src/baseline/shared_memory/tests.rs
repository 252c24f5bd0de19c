use rustix::fs::{MemfdFlags, memfd_create};

use super::*;
use crate::limit;

/// The file of another one, as another process gets it.
fn other_end(messages: &SharedMessages) -> OwnedFd {
    messages.as_fd().try_clone_to_owned().unwrap()
}

#[test]
fn what_is_offered_is_copied() {
    let near = SharedMessages::new(4, 104).unwrap();
    let far = SharedMessages::open(other_end(&near), 4, 104).unwrap();
    let mut into = [0; 350];
    std::thread::scope(|scope| {
        scope.spawn(move || near.offer(1000, 3));
        far.take(0..1000, &mut into);
    });
    assert_eq!(into[..312], [7; 312]);
    assert_eq!(into[312..], [0; 38], "there is no room for a fourth");
}

#[test]
fn a_file_that_can_be_cut_off_or_is_too_short_is_refused() {
    for (slots, size) in [(4, 0), (4, 100), (0, 8), (usize::MAX, 8), (usize::MAX / 8, 8)] {
        let refused = SharedMessages::new(slots, size).unwrap_err();
        assert_eq!(refused, SharedMessagesError::Shape { slots, size });
    }
    let path = std::env::temp_dir().join(format!("shared-messages-{}", std::process::id()));
    let mut options = std::fs::File::options();
    let named = options.read(true).write(true).create_new(true).open(&path).unwrap();
    std::fs::remove_file(&path).unwrap();
    let unsealed = memfd_create("unsealed", MemfdFlags::CLOEXEC).unwrap();
    for file in [named.into(), unsealed] {
        limit::set_len(&file, 1 << 20).unwrap();
        let refused = SharedMessages::open(file, 4, 104).unwrap_err();
        assert_eq!(refused, SharedMessagesError::NotSealed);
    }
    let near = SharedMessages::new(4, 104).unwrap();
    let refused = SharedMessages::open(other_end(&near), 5, 104).unwrap_err();
    let (found, wanted) = (8192 + 416, 8192 + 520);
    assert_eq!(refused, SharedMessagesError::TooShort { found, wanted });
    assert!(rustix::fs::ftruncate(&near, 0).is_err(), "what is mapped stays as long");
}
