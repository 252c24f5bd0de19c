//! Several processes on one address of the network: this test, and others that it starts.
//!
//! Only on soft0: it makes devices over UDP itself.

mod common;

use std::collections::BTreeSet;
use std::os::fd::{AsRawFd, OwnedFd};
use std::time::{Duration, Instant};

use common::other::*;
use common::*;
use rustix::net::{AddressFamily, SocketAddrUnix, SocketType, accept, bind, listen, socket};
use verbs_sys::ibv_wr_opcode as W;
use verbs_sys::*;

const RC: ibv_qp_type = ibv_qp_type::IBV_QPT_RC;
const UD: ibv_qp_type = ibv_qp_type::IBV_QPT_UD;
/// Places of an address, and the bits of a queue pair's number below its place.
const PLACES: u32 = 32;
const INDEX_BITS: u32 = 14;
/// Messages of a stream: how many, how long, and posted at a time.
const MESSAGES: u64 = 600;
const LEN: u32 = 5_000;
const DEPTH: u64 = 16;

/// An address of this run: tests of other runs have others.
fn at(n: u32) -> String {
    let run = std::process::id();
    format!("127.{}.{}.{n}", 1 + run / 256 % 254, run % 256)
}

fn config() -> ConnectConfig {
    ConnectConfig { access: RW, ..ConnectConfig::PATIENT }
}

fn end_on(text: &str, kind: ibv_qp_type) -> NearEnd {
    let net = wired::open(text);
    let cq = net.cq(1_024);
    NearEnd::on(kind, net, cq)
}

/// Connects to a queue pair at an address, whatever the end's own is.
fn connect(end: &mut NearEnd, ip: &str, number: u32, config: ConnectConfig) {
    let own = end.net.gid;
    let std::net::IpAddr::V4(ip) = ip.parse().unwrap() else { panic!("of version 4") };
    end.net.gid = ibv_gid { raw: ip.to_ipv6_mapped().octets() };
    end.net.connect(end.qp, number, config);
    end.net.gid = own;
}

fn number_of(end: &NearEnd) -> u32 {
    // SAFETY: the queue pair is alive.
    unsafe { (*end.qp).qp_num }
}

fn place_of(number: u32) -> u32 {
    number >> INDEX_BITS
}

/// Plays another process, on the device TEXT: `echo TEXT`, `sink TEXT PEER`, `datagram TEXT`,
/// `answer TEXT`, or `fails TEXT`, where the device is not to be had.
#[test]
fn the_other_process() {
    let Some(role) = role() else { return };
    match role.split_whitespace().collect::<Vec<_>>()[..] {
        ["echo", text] => echo(text),
        ["sink", text, peer] => sink(text, peer),
        ["datagram", text] => datagram(text),
        ["answer", text] => answer(text),
        ["fails", text] => {
            let error = text.parse::<soft_rnic::Roce>().unwrap().list().unwrap_err();
            say(&error.to_string());
        }
        _ => panic!("{role}"),
    }
}

/// Answers a message with the same bytes.
fn echo(text: &str) {
    let end = end_on(text, RC);
    assert_eq!(post_recv(end.qp, 9, &mut [end.local(0, 0, LEN)]), 0);
    join_as_other(&end, config());
    let came = end.net.poll(end.cq, 1)[0];
    assert_eq!((came.id, came.status, came.len), (9, "SUCCESS", LEN));
    end.send(end.local(0, 0, LEN));
    assert_eq!(end.net.poll(end.cq, 1)[0].status, "SUCCESS");
    // It stays as long as the test.
    while hear().is_some() {}
}

/// Says which datagrams have arrived, after the given number of them.
fn datagram(text: &str) {
    let end = end_on(text, UD);
    assert_eq!(post_recv(end.qp, 9, &mut [end.local(0, 0, 140)]), 0);
    end.net.connect(end.qp, 0, config());
    say(&end.say());
    let mut came = end.net.poll(end.cq, hear().unwrap().parse().unwrap());
    came.extend((0..1_000).flat_map(|_| end.net.poll_now(end.cq)));
    let came: Vec<_> = came.into_iter().map(|wc| (wc.len, wc.src_qp)).collect();
    say(&format!("{came:?}"));
}

