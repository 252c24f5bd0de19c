//! A replicated key-value store: every member of a group has all of it.
//!
//! A member multicasts what is to be set, and all of them set it when it is delivered: in
//! the same order everywhere, so that all have the same. When its own message is delivered
//! to it, every member has received it, and the member acknowledges: no acknowledged value
//! is lost, whichever member dies then.
//!
//! After a member is cut off, the survivors deliver what they have agreed on, and continue as a
//! new group without it, which begins with the values that all of them have.
//!
//! ```text
//! cargo run --example replicated                            # three members, one dies
//! cargo run --example replicated lead 127.0.0.1:7471 3      # in three terminals, or hosts
//! cargo run --example replicated join 127.0.0.1:7471
//! ```
//!
//! Each member takes commands line by line until its input ends: `set KEY VALUE`, `get KEY`,
//! and `dump`, which prints `have KEY VALUE` for each, and `end`. A member prints `ok KEY` when
//! a value is set for good. The members of a new group meet at the
//! same host, one port higher, where the lowest of them leads.

use std::collections::{BTreeMap, VecDeque};
use std::io::BufRead;
use std::net::SocketAddr;
use std::sync::mpsc::{Receiver, TryRecvError, channel};
use std::time::{Duration, Instant};

use rdma_conn::device::{self, Device};
use rdma_conn::multicast::{
    Config, Group, GroupError, Leader, Message, Policy, SendError, Ticket, in_process, join,
};

type Result<T = ()> = std::result::Result<T, Box<dyn std::error::Error>>;

/// Time that a member that joins waits for the leader to listen.
const PATIENCE: Duration = Duration::from_secs(20);

fn config(members: u8) -> Config {
    Config {
        members,
        senders: members,
        window: 100,
        message_bytes: 256,
        // Members that have nothing to set do not delay the others.
        policy: Policy::OpportunisticWithNulls,
        health: Duration::from_millis(50),
        suspect_after: Duration::from_secs(2),
        ..Config::default()
    }
}

/// State that every member has a copy of.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
struct Store(BTreeMap<String, String>);

impl Store {
    fn apply(&mut self, message: Message<'_>) {
        let text = String::from_utf8_lossy(message.bytes);
        if let Some((key, value)) = text.split_once(' ') {
            self.0.insert(key.to_owned(), value.to_owned());
        }
    }
}

pub(crate) fn main() -> Result {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    run(&arguments.iter().map(String::as_str).collect::<Vec<_>>())
}

pub(crate) fn run(arguments: &[&str]) -> Result {
    match arguments {
        ["lead", address, members] => {
            Member::meet(address.parse()?, Some(members.parse()?))?.serve()
        }
        ["join", address] => Member::meet(address.parse()?, None)?.serve(),
        // The test's harness has arguments of its own.
        _ => demonstration(),
    }
}

/// Three members in one process; one of them dies, the others continue.
fn demonstration() -> Result {
    let device = device::of_environment()?;
    let mut stores = vec![Store::default(); 3];
    let mut group = in_process(&device, &config(3))?;
    let tickets = (0..30).map(|n| group[n % 3].sender().try_send(format!("key{n} {n}").as_bytes()));
    let tickets: Vec<Ticket> = tickets.collect::<std::result::Result<_, _>>()?;
    drive(&mut group, &mut stores, |group| {
        (0..30).all(|n| group[n % 3].sender().is_delivered(tickets[n]))
    })?;
    let late = group[0].sender().try_send(b"late set while a member dies")?;
    drop(group.pop()); // as good as dead: its memory and its queue pairs are gone
    drive(&mut group, &mut stores, |group| group.iter().all(Group::is_finished))?;
    let reason = group[0].error().ok_or("the survivors have noticed")?;
    println!("{reason}; acknowledged before: {}", group[0].sender().is_delivered(late));
    assert_eq!(stores[0], stores[1], "the survivors agree");
    assert_eq!(stores[0].0.len(), 31, "nothing is lost");

    let mut group = in_process(&device, &config(2))?;
    let ticket = group[1].sender().try_send(b"key0 changed by two")?;
    drive(&mut group, &mut stores, |group| group[1].sender().is_delivered(ticket))?;
    drive(&mut group, &mut stores, |_| true)?;
    println!("two continue: key0 is {:?}", stores[1].0["key0"]);
    Ok(())
}

/// Drives all members until `done`.
fn drive(group: &mut [Group], stores: &mut [Store], done: impl Fn(&[Group]) -> bool) -> Result {
    let end = Instant::now() + PATIENCE;
    loop {
        for (member, store) in group.iter_mut().zip(&mut *stores) {
            member.poll(Instant::now(), |message| store.apply(message));
        }
        if done(group) {
            return Ok(());
        }
        if Instant::now() > end {
            return Err(format!("the group does not get on: {group:?}").into());
        }
    }
}

