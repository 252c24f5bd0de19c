use std::sync::mpsc::{TryRecvError, channel};

use super::*;

const ROOM: u32 = 4;

fn receive(wr_id: u64) -> PostedWr {
    PostedWr { wr_id, operation: "RECV", ..PostedWr::default() }
}

fn queue(checker: &Arc<Checker>, shared: Option<Arc<RecvAccount>>) -> (QpAccount, Arc<CqAccount>) {
    let cq = Arc::new(CqAccount::new(checker, ROOM));
    (QpAccount::new(checker, 1, [None, Some(Arc::clone(&cq))], shared), cq)
}

/// As many requests as the completion queue has room for are outstanding all the time, and one
/// is posted while a message takes another one.
#[test]
fn a_receive_that_is_taken_while_one_is_posted_counts_once() {
    let checker = Checker::of_a_test();
    let (queue, cq) = queue(&checker, None);
    let (posted, to_take) = channel();
    let (taken, to_poll) = channel();
    std::thread::scope(|scope| {
        let queue = &queue;
        scope.spawn(move || {
            for id in to_take {
                queue.arrive(&queue.receives, |posted| posted);
                if taken.send(id).is_err() {
                    return;
                }
            }
        });
        let post = |id| {
            queue.receives.post(receive(id));
            posted.send(id).unwrap();
        };
        (0..ROOM.into()).for_each(post);
        for id in ROOM.into()..20_000 {
            let taken = loop {
                cq.test();
                match to_poll.try_recv() {
                    Ok(taken) => break taken,
                    Err(err) => assert_eq!(err, TryRecvError::Empty),
                }
            };
            queue.retire_receive(taken, |_| ());
            post(id);
        }
        drop(posted);
    });
    drop(queue);
    assert_eq!(checker.finish(), (0, 0));
}

/// A shared queue's requests count at each completion queue, and once taken at one.
#[test]
fn a_shared_receive_counts_where_it_completes() {
    let checker = Checker::of_a_test();
    let shared = RecvAccount::new(&checker, "SRQ 1".into());
    let (first, first_cq) = queue(&checker, Some(Arc::clone(&shared)));
    (0..ROOM.into()).for_each(|id| shared.post(receive(id)));
    // Also at one that is added later.
    let (_second, second_cq) = queue(&checker, Some(Arc::clone(&shared)));
    first.arrive(&shared, |posted| posted);
    second_cq.add(1);
    second_cq.test();
    first_cq.test();
    assert_eq!(checker.finish(), (0, 0));
    first_cq.add(1);
    first_cq.test();
    second_cq.add(1);
    second_cq.test();
    assert_eq!(checker.finish(), (2, 0));
}