/// Answers a datagram to the address that its header names, and says from where to where that was.
fn answer(text: &str) {
    let end = end_on(text, UD);
    assert_eq!(post_recv(end.qp, 9, &mut [end.local(0, 0, 140)]), 0);
    end.net.connect(end.qp, 0, config());
    say(&end.say());
    let came = end.net.poll(end.cq, 1)[0];
    let [from, to] = addresses(&end);
    say(&format!("{from} {to}"));
    let mut attr = end.net.ah_attr();
    attr.grh.dgid = ibv_gid { raw: from.to_ipv6_mapped().octets() };
    let ah = end.net.ah_in(end.net.pd, attr);
    let mut data = [end.local(0, 40, 100)];
    let mut wr = datagram_wr(1, &mut data, SIGNALED, (ah, came.src_qp, QKEY));
    assert_eq!(post_send(end.qp, &mut wr), 0);
    assert_eq!(end.net.poll(end.cq, 1)[0].status, "SUCCESS");
    // It stays as long as the test.
    while hear().is_some() {}
}

/// The addresses of the sender and of the receiver in the header of a received datagram.
fn addresses(end: &NearEnd) -> [std::net::Ipv4Addr; 2] {
    [32, 36].map(|at| {
        let octets: [u8; 4] = end.shared.bytes[at..at + 4].try_into().unwrap();
        octets.into()
    })
}

/// Takes a stream of messages, each of which has its number; all have to arrive, in order.
fn sink(text: &str, peer: &str) {
    let mut end = end_on(text, RC);
    let take = |end: &NearEnd, n: u64| {
        let local = end.local(0, (n % DEPTH) as usize * LEN as usize, LEN);
        assert_eq!(post_recv(end.qp, n, &mut [local]), 0);
    };
    (0..DEPTH).for_each(|n| take(&end, n));
    say(&number_of(&end).to_string());
    let number = hear().unwrap().parse().unwrap();
    connect(&mut end, peer, number, config());
    say("connected");
    let mut n = 0;
    while n < MESSAGES {
        for came in end.net.poll(end.cq, 1) {
            assert_eq!((came.id, came.status, came.len), (n, "SUCCESS", LEN));
            let at = (n % DEPTH) as usize * LEN as usize;
            assert_eq!(end.shared.bytes[at..at + 8], n.to_ne_bytes());
            take(&end, n + DEPTH);
            n += 1;
        }
    }
    say("all");
    while hear().is_some() {}
}

/// A stream to a process that is a [`sink`].
struct Stream {
    other: Other,
    end: NearEnd,
    number: u32,
    posted: u64,
    done: u64,
    failed: Option<&'static str>,
}

impl Stream {
    fn start(from: &str, to: &str) -> Stream {
        let other = Other::start("the_other_process", &format!("sink {to} {from}"));
        let (end, number) = (end_on(from, RC), 0);
        Stream { other, end, number, posted: 0, done: 0, failed: None }
    }

    fn connect(&mut self, to: &str, config: ConnectConfig) {
        self.number = self.other.hear().parse().unwrap();
        self.other.say(&number_of(&self.end).to_string());
        connect(&mut self.end, to, self.number, config);
        assert_eq!(self.other.hear(), "connected");
    }

    fn started(from: &str, to: &str) -> Stream {
        let mut stream = Stream::start(from, to);
        stream.connect(to, config());
        stream
    }

    /// Posts what there is room for, and polls. False once all is sent, or something has failed.
    fn go_on(&mut self) -> bool {
        while self.failed.is_none() && self.posted < MESSAGES.min(self.done + DEPTH) {
            let at = (self.posted % DEPTH) as usize * LEN as usize;
            self.end.shared.bytes[at..at + 8].copy_from_slice(&self.posted.to_ne_bytes());
            self.end.send(self.end.local(0, at, LEN));
            self.posted += 1;
        }
        for wc in self.end.net.poll_now(self.end.cq) {
            match wc.status {
                "SUCCESS" => self.done += 1,
                status => _ = self.failed.get_or_insert(status),
            }
        }
        self.failed.is_none() && self.done < MESSAGES
    }

    /// Ends the other process, once it has acknowledged all that was posted.
    fn kill(&mut self) {
        while self.done < self.posted {
            for wc in self.end.net.poll_now(self.end.cq) {
                assert_eq!(wc.status, "SUCCESS");
                self.done += 1;
            }
            std::thread::yield_now();
        }
        self.end.net.expect_death(self.end.qp);
        self.other.signal(libc::SIGKILL);
        assert_eq!(self.other.wait(), None);
    }

