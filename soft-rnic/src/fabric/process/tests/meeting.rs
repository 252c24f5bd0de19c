//! The meeting of the processes that use multicast groups: the threads that wait for it. Each test
//! has a device of its own, with a slot of its own.

use std::sync::mpsc::channel;

use super::*;
use crate::objects::state::ExecutionMode;
use crate::peers::process::multicast::Next;
use crate::peers::process::names::SocketNames;
use crate::peers::process::rendezvous::LocalProcess;
use crate::peers::process::serving::Serving;
use crate::queues::address::MULTICAST_QPN;

const LONG: Duration = Duration::from_secs(60);

/// A slot that no made-up peer has: it may be met by the device of other tests.
fn claim() -> LocalProcess {
    LocalProcess::claim(&SocketNames::default(), slot(200).into(), 8).unwrap()
}

fn new_device() -> Arc<Device> {
    let device = Device::new("test", 0, ExecutionMode::Synchronous);
    assert!(peers(&device).here.set(Ok(claim())).is_ok());
    device
}

fn peers(device: &Device) -> &PeerProcesses {
    device.peers.as_ref().unwrap()
}

/// A process that takes part, and answers nothing.
fn silent() -> LocalProcess {
    let here = claim();
    here.marker.show().unwrap();
    here
}

/// Posts a message to a group without members.
fn post(qp: &Arc<Qp>) {
    let mut attr = ibv_ah_attr { is_global: 1, port_num: 1, ..ibv_ah_attr::default() };
    attr.grh.dgid.raw = [0xff, 0x0e, 0, 0, 0, 0, 0, 0, 0, 2, 0, 0, 0, 0, 0, 1];
    // SAFETY: the domain is alive, and so are the attributes; a request without a list, on a queue
    // pair that is alive.
    unsafe {
        let ah = (crate::table().create_ah)((*qp.as_abi()).pd, &mut attr);
        let mut wr: ibv_send_wr = core::mem::zeroed();
        wr.opcode = ibv_wr_opcode::IBV_WR_SEND;
        wr.send_flags = ibv_send_flags::IBV_SEND_SIGNALED.0;
        let (remote_qpn, remote_qkey) = (MULTICAST_QPN, 1);
        wr.wr.ud = ibv_send_wr__bindgen_ty_2__bindgen_ty_3 { ah, remote_qpn, remote_qkey };
        assert_eq!(ibv_post_send(qp.as_abi(), &mut wr, &mut null_mut()), 0);
    }
}

/// A datagram queue pair for messages to groups.
fn datagrams(device: &Arc<Device>) -> Arc<Qp> {
    connected_on(device, ibv_qp_type::IBV_QPT_UD, 0, 0xf)
}

/// Waits for the completion of a message.
fn completes(qp: &Arc<Qp>) {
    let start = host::time::now();
    while statuses(qp).is_empty() {
        assert!(host::time::since(start) < LONG);
        host::thread::yield_now();
    }
}

#[test]
fn a_serving_thread_leaves_a_meeting_to_another_one() {
    let device = new_device();
    let (qp, _silent) = (datagrams(&device), silent());
    // No process is met before it is let go.
    let rendezvous = peers(&device).rendezvous.lock();
    let (report, reports) = channel();
    let poster = Arc::clone(&qp);
    std::thread::spawn(move || {
        let _serving = Serving::begin();
        post(&poster);
        let _ = report.send(statuses(&poster));
    });
    assert_eq!(reports.recv_timeout(LONG), Ok(vec![]), "the message waits, and not its thread");
    assert!(!peers(&device).participation.has_met.load(Ordering::Acquire));
    drop(rendezvous);
    completes(&qp);
    assert!(peers(&device).participation.has_met.load(Ordering::Acquire));
}

#[test]
fn without_a_thread_that_may_wait_messages_are_tried_again() {
    let device = new_device();
    let qp = datagrams(&device);
    let reserve = || peers(&device).workers.reserve(std::process::id().cast_signed());
    let taken: Vec<_> = core::iter::from_fn(reserve).collect();
    {
        let _serving = Serving::begin();
        post(&qp);
    }
    assert_eq!(statuses(&qp), []);
    drop(taken);
    // By the timer.
    completes(&qp);
}

/// It may be the thread that holds the meeting: what it takes in resumes messages.
#[test]
fn messages_posted_during_a_meeting_wait_for_its_end() {
    let device = new_device();
    let qps = [datagrams(&device), datagrams(&device)];
    assert!(peers(&device).participation.begin());
    for qp in &qps {
        post(qp);
        post(qp);
        assert_eq!(statuses(qp), []);
    }
    let mut deferred = DeferredWork::default();
    assert_eq!(device.hold_meeting(peers(&device), &mut deferred), Ok(()));
    deferred.run();
    for qp in &qps {
        assert_eq!(statuses(qp), [SUCCESS; 2]);
    }
}

#[test]
fn an_attachment_waits_for_a_meeting_or_takes_it_over() {
    for has_met in [true, false] {
        let device = new_device();
        assert!(peers(&device).participation.begin());
        let (attacher, (report, reports)) = (Arc::clone(&device), channel());
        std::thread::spawn(move || {
            let result = attacher.take_part();
            let _ = report
                .send((result, peers(&attacher).participation.has_met.load(Ordering::Acquire)));
        });
        // One that does not wait reports now, most likely.
        for _ in 0..1_000 {
            assert!(reports.try_recv().is_err());
            host::thread::yield_now();
        }
        peers(&device).participation.end(has_met, None);
        assert_eq!(reports.recv_timeout(LONG), Ok((Ok(()), true)));
    }
}

#[test]
fn messages_begin_no_meeting_soon_after_a_failed_one() {
    let device = new_device();
    let participation = &peers(&device).participation;
    assert_eq!(participation.begin_for(1), Next::Begins);
    assert_eq!(participation.begin_for(2), Next::Waits);
    let rest = host::time::now() + LONG;
    assert_eq!(participation.end(false, Some(rest)).into_iter().collect::<Vec<_>>(), [1, 2]);
    assert_eq!(participation.begin_for(1), Next::GoesOn);
    // An attachment does.
    assert!(participation.begin());
    assert_eq!(participation.begin_for(1), Next::Waits);
    assert!(participation.end(true, None).contains(&1));
    assert!(!participation.begin() && participation.is_settled());
    assert_eq!(participation.begin_for(1), Next::GoesOn);
}
