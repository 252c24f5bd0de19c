//! A group with a member made by hand, which lies: it is cut off with the reason, and the
//! others still reach the same end.
//!
//! Shows: hostile peers.

mod support;

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::time::{Duration, Instant};

use rdma_conn::conn_core::handshake::{Endpoint, Frame, Options, Parameters, ProtocolId, decode};
use rdma_conn::conn_core::multicast::{
    Contact, MAX_MEMBER_INFO_BYTES, MemberInfo, Members, Place, ROW_WORDS, Record, Row,
    TERMS_BYTES, Terms, Words, header,
};
use rdma_conn::device::Device;
use rdma_conn::multicast::{
    Config, Group, GroupError, Leader, Lie, MAX_MEMBERS, Message, Rank, Reason, join,
};
use rdma_conn::verbs_safe::{
    Mapping, RemoteAccess, RemoteSpan, SharedRegion, SharedRegionConfig, WcStatus,
};
use support::raw::{HandMadeEnd, Shape, parameters, read_frame, write_frame};
use support::{PATIENCE, bounded, device};

const MEMBERS: u8 = 3;

/// Each member sends; rings of a page, and no member is suspected of silence.
fn config() -> Config {
    Config {
        members: MEMBERS,
        senders: MEMBERS,
        window: 8,
        message_bytes: 64,
        ring_bytes: Some(4096),
        suspect_after: PATIENCE,
        ..support::group()
    }
}

/// The hand-made member, and its way to each of the others.
struct RawMember {
    rank: Rank,
    device: Device,
    ends: Vec<Option<HandMadeEnd>>,
    /// Places to which it writes at each of them.
    contacts: Vec<Contact>,
    /// Memory that they write to: it is not read.
    _memory: Vec<SharedRegion>,
    row: Row,
}

const NO_END: Endpoint = Endpoint { qp_num: 0, psn: 0, recv_depth: 0, max_message: 0 };

/// Says that it wants to be a member.
fn say_hello(address: SocketAddr, device: &Device) -> TcpStream {
    let mut stream = TcpStream::connect(address).unwrap();
    let hello = Parameters {
        protocol: ProtocolId::MULTICAST,
        initiator_to_acceptor: Some(NO_END),
        acceptor_to_initiator: Some(NO_END),
        ..parameters(device, Options::NONE)
    };
    write_frame(&mut stream, &Frame::Hello(hello));
    stream
}

impl RawMember {
    fn join(address: SocketAddr, device: &Device) -> RawMember {
        let mut stream = say_hello(address, device);
        let answer = read_frame(&mut stream).expect("an answer");
        let Frame::Accept(told) = decode(&answer).unwrap().frame else { panic!("not accepted") };
        let Terms(terms) = Terms::decode(&told.application[..TERMS_BYTES]).unwrap();
        let (info, ends, memory) = own_info(device, terms.rank);
        write_frame(&mut stream, &Frame::Ready);
        let mut bytes = [0; MAX_MEMBER_INFO_BYTES];
        let len = info.encode(&mut bytes);
        stream.write_all(&bytes[..len]).unwrap();
        let mut contacts = vec![Contact::default(); MEMBERS.into()];
        for (rank, end) in (0..).map(Rank).zip(&ends) {
            let bytes = &mut bytes[..MemberInfo::bytes(MEMBERS)];
            stream.read_exact(bytes).unwrap();
            let info = MemberInfo::decode(bytes, rank, MEMBERS).unwrap();
            let Some(end) = end else { continue };
            contacts[rank.index()] = info.contacts[terms.rank.index()];
            let Contact { qp_num, psn, .. } = contacts[rank.index()];
            let peer =
                Parameters { lid: info.lid, gid: info.gid, ..parameters(device, Options::NONE) };
            end.connect(device, &peer, &Endpoint { qp_num, psn, ..NO_END });
        }
        stream.write_all(b"G").unwrap();
        stream.read_exact(&mut [0]).unwrap();
        let (rank, row, device) = (terms.rank, Row::default(), device.clone());
        RawMember { rank, device, ends, contacts, _memory: memory, row }
    }

    /// The members that it lies to.
    fn others(&self) -> [usize; 2] {
        [0, usize::from(3 - self.rank.0)]
    }

