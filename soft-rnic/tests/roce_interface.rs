//! An interface that goes, and another one that gets its name and its addresses, in a network
//! namespace.
//!
//! Only on soft0: it makes devices over UDP itself.

mod common;

use std::process::{Command, Stdio};

use common::multicast::*;
use common::other::{ROLE, role};
use common::*;
use verbs_sys::*;

/// A sender and a receiver of each family. Their packets are looped back by the interface.
const ADDRESSES: [[&str; 2]; 2] = [["10.9.1.1", "10.9.1.2"], ["fd00:9::1", "fd00:9::2"]];

/// Runs a line.
fn run(line: &str) {
    let mut words = line.split(' ');
    let status = Command::new(words.next().unwrap()).args(words).status().unwrap();
    assert!(status.success(), "{line}");
}

fn make_interface() {
    run("ip link add rdma0 type veth peer name rdma1");
    for address in ADDRESSES.as_flattened() {
        let (bits, nodad) = if address.contains(':') { (64, " nodad") } else { (24, "") };
        run(&format!("ip address add {address}/{bits} dev rdma0{nodad}"));
    }
    run("ip link set rdma1 up");
    run("ip link set rdma0 up");
}

/// Waits for an event of a device's port.
fn wait_for(net: &Net, expected: ibv_event_type) {
    loop {
        let mut event = ibv_async_event::default();
        // SAFETY: the context is open, and the event is not a queue pair's.
        unsafe {
            assert_eq!((net.v.get_async_event)(net.ctx, &mut event), 0);
            (net.v.ack_async_event)(&mut event);
        }
        if event.event_type == expected {
            return;
        }
    }
}

/// A sender and a member of a group.
struct Pair {
    nets: [Net; 2],
    sender: GroupMember,
    member: GroupMember,
    group: ibv_gid,
    ah: *mut ibv_ah,
}

impl Pair {
    fn new(addresses: [&str; 2], group: ibv_gid) -> Pair {
        let nets = addresses.map(wired::open);
        let (sender, member) = (GroupMember::new(&nets[0]), GroupMember::new(&nets[1]));
        assert_eq!(attach(&nets[1], member.qp, group, 0), 0);
        member.post_recvs(8);
        Pair { ah: ah(&nets[0], group), nets, sender, member, group }
    }

    /// A datagram to a group may be lost, as where its interface has just been made: it is sent
    /// again until it arrives.
    fn exchange(&self, number: u32) {
        let end = host::time::now() + PATIENCE;
        let mut again = host::time::now();
        loop {
            if again <= host::time::now() {
                self.sender.send(&self.nets[0], self.ah, 5, Some(number));
                again += PATIENCE / 6;
            }
            let came = self.nets[1].poll_now(self.member.cq);
            if came.iter().any(|wc| wc.imm == Some(number)) {
                return;
            }
            assert!(host::time::now() < end, "datagram {number} does not arrive");
            host::thread::yield_now();
        }
    }

    fn close(self) {
        let Pair { nets, sender, member, group, ah } = self;
        assert_eq!(detach(&nets[1], member.qp, group, 0), 0);
        nets[0].destroy_ah(ah);
        sender.close(&nets[0]);
        member.close(&nets[1]);
        nets.into_iter().for_each(Net::close);
    }
}

/// The interface that a device's GID is of.
fn interface_of(net: &Net) -> u32 {
    let mut entry = ibv_gid_entry::default();
    // SAFETY: the context is open.
    assert_eq!(unsafe { ibv_query_gid_ex(&net.v, net.ctx, 1, 0, &mut entry) }, Some(0));
    entry.ndev_ifindex
}

/// Datagrams within a device go by memory, and are no longer than those to others.
fn send_as_much_as_the_mtu(address: &str) {
    let config = ConnectConfig::default();
    let p = common::QpPair::connect(ibv_qp_type::IBV_QPT_UD, wired::open(address), config, config);
    let (ah, mtu) = (p.net.ah(), 128 << p.net.port().active_mtu.0);
    assert_eq!(mtu, 1_024, "of an interface with 1500 bytes");
    for (len, expected) in [(mtu, "SUCCESS"), (mtu + 1, "LOC_LEN")] {
        assert_eq!(post_recv(p.qp[1], 1, &mut [sge(p.mr[1], 0, 4_096)]), 0);
        let mut sges = [sge(p.mr[0], 0, len)];
        let mut wr = datagram_wr(2, &mut sges, SIGNALED, (ah, p.num(1), QKEY));
        assert_eq!(post_send(p.qp[0], &mut wr), 0);
        assert_eq!(p.net.poll(p.cq[0], 1)[0].status, expected);
    }
    p.net.destroy_ah(ah);
    p.close();
}

/// Plays the part of the test that runs in a network namespace of its own.
fn have_the_interface_made_anew() {
    // SAFETY: it waits for no event for ever.
    unsafe { libc::alarm(120) };
    make_interface();
    let [v4, v6] = ADDRESSES;
    let pairs = [Pair::new(v4, group(1)), Pair::new(v6, group_v6(1))];
    pairs.iter().for_each(|pair| pair.exchange(1));
    send_as_much_as_the_mtu(v4[0]);
    run("ip link del rdma0");
    let nets = || pairs.iter().flat_map(|pair| &pair.nets);
    nets().for_each(|net| wait_for(net, ibv_event_type::IBV_EVENT_PORT_ERR));
    make_interface();
    nets().for_each(|net| wait_for(net, ibv_event_type::IBV_EVENT_PORT_ACTIVE));
    pairs.iter().for_each(|pair| pair.exchange(2));
    // SAFETY: a text that ends with zero.
    let index = unsafe { libc::if_nametoindex(c"rdma0".as_ptr()) };
    assert!(index != 0 && nets().all(|net| interface_of(net) == index));
    pairs.into_iter().for_each(Pair::close);
}

#[test]
fn the_other_process() {
    if role().is_some() {
        have_the_interface_made_anew();
    }
}

#[test]
fn groups_go_on_when_the_interface_is_made_anew() {
    const ENTER: [&str; 3] = ["--user", "--map-root-user", "--net"];
    let may = Command::new("unshare").args(ENTER).arg("true").stderr(Stdio::null()).status();
    if !may.is_ok_and(|status| status.success()) {
        let is_wanted = std::env::var_os("SOFT_RNIC_SKIPS_NOTHING").is_some();
        assert!(!is_wanted, "no network namespace: unshare {ENTER:?}");
        return tally::skipped("the system does not let this user make network namespaces");
    }
    let mut command = Command::new("unshare");
    command.args(ENTER).arg(std::env::current_exe().unwrap());
    command.args(["--exact", "the_other_process", "--nocapture"]).env(ROLE, "");
    let output = command.output().unwrap();
    assert!(output.status.success(), "{output:?}");
}
