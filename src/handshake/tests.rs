use super::*;

#[test]
fn a_peer_whose_time_is_over_is_told_so() {
    let (mut near, mut far) = UnixStream::pair().unwrap();
    let mut exchange = Exchange::new(&mut near, Duration::ZERO);
    let late = exchange.receive(|_| Ok(())).unwrap_err();
    assert!(matches!(late, HandshakeError::TimedOut(_)), "{late}");
    exchange.refuse(late.reason(), &late.to_string());
    assert!(exchange.end <= host::time::now() + REFUSAL_LIMIT);
    drop(near);
    let told = Exchange::new(&mut far, TIME_LIMIT).receive(|_| Ok(())).unwrap_err();
    assert!(matches!(told, HandshakeError::Refused { .. }), "{told}");
}
