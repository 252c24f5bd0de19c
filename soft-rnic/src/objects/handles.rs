//! Objects by their handles, as the contexts of one open device share them.
//!
//! A program knows an object by a struct, and `ibv_import_pd`, `ibv_import_mr` and `ibv_import_dm`
//! make further structs of the same one. What is destroyed through one of them has no handle any
//! more, and the others can only be given back (`ibv_unimport_pd`, …). That it has ended is known
//! by what its structs share: its [`Users`], or its [`MrRegistration`].

use core::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::collections::{BTreeMap, HashMap};
use std::os::fd::{AsRawFd, OwnedFd, RawFd};
use std::sync::{Arc, Weak};

use host::sync::{Mutex, MutexGuard};
use rustix::io::Errno;

use crate::alloc::OutOfMemory;
use crate::errno;
use crate::objects::dm_memory::DmMemory;
use crate::objects::users::Users;

/// The file of memory that a command descriptor is of: its filesystem, and its inode there.
pub(crate) type CommandFileId = (u64, u64);

/// State that the contexts of one open device share.
#[derive(Default)]
pub(crate) struct Handles {
    /// Protection domains: the objects in each.
    pub(crate) pds: HandleTable<Users>,
    pub(crate) mrs: HandleTable<MrRegistration>,
    pub(crate) dms: HandleTable<DmMemory>,
    /// The events of their port, which a plan of faults has, are armed.
    pub(crate) has_port_events: AtomicBool,
    /// A plan of faults has said that the port is down.
    pub(crate) is_port_down: AtomicBool,
    /// The contexts' own descriptors.
    descriptors: Mutex<Vec<RawFd>>,
}

/// Those that are alive, by their files.
///
/// A hash map has no pointer to the start of its memory, which tools that look for leaks miss.
static OPEN: Mutex<BTreeMap<CommandFileId, Weak<Handles>>> = Mutex::new(BTreeMap::new());

impl Handles {
    /// Those of the contexts that have this file, or new ones.
    pub(crate) fn for_file(file: CommandFileId) -> Arc<Handles> {
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
pub(crate) struct CommandFd {
    fd: OwnedFd,
    handles: Arc<Handles>,
}

impl CommandFd {
    pub(crate) fn new(fd: OwnedFd, handles: &Arc<Handles>) -> CommandFd {
        handles.descriptors.lock().push(fd.as_raw_fd());
        CommandFd { fd, handles: Arc::clone(handles) }
    }

    /// Reports whether a context of these has this very descriptor, and will close it.
    pub(crate) fn is_in_use(fd: RawFd, handles: &Handles) -> bool {
        handles.descriptors.lock().contains(&fd)
    }
}

impl Drop for CommandFd {
    fn drop(&mut self) {
        self.handles.descriptors.lock().retain(|fd| *fd != self.fd.as_raw_fd());
    }
}

/// Objects of one kind.
pub(crate) struct HandleTable<T>(Mutex<HashMap<u32, Arc<T>>>);

impl<T> Default for HandleTable<T> {
    fn default() -> Self {
        HandleTable(Mutex::default())
    }
}

impl<T> HandleTable<T> {
    /// Room for one more object. No other one is added or removed until it is used, or dropped.
    pub(crate) fn room(&self) -> Result<TableRoom<'_, T>, OutOfMemory> {
        let mut objects = self.0.lock();
        objects.try_reserve(1).map_err(|_| OutOfMemory)?;
        Ok(TableRoom(objects))
    }

    pub(crate) fn get(&self, handle: u32) -> Option<Arc<T>> {
        self.0.lock().get(&handle).cloned()
    }

    /// Takes a handle away.
    pub(crate) fn remove(&self, handle: u32) {
        self.0.lock().remove(&handle);
    }
}

/// Room in a table.
pub(crate) struct TableRoom<'t, T>(MutexGuard<'t, HashMap<u32, Arc<T>>>);

impl<T> TableRoom<'_, T> {
    pub(crate) fn insert(mut self, handle: u32, object: Arc<T>) {
        self.0.insert(handle, object);
    }
}

/// A region that is registered; a program may have several structs of it. Its handle is its key.
///
/// ```text
///                 ibv_rereg_mr
///                 ┌────────┐
///                 v        │        ibv_dereg_mr
///   new ──────> registered ┴──────────────────────> ended
/// ```
///
/// Only a [`KeyChange`] makes the key valid or invalid, and there is one at a time. There is none
/// after the end, through whichever struct.
pub(crate) struct MrRegistration {
    pub(crate) key: u32,
    /// 0 of a null region.
    pub(crate) rkey: u32,
    /// The device memory that it is of.
    pub(crate) memory: Option<Arc<DmMemory>>,
    /// Length of the memory that was registered last.
    length: AtomicUsize,
    /// Counts the objects of its protection domain; none when it has ended. A change has the lock.
    users: Mutex<Option<Arc<Users>>>,
}

/// The right to change a region's key, and whether it is valid.
pub(crate) struct KeyChange<'r> {
    registration: &'r MrRegistration,
    users: MutexGuard<'r, Option<Arc<Users>>>,
}

impl MrRegistration {
    /// One that its domain and its memory count already.
    pub(crate) fn new(
        (key, rkey): (u32, u32),
        length: usize,
        users: &Arc<Users>,
        memory: Option<Arc<DmMemory>>,
    ) -> Arc<MrRegistration> {
        let (length, users) = (AtomicUsize::new(length), Mutex::new(Some(Arc::clone(users))));
        Arc::new(MrRegistration { key, rkey, memory, length, users })
    }

    pub(crate) fn length(&self) -> usize {
        // Relaxed: what a struct says of the region, and no check relies on.
        self.length.load(Ordering::Relaxed)
    }

    /// Begins a change. As in the kernel, `EBUSY` while there is another one, which may wait for
    /// other processes, and `ENOENT` when the region was deregistered.
    pub(crate) fn change(&self) -> Result<KeyChange<'_>, Errno> {
        let users = self.users.try_lock().ok_or(errno::EBUSY)?;
        if users.is_none() {
            return Err(errno::ENOENT);
        }
        Ok(KeyChange { registration: self, users })
    }
}

impl KeyChange<'_> {
    pub(crate) fn key(&self) -> u32 {
        self.registration.key
    }

    /// The region has another length, and may be in another domain, which counts it already.
    pub(crate) fn registered(mut self, length: usize, users: Option<&Arc<Users>>) {
        self.registration.length.store(length, Ordering::Relaxed);
        if let Some(users) = users
            && let Some(before) = self.users.replace(Arc::clone(users))
        {
            before.leave();
        }
    }

    /// The region is deregistered: counted no more, and never changed again.
    pub(crate) fn end(mut self) {
        if let Some(users) = self.users.take() {
            users.leave();
        }
        if let Some(memory) = &self.registration.memory {
            memory.regions.leave();
        }
    }
}

#[cfg(test)]
mod tests;
