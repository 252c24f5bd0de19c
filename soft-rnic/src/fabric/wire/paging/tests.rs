use super::*;

/// A page of this process that was never written to.
fn page() -> MemSpan<'static> {
    use rustix::mm::{MapFlags, ProtFlags, mmap_anonymous};
    let (len, prot) = (rustix::param::page_size(), ProtFlags::READ | ProtFlags::WRITE);
    // SAFETY: a new mapping, which stays.
    unsafe {
        let at = mmap_anonymous(core::ptr::null_mut(), len, prot, MapFlags::PRIVATE).unwrap();
        MemSpan::shared(at.cast(), len)
    }
}

fn is_over(asked: &Option<Arc<PendingPages>>) -> bool {
    asked.as_ref().is_some_and(|asked| asked.is_there.get().is_some())
}

#[test]
fn a_peer_that_occupies_its_threads_has_no_more_pages_brought() {
    let (workers, mut asked) = (Arc::<Workers>::default(), None);
    let occupied: Vec<_> = core::iter::from_fn(|| workers.reserve(1)).collect();
    let page = page();
    let look = |asked: &mut _, peer| {
        Paging { asked, workers: &workers, peer, resumes: None }.look(&[page], true)
    };
    assert_eq!((look(&mut asked, 1), asked.is_none()), (Presence::Unknown, true));
    // Another one's are.
    let mut others = None;
    assert_eq!((look(&mut others, 2), others.is_some()), (Presence::Unknown, true));
    while !is_over(&others) {
        host::thread::yield_now();
    }
    assert_eq!(look(&mut others, 2), Presence::There);
    drop(occupied);
    assert_eq!(look(&mut asked, 1), Presence::There);
}

#[test]
fn pages_of_a_long_request_are_not_looked_at_together() {
    let mut bytes = vec![1_u8; LOOKED_AT + 1];
    let all = MemSpan::from_slice(&mut bytes);
    let most = all.first(LOOKED_AT);
    assert_eq!(look_at(&[most], true), are_present(most.ptr().addr(), LOOKED_AT, true));
    assert_eq!(look_at(&[all], true), None);
}

/// All packets of a request learn of a page that has gone, whichever has asked.
#[test]
fn what_has_gone_is_known_of_each_part() {
    let (workers, mut asked) = (Arc::<Workers>::default(), None);
    let page = page();
    // SAFETY: the page of the mapping, which nothing accesses.
    unsafe {
        let none = rustix::mm::MprotectFlags::empty();
        rustix::mm::mprotect(page.ptr().cast(), page.len(), none).unwrap();
    }
    let mut look = |part: MemSpan<'static>| {
        let mut paging = Paging { asked: &mut asked, workers: &workers, peer: 1, resumes: None };
        let presence = paging.look_for(&[part], || vec![page], true);
        while paging.asked.as_ref().is_some_and(|asked| asked.is_there.get().is_none()) {
            host::thread::yield_now();
        }
        presence
    };
    assert_eq!(look(page.first(64)), Presence::Unknown);
    assert_eq!(look(page.first(32)), Presence::Gone);
}

#[test]
fn one_request_at_a_time_has_its_pages_brought() {
    let (workers, mut asked) = (Arc::<Workers>::default(), None);
    let (first, second) = (page(), page());
    let never = Needed::from_spans(&[first], true);
    asked.replace(Arc::new(PendingPages { needed: never, is_there: OnceLock::new() }));
    let mut paging = Paging { asked: &mut asked, workers: &workers, peer: 1, resumes: None };
    assert_eq!(paging.look(&[second], true), Presence::Unknown);
    assert_eq!((workers.threads(), asked.is_some()), (0, true));
}
