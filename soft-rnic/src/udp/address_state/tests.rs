use super::*;

fn on(name: &str, ip: &str, flags: libc::c_int) -> InterfaceAddress {
    let name = std::ffi::CString::new(name).unwrap();
    InterfaceAddress { name, ip: ip.parse().unwrap(), flags: flags.cast_unsigned() }
}

#[test]
fn the_loopback_interface_is_running_with_all_its_addresses() {
    let all = Interfaces::look().unwrap();
    let running = AddressState::Present { is_running: true, mtu: Some(65_536), index: Some(1) };
    for (ip, expected) in
        [("127.0.0.1", running), ("127.3.2.1", running), ("192.0.2.1", AddressState::Absent)]
    {
        assert_eq!(all.state_of(ip.parse().unwrap()), expected, "{ip}");
    }
}

#[test]
fn an_interface_down_or_without_a_carrier_is_not_running() {
    const UP: libc::c_int = libc::IFF_UP;
    const RUNNING: libc::c_int = libc::IFF_UP | libc::IFF_RUNNING;
    let all = [
        on("a", "10.0.0.1", UP),
        on("b", "10.0.0.2", libc::IFF_RUNNING),
        on("c", "10.0.0.3", UP),
        on("d", "10.0.0.3", RUNNING),
        on("e", "fd00::1", RUNNING),
    ];
    let chosen = |ip: &str| {
        let found = choose(&all, ip.parse().unwrap());
        found.map(|listed| (listed.name.to_str().unwrap(), is_running(listed)))
    };
    assert_eq!(chosen("10.0.0.1"), Some(("a", false)));
    assert_eq!(chosen("10.0.0.2"), Some(("b", false)));
    assert_eq!(chosen("10.0.0.3"), Some(("d", true)));
    assert_eq!(chosen("fd00::1"), Some(("e", true)));
    assert_eq!(chosen("127.0.0.1"), None);
}
