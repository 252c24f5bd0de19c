use super::*;

fn words(line: &str, device: EndDevice) -> String {
    let address = [10, 0, 1, 2].into();
    let end = NamespaceEnd {
        namespace: &Namespace::own(),
        address,
        host: address,
        device,
        processor: None,
    };
    let host = [10, 0, 1, 1].into();
    let at = ListenAddresses { socket: SocketAddr::new(host, 20_001), host };
    end.words(line, &BuiltPrograms("/built".into()), at, Duration::from_secs(9)).join(" ")
}

#[test]
fn lines_are_filled_in() {
    let CommandLines { listener, connector } = CommandLines::ours("bench", "--size 16");
    let roce = || EndDevice::Roce(",seed=7".to_owned());
    assert_eq!(
        words(&listener, roce()),
        "timeout --kill-after=5 9 /built/rdma-conn bench --device roce:10.0.1.2,seed=7 --listen 10.0.1.1:20001"
    );
    assert_eq!(
        words(&connector, EndDevice::Kernel("rxe1")),
        "timeout --kill-after=5 9 /built/rdma-conn bench --device rxe1 --connect 10.0.1.1:20001 --size 16"
    );
    assert_eq!(
        words("ib_send_bw -M {mgid}", EndDevice::Kernel("rxe1")),
        "timeout --kill-after=5 9 ib_send_bw -M 0:0:0:0:0:0:0:0:0:0:255:255:239:1:2:3"
    );
    assert_eq!(gid_of(group_of(Ipv6Addr::LOCALHOST.into())), "255:21:0:0:0:0:0:0:0:0:0:0:0:0:0:1");
    let CommandLines { listener, connector } = CommandLines::verbs("ib_send_bw -F");
    assert_eq!(
        words(&listener, roce()),
        "timeout --kill-after=5 9 env RDMA_CONN_ROCE=10.0.1.2,seed=7 LD_PRELOAD=/built/librdma_conn_soft.so \
             ib_send_bw -F -d roce:10.0.1.2 -x 0 -p 20001"
    );
    assert_eq!(
        words(&connector, EndDevice::Kernel("rxe1")),
        "timeout --kill-after=5 9 ib_send_bw -F -d rxe1 -x 1 -p 20001 10.0.1.1"
    );
}
