use super::*;

fn words(line: &str, device: Device) -> String {
    let address = [10, 0, 1, 2].into();
    let end = End { namespace: &Namespace::own(), address, host: address, device, processor: None };
    let host = [10, 0, 1, 1].into();
    let at = At { socket: SocketAddr::new(host, 20_001), host };
    end.words(line, &Built("/built".into()), at, Duration::from_secs(9)).join(" ")
}

#[test]
fn lines_are_filled_in() {
    let Lines { listener, connector } = Lines::ours("bench", "--size 16");
    let roce = || Device::Roce(",seed=7".to_owned());
    assert_eq!(
        words(&listener, roce()),
        "timeout --kill-after=5 9 /built/rdma-conn bench --device roce:10.0.1.2,seed=7 --listen 10.0.1.1:20001"
    );
    assert_eq!(
        words(&connector, Device::Kernel("rxe1")),
        "timeout --kill-after=5 9 /built/rdma-conn bench --device rxe1 --connect 10.0.1.1:20001 --size 16"
    );
    assert_eq!(
        words("ib_send_bw -M {mgid}", Device::Kernel("rxe1")),
        "timeout --kill-after=5 9 ib_send_bw -M 0:0:0:0:0:0:0:0:0:0:255:255:239:1:2:3"
    );
    assert_eq!(gid_of(group_of(Ipv6Addr::LOCALHOST.into())), "255:21:0:0:0:0:0:0:0:0:0:0:0:0:0:1");
    let Lines { listener, connector } = Lines::verbs("ib_send_bw -F");
    assert_eq!(
        words(&listener, roce()),
        "timeout --kill-after=5 9 env RDMA_CONN_ROCE=10.0.1.2,seed=7 LD_PRELOAD=/built/librdma_conn_soft.so \
             ib_send_bw -F -d roce:10.0.1.2 -x 0 -p 20001"
    );
    assert_eq!(
        words(&connector, Device::Kernel("rxe1")),
        "timeout --kill-after=5 9 ib_send_bw -F -d rxe1 -x 1 -p 20001 10.0.1.1"
    );
}