    fn write(&mut self, to: usize, place: Place, offset: u64, words: &[u64]) {
        let bytes: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
        let (addr, len) = (place.addr + offset, bytes.len() as u64);
        let end = self.ends[to].as_mut().expect("another member");
        end.write(&bytes, RemoteSpan { addr, len, rkey: place.rkey });
        end.drain();
    }

    fn write_slots(&mut self, to: usize, offset: u64, words: &[u64]) {
        self.write(to, self.contacts[to].slots, offset, words);
    }

    /// The current row, with its checksums.
    fn words(&self) -> Vec<u64> {
        let mut words = [0; ROW_WORDS];
        let count = self.row.store(MEMBERS, Words::whole(MEMBERS), &mut words);
        words[..count].to_vec()
    }

    fn write_row(&mut self, to: usize, words: &[u64]) {
        self.write(to, self.contacts[to].rows, 0, words);
    }

    /// A message of its own, and that it has received one of each.
    fn be_honest(&mut self) {
        self.row = Row { health: 1, sent: 16, ..Row::default() };
        self.row.received[..3].copy_from_slice(&[1; 3]);
        for to in self.others() {
            self.write_slots(to, 0, &[header(Record::Message(8), 0), 0x4747]);
            self.write_row(to, &self.words());
        }
    }
}

/// The member info that the others get, and the memory that they may write.
fn own_info(
    device: &Device,
    me: Rank,
) -> (MemberInfo, Vec<Option<HandMadeEnd>>, Vec<SharedRegion>) {
    let about = parameters(device, Options::NONE);
    let contacts = [Contact::default(); MAX_MEMBERS];
    let (lid, gid, mtu_bytes) = (about.lid, about.gid, about.mtu.bytes());
    let mut info = MemberInfo { rank: me, members: MEMBERS, lid, mtu_bytes, gid, contacts };
    let mut memory = Vec::new();
    let mut place = || {
        let access = RemoteAccess { read: false, write: true, atomic: false };
        let config = SharedRegionConfig { access, on_demand: false };
        let mapping = Mapping::new(8192).unwrap();
        let region = device.pd().register_shared(mapping, config).unwrap();
        let span = region.remote(0, 8192).unwrap();
        memory.push(region);
        Place { addr: span.addr, len: span.len, rkey: span.rkey }
    };
    let mut end = |rank: u8| {
        let is_other = Rank(rank) != me;
        let end = is_other.then(|| HandMadeEnd::new(device, Shape::default()))?;
        let Endpoint { qp_num, psn, .. } = end.endpoint();
        let contact = Contact { qp_num, psn, rows: place(), slots: place() };
        info.contacts[usize::from(rank)] = contact;
        Some(end)
    };
    let ends = (0..MEMBERS).map(&mut end).collect();
    (info, ends, memory)
}

type Sequence = Vec<(u8, Vec<u8>)>;

fn note(to: &mut Sequence) -> impl FnMut(Message<'_>) {
    |message| to.push((message.from.0, message.bytes.to_vec()))
}

/// Two honest members, and the third; each has sent one message, which the two delivered.
fn group(config: Config) -> ([Group; 2], [Sequence; 2], RawMember) {
    let device = device();
    let leader = Leader::bind("127.0.0.1:0").unwrap();
    let address = leader.local_addr();
    let (first, second, mut liar) = std::thread::scope(|scope| {
        let second = scope.spawn(|| join(address, &device, &config).unwrap().group);
        let liar = scope.spawn(|| RawMember::join(address, &device));
        let first = leader.gather(&device, &config, b"").unwrap().group;
        (first, second.join().unwrap(), liar.join().unwrap())
    });
    let (mut members, mut sequences) = ([first, second], [Sequence::new(), Sequence::new()]);
    for member in &members {
        member.sender().try_send(b"honestly").unwrap();
    }
    send(&mut members, &mut sequences, 1);
    liar.be_honest();
    drive(&mut members, &mut sequences, |members, sequences| {
        members.iter().all(|m| m.error().is_none()) && sequences.iter().any(|s| s.len() < 3)
    });
    assert_eq!(sequences[0].len(), 3, "{members:?}");
    (members, sequences, liar)
}

