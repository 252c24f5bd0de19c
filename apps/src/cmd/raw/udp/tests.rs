use super::*;

/// The following end prints what the leading one has measured.
#[test]
fn a_result_that_is_none_is_refused() {
    let (mut near, mut far) = UdpChannel::within().unwrap();
    let here = IpAddr::V4(Ipv4Addr::LOCALHOST);
    std::thread::scope(|scope| {
        let following = scope.spawn(move || follow(&mut far, (here, here), false, |_| Ok(())));
        let socket = GsoSocket::bind(here).unwrap();
        let plan = UdpPlan { task: RawTask::Bench, size: 16, mtu: 256, at: 0, of: 1, rounds: 1 };
        near.tell(&Note::Plan(plan, socket.port())).unwrap();
        assert!(matches!(near.hear().unwrap(), Note::Ready(..)));
        near.tell(&Note::Done(0)).unwrap();
        assert_eq!(near.hear().unwrap(), Note::Received(0));
        near.tell(&Note::Results(Box::default(), None)).unwrap();
        let found = following.join().unwrap().map(drop).unwrap_err().to_string();
        assert_eq!(found, "the other end tells a result that is none");
    });
}