/// One member in a process of its own.
struct Member {
    device: Device,
    /// Address at which the present group has met.
    address: SocketAddr,
    /// None when all others have gone.
    group: Option<Group>,
    store: Store,
    /// Settings that were asked for and are not acknowledged: each with its ticket, once it was
    /// sent.
    asked: VecDeque<(String, Option<Ticket>)>,
}

impl Member {
    /// Joins the group: as the leader of `members` members, or as one of them.
    fn meet(address: SocketAddr, members: Option<u8>) -> Result<Member> {
        let device = device::of_environment()?;
        let group = Some(meet(&device, address, members)?);
        Ok(Member { device, address, group, store: Store::default(), asked: VecDeque::new() })
    }

    fn serve(mut self) -> Result {
        let lines = lines();
        loop {
            self.progress()?;
            match lines.try_recv() {
                Ok(line) => self.obey(&line),
                Err(TryRecvError::Empty) => std::thread::yield_now(),
                Err(TryRecvError::Disconnected) => return self.quit(),
            }
            if self.group.as_ref().is_some_and(Group::is_finished) {
                self.go_on()?;
            }
        }
    }

    fn obey(&mut self, line: &str) {
        match line.split_whitespace().collect::<Vec<_>>()[..] {
            ["set", key, value] => self.asked.push_back((format!("{key} {value}"), None)),
            ["get", key] => println!("{key} {}", self.store.0.get(key).map_or("-", |v| v)),
            ["dump"] => {
                self.store.0.iter().for_each(|(key, value)| println!("have {key} {value}"));
                println!("end");
            }
            _ => println!("set KEY VALUE, get KEY, dump, or the end of the input"),
        }
    }

    /// Sends what was asked for, delivers, and acknowledges what has been.
    fn progress(&mut self) -> Result {
        let Member { group: Some(group), store, asked, .. } = self else {
            self.alone();
            return Ok(());
        };
        let sender = group.sender();
        for (text, ticket) in asked.iter_mut().filter(|(_, ticket)| ticket.is_none()) {
            match sender.try_send(text.as_bytes()) {
                Ok(sent) => *ticket = Some(sent),
                Err(SendError::WindowFull | SendError::Group(_)) => break,
                Err(e) => return Err(e.into()),
            }
        }
        group.poll(Instant::now(), |message| store.apply(message));
        let is_set = |asked: &mut (String, Option<Ticket>)| {
            asked.1.is_some_and(|ticket| sender.is_delivered(ticket))
        };
        while let Some((text, _)) = asked.pop_front_if(is_set) {
            acknowledge(&text);
        }
        match group.error() {
            Some(e @ GroupError::Excluded { .. }) => Err(e.into()),
            _ => Ok(()),
        }
    }

    /// The last member sets values at once.
    fn alone(&mut self) {
        for (text, _) in self.asked.drain(..) {
            if let Some((key, value)) = text.split_once(' ') {
                self.store.0.insert(key.to_owned(), value.to_owned());
            }
            acknowledge(&text);
        }
    }

    /// The group has ended: the survivors meet again. What was not acknowledged is sent
    /// again.
    fn go_on(&mut self) -> Result {
        let Some(group) = self.group.take() else { return Ok(()) };
        let Some(error) = group.error() else { return Err("the others have ended".into()) };
        let (all, cut_off, rank) = (group.config().all(), group.cut_off(), group.rank());
        let survivors = all.minus(cut_off);
        println!("{error}; {} continue", survivors.len());
        let _ = group.finish(PATIENCE, |message| self.store.apply(message));
        self.asked.iter_mut().for_each(|(_, ticket)| *ticket = None);
        self.address.set_port(self.address.port() + 1);
        if survivors.len() > 1 {
            let leads = survivors.lowest() == Some(rank);
            let members = leads.then_some(survivors.len() as u8);
            self.group = Some(meet(&self.device, self.address, members)?);
            println!("met");
        }
        Ok(())
    }

    fn quit(mut self) -> Result {
        if let Some(group) = self.group.take() {
            group.leave(PATIENCE, |message| self.store.apply(message))?;
        }
        Ok(())
    }
}

fn acknowledge(text: &str) {
    println!("ok {}", text.split(' ').next().unwrap_or(text));
}

/// Leads a group of `members`, or joins the one at `address`, as soon as it is there.
fn meet(device: &Device, address: SocketAddr, members: Option<u8>) -> Result<Group> {
    if let Some(members) = members {
        let leader = Leader::bind(address)?;
        return Ok(leader.gather(device, &config(members), b"")?.group);
    }
    let end = Instant::now() + PATIENCE;
    loop {
        match join(address, device, &config(2)) {
            Ok(joined) => return Ok(joined.group),
            Err(e) if Instant::now() > end => return Err(e.into()),
            Err(_) => std::thread::yield_now(),
        }
    }
}

/// The lines of standard input, as they are typed.
fn lines() -> Receiver<String> {
    let (tell, told) = channel();
    std::thread::spawn(move || {
        for line in std::io::stdin().lock().lines().map_while(std::result::Result::ok) {
            if tell.send(line).is_err() {
                break;
            }
        }
    });
    told
}