/// Drives them until their first `messages` have been sent: before that, no member can have
/// received them.
fn send(members: &mut [Group; 2], sequences: &mut [Sequence; 2], messages: u64) {
    let writes = messages * u64::from(MEMBERS - 1);
    drive(members, sequences, |members, _| {
        members.iter().any(|member| member.counts().slot_writes < writes)
    });
}

/// Drives the honest members as long as `goes_on`.
fn drive(
    members: &mut [Group; 2],
    sequences: &mut [Sequence; 2],
    goes_on: impl Fn(&[Group; 2], &[Sequence; 2]) -> bool,
) {
    let deadline = Instant::now() + PATIENCE;
    while goes_on(members, sequences) {
        for (member, sequence) in members.iter_mut().zip(&mut *sequences) {
            member.poll(Instant::now(), note(sequence));
        }
        assert!(Instant::now() < deadline, "{members:?} {sequences:?}");
    }
}

/// The lie that the leader finds in a member that lies to the leader alone. Both honest
/// members end with the same sequence, which has the messages that they had sent meanwhile.
fn verdict(lie: impl Fn(&mut RawMember) + Send + 'static) -> Lie {
    bounded(move || {
        let (mut members, mut sequences, mut liar) = group(config());
        let sent = members.each_ref().map(|m| m.sender().try_send(b"meanwhile").unwrap());
        send(&mut members, &mut sequences, 2);
        lie(&mut liar);
        drive(&mut members, &mut sequences, |members, _| !members.iter().all(Group::is_finished));
        assert_eq!(sequences[0], sequences[1]);
        for (member, sent) in members.iter().zip(sent) {
            assert!(member.sender().is_delivered(sent), "{sequences:?}");
        }
        let cut_off = |reason| Some(GroupError::CutOff { member: liar.rank, reason });
        assert_eq!(members[1].error(), cut_off(Reason::AccusedBy(Rank(0))));
        match members[0].error() {
            Some(GroupError::CutOff { member, reason: Reason::Lied(lie) }) => {
                assert_eq!(member, liar.rank);
                lie
            }
            other => panic!("{other:?}"),
        }
    })
}

#[test]
fn a_row_that_cannot_be_is_a_lie() {
    let row = |change: fn(&mut Row)| {
        move |liar: &mut RawMember| {
            change(&mut liar.row);
            liar.write_row(0, &liar.words());
        }
    };
    assert_eq!(verdict(row(|row| row.health = 0)), Lie::Backwards);
    assert_eq!(verdict(row(|row| row.received[0] = 1000)), Lie::NotSent);
    assert_eq!(verdict(row(|row| row.sent = 16 + 8192)), Lie::BeyondWindow);
    assert_eq!(verdict(row(|row| row.goodbye = 3)), Lie::NoMember);
}

#[test]
fn slots_that_hold_no_message_are_a_lie() {
    let slots = |word: u64| {
        move |liar: &mut RawMember| {
            liar.write_slots(0, 16, &[word, 0]);
            liar.row.sent = 32;
            liar.write_row(0, &liar.words());
        }
    };
    assert_eq!(verdict(slots(0x1234_5678)), Lie::NoRecord);
    assert_eq!(verdict(slots(header(Record::Message(65), 16))), Lie::TooLong { claimed: 65 });
    assert_eq!(verdict(slots(header(Record::Message(64), 16))), Lie::PartOfRecord);
}

/// A device that copies byte by byte shows half a row: it is no lie, and nothing is new yet.
#[test]
fn a_row_that_is_half_written_is_waited_for() {
    bounded(|| {
        let (mut members, mut sequences, mut liar) = group(config());
        let before = liar.words();
        liar.row.health = 0x200;
        let whole = liar.words();
        for half in [[0, before[4]], [0x200, before[4]], [0, whole[4]], [1, whole[4]]] {
            let torn = [&before[..3], &half[..], &before[5..]].concat();
            liar.write_row(0, &torn);
            for _ in 0..100 {
                members[0].poll(Instant::now(), note(&mut sequences[0]));
            }
            assert_eq!(members[0].error(), None, "{half:x?}");
        }
        // The group continues: the next message of each is acknowledged and delivered.
        for member in &members {
            member.sender().try_send(b"again").unwrap();
        }
        liar.row.sent = 32;
        liar.row.received[..3].copy_from_slice(&[2; 3]);
        send(&mut members, &mut sequences, 2);
        for to in liar.others() {
            liar.write_slots(to, 16, &[header(Record::Message(8), 16), 0]);
            liar.write_row(to, &liar.words());
        }
        drive(&mut members, &mut sequences, |_, sequences| sequences.iter().any(|s| s.len() < 6));
        assert_eq!(sequences[0], sequences[1]);
    });
}

