use rdma_conn::send_recv::SendError;

use super::*;

fn side(sent: u64, received: u64) -> SideWork {
    let now = Instant::now();
    SideWork { start: now, end: now, received, sent, work: Work::default(), busy: None }
}

#[test]
fn what_did_not_arrive_is_a_failure() {
    let sum = |sent, received| SideWork::sum(vec![Ok(side(sent, 0)), Ok(side(0, received))]);
    assert_eq!(sum(5, 5).unwrap().delivered(true).unwrap(), 5);
    assert!(sum(5, 4).unwrap().delivered(true).is_err());
    assert!(sum(4, 5).unwrap().delivered(true).is_err());
    assert_eq!(side(5, 0).delivered(false).unwrap(), 5, "the other end is elsewhere");
}

#[test]
fn the_cause_is_named_and_not_what_followed_from_it() {
    let stopped = || Err(SendError::Ended(CloseReason::PeerClosed { unacked: 3 }).into());
    let failed = SideWork::sum(vec![stopped(), Err(anyhow::anyhow!("a wrong checksum"))]);
    assert_eq!(failed.unwrap_err().to_string(), "a wrong checksum");
    assert!(SideWork::sum(vec![Ok(side(1, 1)), stopped()]).is_err());
}
