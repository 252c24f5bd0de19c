//! State of a checked process: what is alive in it, and what is reported when it ends.

use core::ffi::c_int;
use core::sync::atomic::{AtomicU32, Ordering};
use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::sync::{Arc, Weak};

use host::sync::{Mutex, OnceLock};

use crate::enums::{NamedEnum, named_enum};
use crate::per_process::{PerProcess, variable};

use super::claims::{AddressRange, OutstandingClaims};
use super::record::RecordFile;
use super::report::{CheckReport, ReportKind, number, write};

/// Names of objects in a line; those beyond are counted.
const NAMES: usize = 8;

named_enum! {
    /// Kinds of objects that a program creates, in the order in which it would destroy them.
    #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
    pub(crate) enum Object {
        AddressHandle = "address handle",
        QueuePair = "queue pair",
        SharedReceiveQueue = "shared receive queue",
        CompletionQueue = "completion queue",
        Channel = "completion channel",
        MemoryWindow = "memory window",
        MemoryRegion = "memory region",
        DeviceMemory = "device memory",
        XrcDomain = "XRC domain",
        ProtectionDomain = "protection domain",
        ThreadDomain = "thread domain",
        Context = "open context",
    }
}

impl Object {
    /// Returns the name that the program has for an object, if its number gives one.
    fn named(self, id: u64) -> Option<String> {
        match self {
            Object::QueuePair => Some(format!("QP {id:#x}")),
            Object::SharedReceiveQueue => Some(format!("SRQ {id}")),
            Object::CompletionQueue => Some(format!("CQ {id}")),
            Object::MemoryRegion => Some(format!("key {id:#x}")),
            _ => None,
        }
    }
}

/// Function that lists what an object that is alive has left undone.
pub(crate) type Leftovers = Box<dyn Fn() -> Vec<(ReportKind, String)> + Send + Sync>;

/// Objects that are alive, by kind and number. Those without numbers are counted under 0.
type Live = BTreeMap<(Object, u64), Alive>;

/// Objects of one kind and number.
#[derive(Default)]
struct Alive {
    count: u64,
    leftovers: Option<Leftovers>,
    /// First address and length of a region, in bytes.
    memory: Option<(u64, usize)>,
}

/// A queue of receive requests.
pub(crate) trait PostedReceives: Send + Sync {
    /// A region is deregistered: reports the requests that name it.
    fn deregistered(&self, key: u32);
}

/// State of a process that is checked.
pub(crate) struct Checker {
    pub(crate) report: CheckReport,
    claims: Mutex<OutstandingClaims>,
    /// The bytes of all regions that peers may write to.
    exposed: Mutex<OutstandingClaims>,
    live: Mutex<Live>,
    next_cq: AtomicU32,
    receives: Mutex<Vec<Weak<dyn PostedReceives>>>,
    fails: FailurePolicy,
}

/// Condition under which the process fails.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum FailurePolicy {
    Never,
    WithFindings,
    WithNotes,
}

/// The checker of the process.
static CHECKER: PerProcess<Arc<Checker>> = PerProcess::new();

/// The checker of this process, if its environment asks for one.
pub(crate) fn checker() -> Option<Arc<Checker>> {
    let fails = wanted()?;
    Some(CHECKER.get_or_make(|_| {
        act_at_exit();
        let checker = Arc::new(Checker::new(fails, RecordFile::named()));
        if let Some(value) = std::env::var_os(super::VARIABLE).filter(|value| !is_known(value)) {
            let advice = "write report, fail or strict, or 0 for no check";
            let value = value.to_string_lossy();
            write(&format!("{}={value} is taken for report: {advice}", super::VARIABLE));
        }
        checker
    }))
}

/// Reserves a handler for the end of the process, if its environment asks for checks. Handlers that
/// are registered later run before it, as they have to: it may end the process.
pub(crate) fn reserve_exit() {
    if wanted().is_some() {
        act_at_exit();
    }
}

fn act_at_exit() {
    // A child of fork has its parent's handler.
    static REGISTERED: OnceLock<()> = OnceLock::new();
    // SAFETY: the function stays: the library is never unloaded.
    REGISTERED.get_or_init(|| _ = unsafe { libc::atexit(at_exit) });
}

/// Returns the choice of the environment.
fn wanted() -> Option<FailurePolicy> {
    match variable(super::VARIABLE)?.as_encoded_bytes() {
        b"0" => None,
        b"fail" => Some(FailurePolicy::WithFindings),
        b"strict" => Some(FailurePolicy::WithNotes),
        _ => Some(FailurePolicy::Never),
    }
}

/// Reports whether a value is one that is defined.
fn is_known(value: &OsStr) -> bool {
    ["report", "1", "fail", "strict"].iter().any(|known| value == *known)
}

/// Reports what only the end shows. A child of fork that has opened no device has nothing to say.
extern "C" fn at_exit() {
    let Some(checker) = CHECKER.get() else { return };
    let (findings, notes) = checker.finish();
    let fails = match checker.fails {
        FailurePolicy::Never => false,
        FailurePolicy::WithFindings => findings > 0,
        FailurePolicy::WithNotes => findings + notes > 0,
    };
    if fails {
        // SAFETY: what the program has printed is written; its other handlers do not run.
        unsafe {
            libc::fflush(core::ptr::null_mut());
            libc::_exit(super::STATUS as c_int);
        }
    }
}

