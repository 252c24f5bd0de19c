use super::super::port::UdpPort;
use super::*;

#[test]
fn lines_of_the_kernels_list_are_read() {
    let line = "  77: 0200007F:12B7 00000000:0000 07 00000000:00000000 00:00000000 00000000  \
                    1000        0 4711 2 0000000000000000 0";
    let local = "127.0.0.2:4791".parse().unwrap();
    assert_eq!(socket_of(line), Some(SocketLine { local, user: 1_000, inode: 4_711 }));
    let line = line.replace("0200007F:", "00000000000000000000000001000000:");
    assert_eq!(socket_of(&line).unwrap().local, "[::1]:4791".parse().unwrap());
    assert_eq!(socket_of("  sl  local_address rem_address   st tx_queue"), None);
    assert_eq!(socket_of(""), None);
}

#[test]
fn sockets_for_all_addresses_take_each_of_them() {
    let takes = |local: &str, addr: &str| {
        let local = local.parse().unwrap();
        SocketLine { local, user: 0, inode: 1 }.takes(addr.parse().unwrap())
    };
    assert!(takes("0.0.0.0:4791", "10.0.0.1:4791"));
    assert!(takes("[::]:4791", "10.0.0.1:4791"));
    assert!(takes("10.0.0.1:4791", "[::ffff:10.0.0.1]:4791"));
    assert!(!takes("0.0.0.0:4791", "[fd00::1]:4791"));
    assert!(!takes("10.0.0.2:4791", "10.0.0.1:4791"));
    assert!(!takes("10.0.0.1:4792", "10.0.0.1:4791"));
}

#[test]
fn a_port_of_ours_is_this_process() {
    for addr in ["127.0.0.40:0", "[::1]:0"] {
        let port = UdpPort::bind(addr.parse().unwrap()).unwrap();
        let found = port_holders(port.local());
        let process = found.iter().find_map(|holder| holder.process.as_ref());
        assert_eq!(process.map(|(id, _)| *id), Some(std::process::id()), "{found:?}");
        let local = port.local();
        drop(port);
        assert_eq!(port_holders(local), []);
    }
}

#[test]
fn a_process_that_has_all_sockets_of_an_address_is_named_once() {
    let group = UdpPort::bind_group("127.0.0.41:0".parse().unwrap(), 14, 2).unwrap();
    assert_eq!(port_holders(group[0].local()).len(), 1);
}

#[test]
fn an_address_is_shared_by_several_sockets_of_its_own() {
    let line = |address: &str, inode: u32| {
        format!("7: {address}:12B7 00000000:0000 07 0:0 0:0 0 1000 0 {inode} 2 0 0\n")
    };
    let (ours, any) = ("02041F7F", "00000000");
    let addr = "127.31.4.2:4791".parse().unwrap();
    let shared = |lines: &[String]| {
        let sockets = sockets_of(&lines.concat(), addr);
        (sockets.len(), are_shared(&sockets))
    };
    assert_eq!(shared(&[line(ours, 5)]), (1, false));
    // The list has changed meanwhile.
    assert_eq!(shared(&[line(ours, 5), line(ours, 5)]), (1, false));
    // Another process has the port of all addresses.
    assert_eq!(shared(&[line(ours, 5), line(any, 4)]), (2, false));
    assert_eq!(shared(&[line(ours, 5), line(ours, 4)]), (2, true));
}

#[test]
fn holders_are_named() {
    let of = |process: Option<(u32, String)>, kernel_device: Option<&str>| {
        let kernel_device = kernel_device.map(str::to_owned);
        PortHolder { user: 7, process, kernel_device, is_shared: false }.to_string()
    };
    assert_eq!(of(Some((12, "bench".into())), None), "bench (process 12)");
    assert!(of(None, Some("rxe0")).starts_with("the kernel's soft-RoCE (rxe0"));
    assert_eq!(of(None, None), "a process of user 7, or the kernel");
}