    /// Sends all that is left; all of it has to arrive.
    fn finish(mut self) {
        while self.go_on() {
            std::thread::yield_now();
        }
        assert_eq!((self.failed, self.done), (None, MESSAGES));
        assert_eq!(self.other.hear(), "all");
        self.end.close();
    }
}

/// A message to the other process, and back.
fn exchange(text: &str) {
    let mut other = Other::start("the_other_process", &format!("echo {text}"));
    let end = end_on(text, RC);
    assert_eq!(post_recv(end.qp, 8, &mut [end.local(1, 0, LEN)]), 0);
    end.shared.bytes[..LEN as usize].fill(0x5a);
    let far = join(&end, &mut other, config());
    assert_ne!(place_of(far.num), place_of(number_of(&end)), "each has a place of its own");
    end.send(end.local(0, 0, LEN));
    let mut all = end.net.poll(end.cq, 2);
    all.sort_by_key(|wc| wc.id);
    assert_eq!([(2, "SUCCESS"), (8, "SUCCESS")], [0, 1].map(|i| (all[i].id, all[i].status)));
    assert!(end.heap[..LEN as usize].iter().all(|byte| *byte == 0x5a));
    end.post_rdma(W::IBV_WR_RDMA_WRITE, end.local(0, 0, 100), far.memory[1]);
    end.post_rdma(W::IBV_WR_RDMA_READ, end.local(0, 500, 100), far.memory[1]);
    let all = end.net.poll(end.cq, 2);
    assert!(all.iter().all(|wc| wc.status == "SUCCESS"), "{all:?}");
    end.close();
}

/// All packets are lost: so none is sent.
#[test]
fn processes_of_one_address_reach_each_other_by_memory() {
    exchange(&format!("{},loss=1", at(111)));
}

#[test]
fn the_loopback_wire_option_uses_the_network_between_processes() {
    exchange(&format!("{},loopback=wire,loss=0.02,seed=3", at(112)));
    // A network that loses all shows that it is used.
    let text = &format!("{},loopback=wire,loss=1", at(125));
    let mut other = Other::start("the_other_process", &format!("echo {text}"));
    let end = end_on(text, RC);
    join(&end, &mut other, ConnectConfig { access: RW, ..ConnectConfig::DEAD });
    end.send(end.local(0, 0, LEN));
    assert_eq!(end.net.poll(end.cq, 1)[0].status, "RETRY_EXC");
    end.close();
}

/// A number is that of a process of its own address.
#[test]
fn a_queue_pair_of_another_address_is_looked_for_there_only() {
    Stream::started(&at(126), &at(127)).finish();
    assert_eq!(soft_rnic::peer_not_found(), None);
}

/// All packets are lost.
#[test]
fn datagrams_between_processes_use_memory_by_default() {
    for (n, options, comes) in [(124, "loss=1", true), (110, "loopback=wire,loss=1", false)] {
        let text = &format!("{},{options}", at(n));
        let mut other = Other::start("the_other_process", &format!("datagram {text}"));
        let end = end_on(text, UD);
        let far = Far::parse(&other.hear());
        end.net.connect(end.qp, 0, config());
        let ah = end.net.ah();
        let mut from = [end.local(0, 0, 100)];
        let mut wr = datagram_wr(1, &mut from, SIGNALED, (ah, far.num, QKEY));
        assert_eq!(post_send(end.qp, &mut wr), 0);
        assert_eq!(end.net.poll(end.cq, 1)[0].status, "SUCCESS");
        let expected: &[(u32, u32)] = if comes { &[(140, number_of(&end))] } else { &[] };
        other.say(&expected.len().to_string());
        assert_eq!(other.hear(), format!("{expected:?}"), "{text}");
        end.net.destroy_ah(ah);
        end.close();
    }
}