impl Checker {
    /// One that makes no process fail.
    #[cfg(test)]
    pub(super) fn of_a_test() -> Arc<Checker> {
        Arc::new(Checker::new(FailurePolicy::Never, RecordFile::default()))
    }

    fn new(fails: FailurePolicy, record: RecordFile) -> Checker {
        Checker {
            report: CheckReport::new(record),
            claims: Mutex::default(),
            exposed: Mutex::default(),
            live: Mutex::default(),
            next_cq: AtomicU32::new(1),
            receives: Mutex::default(),
            fails,
        }
    }

    /// The number of a new completion queue: they are counted from 1 on.
    pub(crate) fn next_cq(&self) -> u32 {
        // Relaxed: a number that guards no memory.
        self.next_cq.fetch_add(1, Ordering::Relaxed)
    }

    /// A queue of receive requests is created.
    pub(crate) fn made_receives(&self, receives: Weak<dyn PostedReceives>) {
        let mut all = self.receives.lock();
        all.retain(|other| other.strong_count() > 0);
        all.push(receives);
    }

    /// A region is deregistered: reports receive requests that name it.
    pub(crate) fn deregistered(&self, key: u32) {
        let all: Vec<_> = self.receives.lock().iter().filter_map(Weak::upgrade).collect();
        all.iter().for_each(|receives| receives.deregistered(key));
    }

    /// Claims the bytes that a request names; returns true if it shares some with another one, and
    /// either writes.
    pub(crate) fn claim(&self, all: &[AddressRange], writes: bool) -> bool {
        let mut claims = self.claims.lock();
        all.iter().fold(false, |shares, bytes| claims.add(*bytes, writes) | shares)
    }

    /// It is over.
    pub(crate) fn disclaim(&self, all: &[AddressRange], writes: bool) {
        let mut claims = self.claims.lock();
        all.iter().for_each(|bytes| claims.remove(*bytes, writes));
    }

    /// Reports whether these bytes are shared with another request, and one of both writes.
    pub(crate) fn is_contested(&self, all: &[AddressRange]) -> bool {
        let claims = self.claims.lock();
        all.iter().any(|bytes| claims.is_contested(*bytes))
    }

    /// From now on peers may write to these bytes, whatever other regions they are in.
    pub(crate) fn expose(&self, bytes: AddressRange) {
        self.exposed.lock().add(bytes, true);
        self.claims.lock().contest(bytes);
    }

    /// The region by which they might is gone.
    pub(crate) fn conceal(&self, bytes: AddressRange) {
        self.exposed.lock().remove(bytes, true);
    }

    /// Reports whether peers may write to some of these bytes.
    pub(crate) fn is_exposed(&self, all: &[AddressRange]) -> bool {
        let mut exposed = self.exposed.lock();
        all.iter().any(|bytes| exposed.has_any_of(*bytes))
    }

    /// An object is created. At exit, what it has left undone is asked for if it is alive.
    pub(crate) fn made(&self, object: Object, id: u64, leftovers: Option<Leftovers>) {
        let mut live = self.live.lock();
        let alive = live.entry((object, id)).or_default();
        alive.count += 1;
        if leftovers.is_some() {
            alive.leftovers = leftovers;
        }
    }

    /// A region that is alive has this memory.
    pub(crate) fn region_at(&self, key: u32, addr: u64, length: usize) {
        if let Some(alive) = self.live.lock().get_mut(&(Object::MemoryRegion, key.into())) {
            alive.memory = Some((addr, length));
        }
    }

    /// It is destroyed.
    pub(crate) fn gone(&self, object: Object, id: u64) {
        let mut live = self.live.lock();
        if let Some(alive) = live.get_mut(&(object, id)) {
            alive.count -= 1;
            if alive.count == 0 {
                live.remove(&(object, id));
            }
        }
    }

    /// Reports what is left, and sums up.
    pub(super) fn finish(&self) -> (u64, u64) {
        let live = core::mem::take(&mut *self.live.lock());
        for alive in live.values() {
            for (kind, text) in alive.leftovers.iter().flat_map(|all| all()) {
                self.report.say(kind, || text);
            }
        }
        let mut all: BTreeMap<Object, (u64, Vec<String>)> = BTreeMap::new();
        for (&(object, id), alive) in &live {
            let (sum, names) = all.entry(object).or_default();
            *sum += alive.count;
            names.extend(object.named(id).map(|name| alive.with_memory(name)));
        }
        for (object, (count, names)) in all {
            self.report.say(ReportKind::Leak, || leak(object, count, &names));
        }
        self.report.sum_up()
    }
}

impl Alive {
    /// A name, with the memory that it is of.
    fn with_memory(&self, name: String) -> String {
        match self.memory {
            None => name,
            Some((addr, length)) => {
                format!("{name} ({} at {addr:#x})", number(length as u64, "byte"))
            }
        }
    }
}

fn leak(object: Object, count: u64, names: &[String]) -> String {
    let were = if count == 1 { "was" } else { "were" };
    let what = format!("{} {were} never destroyed", number(count, object.name()));
    let what = if object == Object::Context { what.replace("destroyed", "closed") } else { what };
    match names.len() {
        0 => what,
        n @ ..=NAMES => format!("{what}: {}", names[..n].join(", ")),
        n => format!("{what}: {} and {} more", names[..NAMES].join(", "), n - NAMES),
    }
}

#[cfg(test)]
mod tests;