/// The liar lives, and shows the leader what `change` makes of its row, while the third member
/// is gone: the leader ends on its own. Returns its reason for the failure of the group.
fn end_without(change: impl Fn(&mut Row, Rank) + Send + 'static) -> GroupError {
    bounded(move || {
        // The liar lives; the other one is missed by its link.
        let link = support::link(support::budget::mortal());
        let config = Config { suspect_after: Duration::from_secs(10), link, ..config() };
        let ([mut leader, other], _, mut liar) = group(config);
        let gone = other.rank();
        leader.sender().try_send(b"undelivered").unwrap();
        leader.progress(Instant::now()); // before that, no member can have received it
        let (stop, stopped) = channel::<()>();
        let living = std::thread::spawn(move || {
            let tick = Duration::from_millis(10);
            while stopped.recv_timeout(tick) == Err(RecvTimeoutError::Timeout) {
                liar.row.health += 1;
                change(&mut liar.row, gone);
                liar.write_row(0, &liar.words());
            }
        });
        drop(other);
        let ended = leader.spawn(|_| {}).unwrap().finish();
        drop(stop);
        living.join().unwrap();
        let error = ended.unwrap_err();
        if let GroupError::CutOff { member, reason } = error
            && member != gone
        {
            assert_eq!(reason, Reason::Withholds);
        }
        error
    })
}

#[test]
fn a_member_that_withholds_messages_does_not_delay_the_end() {
    fn agree(row: &mut Row, gone: Rank) {
        row.suspected = Members::NONE.with(gone);
        row.wedged = row.suspected;
    }
    let suspects = |row: &mut Row, gone: Rank| row.suspected = Members::NONE.with(gone);
    let claims = |row: &mut Row, gone: Rank| {
        agree(row, gone);
        row.received[0] = 2;
        row.received[gone.index()] = 2;
    };
    // With `agree` it lacks the message that the leader has sent; and it claims one that no member
    // has.
    let changes: [fn(&mut Row, Rank); 4] = [|_, _| {}, suspects, agree, claims];
    support::at_once(changes, |change| {
        let end = end_without(change);
        assert!(matches!(end, GroupError::CutOff { .. }), "{end:?}");
    });
}

#[test]
fn a_member_that_leaves_during_gathering_is_replaced() {
    let (device, config) = (device(), config());
    let leader = Leader::bind("127.0.0.1:0").unwrap();
    let address = leader.local_addr();
    // Says that it wants to be a member, and goes.
    drop(say_hello(address, &device));
    std::thread::scope(|scope| {
        let members = [(); 2].map(|()| scope.spawn(|| join(address, &device, &config)));
        assert_eq!(leader.gather(&device, &config, b"").unwrap().group.rank(), Rank(0));
        assert!(members.into_iter().all(|member| member.join().unwrap().is_ok()));
    });
}

/// A key of memory that is not the group's, guessed by a member.
#[test]
fn a_member_reaches_no_memory_but_the_groups() {
    bounded(|| {
        let (_members, _sequences, mut liar) = group(config());
        let config = SharedRegionConfig { access: RemoteAccess::ALL, on_demand: false };
        // The group was made with a handle of the same device; this is another connection's.
        let elsewhere = liar.device.pd().register_shared(Mapping::new(4096).unwrap(), config);
        let elsewhere = elsewhere.unwrap();
        let end = liar.ends[0].as_mut().expect("another member");
        end.write(b"a guess!", elsewhere.remote(0, 8).unwrap());
        assert_eq!(end.drain().last(), Some(&WcStatus::REM_ACCESS));
        assert_eq!(elsewhere.load_u64(0), Ok(0));
    });
}