/// A server answers to the address in the header, which is the device's at both ends.
#[test]
fn the_header_of_another_processs_datagram_names_the_address() {
    let text = &at(128);
    let mut other = Other::start("the_other_process", &format!("answer {text}"));
    let end = end_on(text, UD);
    let far = Far::parse(&other.hear());
    end.net.connect(end.qp, 0, config());
    assert_eq!(post_recv(end.qp, 8, &mut [end.local(0, 0, 140)]), 0);
    let ah = end.net.ah();
    let mut from = [end.local(1, 0, 100)];
    let mut wr = datagram_wr(1, &mut from, SIGNALED, (ah, far.num, QKEY));
    assert_eq!(post_send(end.qp, &mut wr), 0);
    assert_eq!(other.hear(), format!("{text} {text}"));
    let mut all = end.net.poll(end.cq, 2);
    all.sort_by_key(|wc| wc.id);
    assert_eq!([(1, "SUCCESS"), (8, "SUCCESS")], [0, 1].map(|i| (all[i].id, all[i].status)));
    assert_eq!((all[1].len, all[1].src_qp), (140, far.num));
    assert_eq!(addresses(&end).map(|address| address.to_string()), [text.as_str(); 2]);
    end.net.destroy_ah(ah);
    end.close();
}

/// The first process has bound the sockets; it is killed while all three of them are sent to.
#[test]
fn a_process_that_dies_takes_nothing_from_the_others() {
    let from = &at(114);
    let to = &at(113);
    let mut first = Stream::started(from, to);
    let mut others = [Stream::started(from, to), Stream::started(from, to)];
    while first.done < MESSAGES / 10 {
        assert!(first.go_on(), "{:?}", first.failed);
        for stream in &mut others {
            stream.go_on();
        }
    }
    first.kill();
    let mut is_alive = true;
    while others.iter_mut().any(|stream| stream.done < MESSAGES / 2 && stream.go_on()) {
        is_alive &= first.go_on();
    }
    // One joins after that, and has the sockets from the others.
    Stream::started(from, to).finish();
    others.into_iter().for_each(Stream::finish);
    while is_alive && first.go_on() {
        std::thread::yield_now();
    }
    assert_eq!(first.failed, Some("RETRY_EXC"));
    first.end.close();
}

#[test]
fn a_process_that_is_stopped_stops_only_itself() {
    let from = &at(116);
    let to = &at(115);
    // About retries: more than half a minute, in which the peers may be stopped.
    let patient = ConnectConfig { timeout: 21, ..config() };
    let [mut first, mut second] = [(); 2].map(|()| {
        let mut stream = Stream::start(from, to);
        stream.connect(to, patient);
        stream
    });
    assert!(first.go_on() && second.go_on());
    first.other.stop();
    while second.done < MESSAGES / 2 {
        assert!(second.go_on(), "{:?}", second.failed);
    }
    // The sockets are those of the second process.
    Stream::started(from, to).finish();
    second.other.stop();
    // Now no process is left that answers: one that has the address is named.
    let mut late = Other::start("the_other_process", &format!("fails {to}"));
    let error = late.hear();
    let pids = [&first, &second].map(|stream| format!("process {} has", stream.other.pid()));
    assert!(pids.iter().any(|pid| error.contains(pid)), "{error}");
    first.other.signal(libc::SIGCONT);
    second.other.signal(libc::SIGCONT);
    second.finish();
    first.finish();
}

/// Whichever of them is first: all are connected, and each has what is sent to it.
#[test]
fn processes_that_begin_at_the_same_time_share_the_address() {
    let from = &at(118);
    let to = &at(117);
    let mut streams = [(); 5].map(|()| Stream::start(from, to));
    streams.iter_mut().for_each(|stream| stream.connect(to, config()));
    let places: BTreeSet<u32> = streams.iter().map(|stream| place_of(stream.number)).collect();
    assert_eq!(places.len(), streams.len());
    streams.into_iter().for_each(Stream::finish);
}

/// Takes the names of places, as processes of the address do that are about to join.
fn occupied(ip: &str, places: impl Iterator<Item = u32>) -> Vec<OwnedFd> {
    let user = rustix::process::geteuid().as_raw();
    let occupy = |place: u32| {
        let name = format!("soft-rnic-{user}-{ip}-{place}");
        let socket = socket(AddressFamily::UNIX, SocketType::SEQPACKET, None).unwrap();
        let name = SocketAddrUnix::new_abstract_name(name.as_bytes()).unwrap();
        bind(&socket, &name).ok().map(|()| socket)
    };
    places.filter_map(occupy).collect()
}

