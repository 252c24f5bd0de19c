//! Multicast groups across processes: this program starts itself again.
//!
//! Not on rxe0: groups reach other processes as those of soft0 do.
//! Also on roce: its processes reach each other through memory, and groups over the network.

mod common;

use std::sync::{Mutex, MutexGuard, PoisonError};

use common::multicast::*;
use common::other::*;
use common::*;
use soft_rnic::{NetworkFaults, counters, set_network_faults};
use verbs_sys::*;

const N: u32 = 40;

fn start(role: &str) -> Other {
    let mut other = Other::start("the_other_process", role);
    other.say(&std::process::id().to_string());
    other
}

#[test]
fn the_other_process() {
    match role().as_deref() {
        None => {}
        Some("member") => be_member(),
        Some("few descriptors") => have_few_descriptors(),
        Some(other) => panic!("{other}"),
    }
}

/// Two members of the group of the test's process, of which one has another Q_Key. They obey
/// commands.
fn be_member() {
    let pid = hear().unwrap().parse().unwrap();
    let [to, second] = [1, 2].map(|n| group_of(pid, n));
    let net = Net::new();
    let (ah, mut member, keyed) =
        (ah(&net, to), GroupMember::new(&net), GroupMember::with(&net, QKEY ^ 1));
    keyed.post_recvs(1);
    while let Some(line) = hear() {
        let mut words = line.split(' ');
        let (what, number) = (words.next().unwrap(), words.next().map(|n| n.parse().unwrap()));
        match what {
            "attach" => {
                member.post_recvs(N.into());
                for qp in [member.qp, keyed.qp] {
                    assert_eq!(attach(&net, qp, to, 0), 0);
                }
            }
            "second" => assert_eq!(attach(&net, member.qp, second, 0), 0),
            "detach" => assert_eq!(detach(&net, member.qp, to, 0), 0),
            "send" => {
                member.buf[63 * SLOT..][..4].copy_from_slice(b"back");
                member.send(&net, ah, 4, number);
            }
            "get" => {
                let got = net.poll(member.cq, number.unwrap() as usize);
                assert!(got.iter().all(|wc| wc.has_grh && wc.status == "SUCCESS"));
                assert_eq!(&member.buf[GRH..GRH + 4], b"data");
                assert_eq!(&member.buf[36..40], &raw(&to)[12..], "the header names the group");
                assert!(net.poll_now(keyed.cq).is_empty());
                let numbers: Vec<_> = got.iter().map(|wc| wc.imm.unwrap().to_string()).collect();
                say(&format!("{} {}", got[0].src_qp, numbers.join(" ")));
                continue;
            }
            other => panic!("{other}"),
        }
        say("done");
    }
}

/// Descriptors of a process that has few: pairs with eight others take half of them.
const FEW: u64 = 64;
const MOST: usize = 8;

/// A queue pair of a process with few descriptors, and what its attachment gives.
fn have_few_descriptors() {
    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
    let pid = hear().unwrap().parse().unwrap();
    let maximum = getrlimit(Resource::Nofile).maximum;
    setrlimit(Resource::Nofile, Rlimit { current: Some(FEW), maximum }).unwrap();
    let net = Net::new();
    let (member, group) = (GroupMember::new(&net), group_of(pid, 1));
    while let Some(what) = hear() {
        let done = match what.as_str() {
            "attach" => attach(&net, member.qp, group, 0),
            "detach" => detach(&net, member.qp, group, 0),
            // As many as it needs for its own work.
            "open" => {
                let open = || std::fs::File::open("/dev/null");
                let files: Vec<_> = (0..8).map(|_| open()).collect();
                files.iter().filter(|file| file.is_err()).count() as i32
            }
            other => panic!("{other}"),
        };
        say(&done.to_string());
    }
}

fn tell(other: &mut Other, what: &str) {
    other.say(what);
    assert_eq!(other.hear(), "done");
}

/// Returns what another process's member gets.
fn gets(other: &mut Other, n: u32) -> (u32, Vec<u32>) {
    other.say(&format!("get {n}"));
    let said = other.hear();
    let mut numbers = said.split(' ').map(|number| number.parse().unwrap());
    (numbers.next().unwrap(), numbers.collect())
}

/// A member here, with an address handle of the group.
struct SendingMember {
    net: Net,
    member: GroupMember,
    ah: *mut ibv_ah,
}

impl SendingMember {
    fn new() -> SendingMember {
        let net = Net::new();
        let (ah, mut member) = (ah(&net, group(1)), GroupMember::new(&net));
        member.buf[63 * SLOT..][..4].copy_from_slice(b"data");
        SendingMember { net, member, ah }
    }

    fn send(&self, numbers: core::ops::Range<u32>) {
        numbers.for_each(|number| self.member.send(&self.net, self.ah, 4, Some(number)));
    }

    fn close(self) {
        self.member.close(&self.net);
        self.net.destroy_ah(self.ah);
        self.net.close();
    }
}

