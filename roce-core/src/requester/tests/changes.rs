//! Attributes that change while the connection works.

use super::*;

const TO: Changeable = Changeable { timeout: 12, retry_cnt: 1, rnr_retry: 1, max_rd_atomic: 1 };

#[test]
fn changed_timeouts_and_retries_apply_to_waiting_requests() {
    let mut requester = sent(CONFIG, &[send(1)]);
    assert_eq!(requester.change(TO), Ok(()));
    let timeout_ns = TIMEOUT_NS * 4;
    for retry in 1..=TO.retry_cnt.into() {
        assert_eq!(requester.deadline_ns(), Some(retry * timeout_ns));
        requester.on_timer(retry * timeout_ns);
        assert_eq!(numbers(&drain(&mut requester, retry * timeout_ns)), [0]);
    }
    requester.on_timer((u64::from(TO.retry_cnt) + 1) * timeout_ns);
    assert_eq!(completions(&mut requester), [(0, CompletionStatus::RetryExceeded)]);
}

#[test]
fn what_has_been_repeated_has_all_of_the_new_retries() {
    let mut requester = sent(CONFIG, &[send(1)]);
    for timeout in 1..=u64::from(CONFIG.retry_cnt) {
        requester.on_timer(timeout * TIMEOUT_NS);
        drain(&mut requester, timeout * TIMEOUT_NS);
    }
    assert_eq!(requester.change(Changeable { timeout: CONFIG.timeout, ..TO }), Ok(()));
    requester.on_timer(4 * TIMEOUT_NS);
    assert_eq!(numbers(&drain(&mut requester, 4 * TIMEOUT_NS)), [0]);
    requester.on_timer(5 * TIMEOUT_NS);
    assert_eq!(completions(&mut requester), [(0, CompletionStatus::RetryExceeded)]);
}

#[test]
fn the_new_number_of_rnr_retries_counts() {
    let mut requester = sent(CONFIG, &[send(1)]);
    assert_eq!(requester.change(Changeable { rnr_retry: 0, ..TO }), Ok(()));
    let timer = RnrTimer::new(1).unwrap();
    requester.on_response(&response(Opcode::RcAck, 0, Syndrome::RnrNak { timer }), 0, 1);
    assert_eq!(completions(&mut requester), [(0, CompletionStatus::RnrRetryExceeded)]);
}

#[test]
fn reads_that_were_posted_go_though_no_more_may_be() {
    let mut requester = machine(CONFIG);
    let read = Request::new(Operation::Read, 1, 0, 0);
    requester.post(read).unwrap();
    requester.post(read).unwrap();
    assert_eq!(requester.change(Changeable { max_rd_atomic: 0, ..TO }), Ok(()));
    assert_eq!(requester.post(read), Err(PostError::NoReads));
    assert_eq!(numbers(&drain(&mut requester, 0)), [0]);
    let ack = Syndrome::ACK;
    requester.on_response(&response(Opcode::RcReadResponseOnly, 0, ack), 1, 1);
    assert_eq!(numbers(&drain(&mut requester, 1)), [1]);
}

#[test]
fn a_wrong_timeout_changes_nothing() {
    let mut requester = sent(CONFIG, &[send(1)]);
    let before = requester.clone();
    assert_eq!(requester.change(Changeable { timeout: 32, ..TO }), Err(ConfigError::Timeout(32)));
    assert_eq!(requester, before);
}
