//! Objects by their handles, as the contexts of one open device share them.
//!
//! A program knows an object by a struct, and `ibv_import_pd`, `ibv_import_mr` and `ibv_import_dm`
//! make further structs of the same one. What is destroyed through one of them has no handle any
//! more: the others can only be given back (`ibv_unimport_pd`, …). So that which destroys an object
//! is the one that takes it from here.

use core::sync::atomic::{AtomicUsize, Ordering};
use std::collections::{BTreeMap, HashMap};
use std::os::fd::{AsRawFd, OwnedFd, RawFd};
use std::sync::{Arc, Weak};

use parking_lot::Mutex;

use crate::objects::dm_memory::DmMemory;

/// The file of memory that a command descriptor is of: its filesystem, and its inode there.
pub(crate) type FileId = (u64, u64);

/// What the contexts of one open device share.
#[derive(Default)]
pub(crate) struct Handles {
    /// Protection domains: how many objects each has.
    pub(crate) pds: Table<AtomicUsize>,
    pub(crate) mrs: Table<Registration>,
    pub(crate) dms: Table<DmMemory>,
    /// The contexts' own descriptors.
    descriptors: Mutex<Vec<RawFd>>,
}

/// Those that are alive, by their files.
///
/// A hash map has no pointer to the start of its memory, which tools that look for leaks miss.
static OPEN: Mutex<BTreeMap<FileId, Weak<Handles>>> = Mutex::new(BTreeMap::new());

impl Handles {
    /// Those of the contexts that have this file, or new ones.
    pub(crate) fn of(file: FileId) -> Arc<Handles> {
        let mut open = OPEN.lock();
        if let Some(handles) = open.get(&file).and_then(Weak::upgrade) {
            return handles;
        }
        // The number of a file that is closed may become another's.
        open.retain(|_, handles| handles.strong_count() != 0);
        let handles = Arc::new(Handles::default());
        open.insert(file, Arc::downgrade(&handles));
        handles
    }
}

/// The command descriptor of a context.
pub(crate) struct Command {
    fd: OwnedFd,
    handles: Arc<Handles>,
}

impl Command {
    pub(crate) fn new(fd: OwnedFd, handles: &Arc<Handles>) -> Command {
        handles.descriptors.lock().push(fd.as_raw_fd());
        Command { fd, handles: Arc::clone(handles) }
    }

    /// Whether a context of these has this very descriptor, and closes it.
    pub(crate) fn is_in_use(fd: RawFd, handles: &Handles) -> bool {
        handles.descriptors.lock().contains(&fd)
    }
}

impl Drop for Command {
    fn drop(&mut self) {
        self.handles.descriptors.lock().retain(|fd| *fd != self.fd.as_raw_fd());
    }
}

/// Objects of one kind.
pub(crate) struct Table<T>(Mutex<HashMap<u32, Arc<T>>>);

impl<T> Default for Table<T> {
    fn default() -> Self {
        Table(Mutex::default())
    }
}

impl<T> Table<T> {
    pub(crate) fn insert(&self, handle: u32, object: Arc<T>) {
        self.0.lock().insert(handle, object);
    }

    pub(crate) fn get(&self, handle: u32) -> Option<Arc<T>> {
        self.0.lock().get(&handle).cloned()
    }

    /// Whether the object still has its handle.
    pub(crate) fn has(&self, handle: u32, object: &Arc<T>) -> bool {
        self.get(handle).is_some_and(|found| Arc::ptr_eq(&found, object))
    }

    /// Takes the object's handle away; whether it had it.
    pub(crate) fn take(&self, handle: u32, object: &Arc<T>) -> bool {
        let mut objects = self.0.lock();
        let had = objects.get(&handle).is_some_and(|found| Arc::ptr_eq(found, object));
        if had {
            objects.remove(&handle);
        }
        had
    }
}

/// A region that is registered; a program may have several structs of it. Its handle is its key.
pub(crate) struct Registration {
    pub(crate) key: u32,
    /// 0 of a null region.
    pub(crate) rkey: u32,
    /// The device memory that it is of.
    pub(crate) memory: Option<Arc<DmMemory>>,
    state: Mutex<Registered>,
}

/// What `ibv_rereg_mr` changes.
struct Registered {
    length: usize,
    /// Counts the objects of its protection domain.
    users: Arc<AtomicUsize>,
}

impl Registration {
    /// Counts one more region of the domain, and of the memory.
    pub(crate) fn new(
        (key, rkey): (u32, u32),
        length: usize,
        users: &Arc<AtomicUsize>,
        memory: Option<Arc<DmMemory>>,
    ) -> Arc<Registration> {
        users.fetch_add(1, Ordering::Relaxed);
        if let Some(memory) = &memory {
            memory.regions.fetch_add(1, Ordering::Relaxed);
        }
        let state = Mutex::new(Registered { length, users: Arc::clone(users) });
        Arc::new(Registration { key, rkey, memory, state })
    }

    pub(crate) fn length(&self) -> usize {
        self.state.lock().length
    }

    /// It has another length, and may be in another domain.
    pub(crate) fn change(&self, length: usize, users: Option<&Arc<AtomicUsize>>) {
        let mut state = self.state.lock();
        state.length = length;
        if let Some(users) = users {
            users.fetch_add(1, Ordering::Relaxed);
            let before = core::mem::replace(&mut state.users, Arc::clone(users));
            before.fetch_sub(1, Ordering::Release);
        }
    }

    /// It is deregistered: counted no more.
    pub(crate) fn end(&self) {
        self.state.lock().users.fetch_sub(1, Ordering::Release);
        if let Some(memory) = &self.memory {
            memory.regions.fetch_sub(1, Ordering::Release);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn contexts_of_one_file_share_them_while_one_is_open() {
        // No file has such a number.
        let file = (u64::MAX, 7);
        let first = Handles::of(file);
        first.pds.insert(1, Arc::default());
        let second = Handles::of(file);
        assert!(Arc::ptr_eq(&first, &second));
        assert!(!Arc::ptr_eq(&first, &Handles::of((u64::MAX, 8))));
        drop((first, second));
        assert!(Handles::of(file).pds.get(1).is_none(), "the number is another file's");
    }

    #[test]
    fn an_object_is_destroyed_once() {
        let table = Table::default();
        let (object, other) = (Arc::new(1), Arc::new(2));
        table.insert(7, Arc::clone(&object));
        assert!(!table.take(7, &other) && table.has(7, &object));
        assert!(table.take(7, &object));
        assert!(!table.take(7, &object) && !table.has(7, &object));
        table.insert(7, other);
        assert!(!table.take(7, &object), "the handle is another's");
    }
}