/// Has the turn to join, as a process of the address does that joins.
fn turn(ip: &str) -> OwnedFd {
    let user = rustix::process::geteuid().as_raw();
    let turn = socket(AddressFamily::UNIX, SocketType::SEQPACKET, None).unwrap();
    let name = format!("soft-rnic-{user}-{ip}-joining");
    let name = SocketAddrUnix::new_abstract_name(name.as_bytes()).unwrap();
    bind(&turn, &name).unwrap();
    turn
}

/// Has a process listen that has ended, and has no number any more, when this returns.
fn listen_as_one_that_has_ended(socket: &OwnedFd) {
    let mut status = 0;
    // SAFETY: the child makes two system calls.
    unsafe {
        let child = libc::fork();
        if child == 0 {
            libc::_exit(libc::listen(socket.as_raw_fd(), 8));
        }
        assert_eq!(libc::waitpid(child, &raw mut status, 0), child);
    }
    assert_eq!(status, 0);
}

/// The one that joined before has just ended.
#[test]
fn an_address_is_shared_after_its_last_joiner_has_ended() {
    let ip = &at(129);
    let turn = turn(ip);
    listen_as_one_that_has_ended(&turn);
    std::thread::scope(|scope| {
        let joins = scope.spawn(|| ip.parse::<soft_rnic::Roce>().unwrap().list());
        let waiting = accept(&turn).unwrap();
        drop((waiting, turn));
        assert_eq!(joins.join().unwrap(), Ok(format!("roce:{ip}")));
    });
    exchange(ip);
}

#[test]
fn devices_are_listed_while_one_waits_for_its_turn_to_join() {
    let ip = &at(130);
    let name = &format!("roce:{ip}");
    let turn = turn(ip);
    listen(&turn, 8).unwrap();
    std::thread::scope(|scope| {
        let list = || ip.parse::<soft_rnic::Roce>().unwrap().list();
        let both = [(); 2].map(|()| scope.spawn(list));
        let waiting = accept(&turn).unwrap();
        assert!(soft_rnic::packet_counters_of(name).is_none());
        drop((waiting, turn));
        for joins in both {
            assert_eq!(joins.join().unwrap().as_ref(), Ok(name));
        }
    });
    assert!(soft_rnic::packet_counters_of(name).is_some());
}

#[test]
fn an_address_has_a_limit_of_processes() {
    let ip = &at(119);
    let mut names = occupied(ip, 0..PLACES);
    assert_eq!(names.len(), PLACES as usize);
    let error = ip.parse::<soft_rnic::Roce>().unwrap().list().unwrap_err().to_string();
    assert!(error.contains("32 processes have it"), "{error}");
    names.pop();
    // A process that another test is starting has the name, too, until it executes its program.
    let begun = Instant::now();
    while let Err(error) = ip.parse::<soft_rnic::Roce>().unwrap().list() {
        assert!(begun.elapsed() < Duration::from_secs(60), "{error}");
        std::thread::yield_now();
    }
    let end = end_on(ip, RC);
    assert_eq!(place_of(number_of(&end)), PLACES - 1);
    end.close();
}

/// Another process gets the place, and not the packets, of one that was killed.
#[test]
fn a_place_is_taken_again() {
    let from = &at(121);
    let to = &at(120);
    let mut dead = Stream::started(from, to);
    let living = Stream::started(from, to);
    assert!(dead.go_on());
    dead.kill();
    let place = place_of(dead.number);
    let names = occupied(to, (0..PLACES).filter(|other| *other != place));
    assert_eq!(names.len(), PLACES as usize - 2);
    let heir = Stream::started(from, to);
    assert_eq!(place_of(heir.number), place);
    assert_ne!(heir.number, dead.number);
    heir.finish();
    living.finish();
    while dead.go_on() {
        std::thread::yield_now();
    }
    assert_eq!(dead.failed, Some("RETRY_EXC"));
    dead.end.close();
}

/// The next process binds the address anew after the last one has died.
#[test]
fn an_address_is_free_after_its_last_process() {
    let from = &at(123);
    let to = &at(122);
    for _ in 0..5 {
        let mut stream = Stream::started(from, to);
        assert!(stream.go_on());
        stream.other.signal(libc::SIGKILL);
        // The next one may begin before this one has ended.
        let next = Stream::started(from, to);
        stream.other.wait();
        next.finish();
    }
}