/// One test at a time: the members' process has one group.
static ONE: Mutex<()> = Mutex::new(());

/// `None` on a device that does not go between processes, or is no software's.
fn one_at_a_time() -> Option<MutexGuard<'static, ()>> {
    let goes_between = provider().1 == "soft0" || is_wired();
    goes_between.then(|| ONE.lock().unwrap_or_else(PoisonError::into_inner))
}

#[test]
fn members_of_all_processes_get_a_copy_whoever_came_first() {
    let Some(_one) = one_at_a_time() else { return };
    let sender = SendingMember::new();
    let mut first = start("member");
    tell(&mut first, "attach");
    // The first message meets those that are there, and those that join later meet this process.
    sender.send(0..N / 2);
    let mut second = start("member");
    tell(&mut second, "attach");
    sender.send(N / 2..N);
    let from = sender.member.num();
    assert_eq!(gets(&mut first, N), (from, (0..N).collect()));
    assert_eq!(gets(&mut second, N / 2), (from, (N / 2..N).collect()));
    // The other way, and between the two.
    assert_eq!(attach(&sender.net, sender.member.qp, group(1), 0), 0);
    sender.member.post_recvs(1);
    tell(&mut first, "send 7");
    let got = sender.net.poll(sender.member.cq, 1)[0];
    assert_eq!((got.imm, got.has_grh, got.len), (Some(7), true, 44));
    assert_eq!(&sender.member.buf[GRH..GRH + 4], b"back");
    assert_eq!(detach(&sender.net, sender.member.qp, group(1), 0), 0);
    sender.close();
}

#[test]
fn a_detached_member_gets_messages_of_its_other_groups_only() {
    let Some(_one) = one_at_a_time() else { return };
    let sender = SendingMember::new();
    let mut other = start("member");
    tell(&mut other, "attach");
    sender.send(0..1);
    assert_eq!(gets(&mut other, 1).1, [0]);
    tell(&mut other, "detach");
    sender.send(1..2);
    tell(&mut other, "second");
    let second = ah(&sender.net, group(2));
    sender.member.send(&sender.net, second, 4, Some(2));
    // It would have arrived before this one.
    assert_eq!(gets(&mut other, 1).1, [2]);
    sender.net.destroy_ah(second);
    sender.close();
}

#[test]
fn other_members_get_messages_despite_a_dead_or_stopped_one() {
    let Some(_one) = one_at_a_time() else { return };
    let sender = SendingMember::new();
    let [mut killed, mut stopped, mut lives] = [(); 3].map(|()| start("member"));
    for other in [&mut killed, &mut stopped, &mut lives] {
        tell(other, "attach");
    }
    sender.send(0..1);
    killed.signal(libc::SIGKILL);
    killed.wait();
    stopped.stop();
    // More than its ring takes.
    sender.send(1..3_000);
    assert_eq!(gets(&mut lives, N).1, (0..N).collect::<Vec<_>>());
    stopped.signal(libc::SIGCONT);
    assert_eq!(gets(&mut stopped, N).1, (0..N).collect::<Vec<_>>());
    sender.close();
}

#[test]
fn late_messages_arrive_in_other_processes_too() {
    let Some(_one) = one_at_a_time() else { return };
    if is_wired() {
        return eprintln!(
            "a network's faults are options of its device: `roce_multicast` has them"
        );
    }
    let sender = SendingMember::new();
    let mut other = start("member");
    tell(&mut other, "attach");
    let before = counters().faults;
    set_network_faults(1, NetworkFaults { reordering: 1.0, ..NetworkFaults::default() });
    sender.send(0..N);
    set_network_faults(0, NetworkFaults::default());
    let mut got = gets(&mut other, N).1;
    assert_eq!(counters().faults - before, N.into(), "all were kept back");
    got.sort_unstable();
    assert_eq!(got, (0..N).collect::<Vec<_>>(), "each once");
    sender.close();
}

#[test]
fn members_leave_a_process_half_of_its_descriptors() {
    let Some(_one) = one_at_a_time() else { return };
    if is_wired() {
        return eprintln!("members of other processes take no descriptors on a network");
    }
    let mut members: Vec<_> = (0..=MOST).map(|_| start("member")).collect();
    members.iter_mut().for_each(|member| tell(member, "attach"));
    let mut few = start("few descriptors");
    let mut ask = |what: &str| {
        few.say(what);
        few.hear().parse::<i32>().unwrap()
    };
    // It cannot meet all: a refusal changes nothing.
    assert_eq!(ask("attach"), libc::EMFILE);
    assert_eq!(ask("detach"), libc::EINVAL);
    assert_eq!(ask("open"), 0);
    // Some go, and it notices.
    members.truncate(MOST / 2);
    let start = std::time::Instant::now();
    while ask("attach") != 0 {
        assert!(start.elapsed() < PATIENCE);
    }
    assert_eq!(ask("detach"), 0);
}
