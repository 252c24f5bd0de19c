//! A group of members in one process, on the device of the environment.
//!
//! Shows: one protocol.

mod support;

use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use rdma_conn::multicast::{
    Config, Group, GroupError, Message, Policy, Rank, SendError, in_process, writes_per_multicast,
};
use support::device;

type Sequence = Vec<(u8, Vec<u8>)>;

const LIMIT: Duration = Duration::from_secs(30);

fn group(config: Config) -> Vec<Group> {
    in_process(&device(), &config).expect("a group")
}

fn note(to: &mut Sequence) -> impl FnMut(Message<'_>) {
    |message| to.push((message.from.0, message.bytes.to_vec()))
}

/// Drives all members until each has delivered `count` messages in all.
fn drive(members: &mut [Group], sequences: &mut [Sequence], count: usize) {
    let end = Instant::now() + LIMIT;
    while sequences.iter().any(|sequence| sequence.len() < count) {
        for (member, sequence) in members.iter_mut().zip(&mut *sequences) {
            member.poll(Instant::now(), note(sequence));
        }
        assert!(Instant::now() < end, "{members:?}: {:?}", sequences.iter().map(Vec::len));
    }
}

fn writes(members: &[Group]) -> u64 {
    members.iter().map(|member| member.counts().writes()).sum()
}

#[test]
fn all_deliver_the_same_whatever_the_policy() {
    let policies = [Policy::Every(1), Policy::Every(7), Policy::Opportunistic];
    for policy in policies.into_iter().chain([Policy::OpportunisticWithNulls]) {
        let config = Config {
            members: 3,
            senders: 3,
            window: 20,
            message_bytes: 100,
            policy,
            ..support::group()
        };
        let mut members = group(config);
        let mut sequences = vec![Sequence::new(); 3];
        for number in 0..500usize {
            for (rank, member) in members.iter().enumerate() {
                let message = vec![number as u8; (number * 7 + rank) % 101];
                member.sender().try_send(&message).expect("the window has room");
            }
            if number % 9 == 8 {
                drive(&mut members, &mut sequences, (number + 1) * 3);
            }
        }
        drive(&mut members, &mut sequences, 1500);
        assert!(sequences.iter().all(|sequence| sequence == &sequences[0]), "{policy}");
        for (rank, number) in (0..3).flat_map(|rank| (0..500).map(move |number| (rank, number))) {
            let (from, bytes) = &sequences[0][number * 3 + rank];
            let expected = vec![number as u8; (number * 7 + rank) % 101];
            assert_eq!((usize::from(*from), bytes), (rank, &expected));
        }
    }
}

#[test]
fn members_count_what_the_formula_says() {
    let device = device();
    for members in [2, 3, 5] {
        let config = Config {
            members,
            health: Duration::from_secs(3600),
            suspect_after: Duration::from_secs(7200),
            ..support::group()
        };
        let mut all = in_process(&device, &config).expect("a group");
        let mut sequences = vec![Sequence::new(); members.into()];
        for number in 0..300usize {
            all[0].sender().try_send(&number.to_le_bytes()).expect("room");
            if number % 10 == 0 {
                drive(&mut all, &mut sequences, number + 1);
            }
        }
        drive(&mut all, &mut sequences, 300);
        // What the last ones have acknowledged may be on its way.
        (0..3).for_each(|_| all.iter_mut().for_each(|member| member.progress(Instant::now())));
        assert_eq!(writes(&all), 300 * u64::from(writes_per_multicast(members)));
    }
}

#[test]
fn messages_go_round_the_ring_whole() {
    let config = Config { window: 5, message_bytes: 1000, ..support::group() };
    let mut members = group(config);
    let mut sequences = vec![Sequence::new(); 3];
    let sender = members[0].sender();
    let message = |number: usize| -> Vec<u8> {
        (0..number * 37 % 1001).map(|i| (i * number) as u8).collect()
    };
    for number in 0..400 {
        let bytes = message(number);
        if number % 2 == 0 {
            sender.try_send(&bytes).expect("room");
        } else {
            let mut buffer = sender.get_buffer(bytes.len()).expect("room");
            let (front, back) = bytes.split_at(bytes.len() / 3);
            buffer.write(front.len(), back);
            buffer.write(0, front);
            buffer.send();
        }
        if number % 3 == 0 {
            drop(sender.get_buffer(500).expect("room"));
        }
        drive(&mut members, &mut sequences, number + 1);
    }
    for sequence in sequences {
        assert!(
            sequence
                .iter()
                .enumerate()
                .all(|(n, (from, bytes))| (*from, bytes) == (0, &message(n)))
        );
    }
}

#[test]
fn what_cannot_be_sent_is_refused_by_name() {
    let members = group(Config { window: 2, message_bytes: 10, ..support::group() });
    let sender = members[0].sender();
    assert_eq!(sender.try_send(&[0; 11]), Err(SendError::TooLong { len: 11, most: 10 }));
    assert_eq!(members[1].sender().try_send(b"hello"), Err(SendError::NotSender));
    sender.try_send(b"one").expect("room");
    sender.try_send(b"two").expect("room");
    assert_eq!(sender.try_send(b"three"), Err(SendError::WindowFull));
    sender.end();
    assert_eq!(sender.try_send(b"three"), Err(SendError::Ended));
    let too_many = Config { policy: Policy::Every(3), window: 2, ..support::group() };
    assert!(in_process(&device(), &too_many).is_err());
}

#[test]
fn many_threads_send_and_all_members_have_threads() {
    const EACH: usize = 2000;
    let config =
        Config { senders: 2, window: 50, policy: Policy::Opportunistic, ..support::group() };
    let sequences: Vec<_> = (0..3).map(|_| Arc::new(Mutex::new(Sequence::new()))).collect();
    let members: Vec<_> = group(config)
        .into_iter()
        .zip(&sequences)
        .map(|(member, sequence)| {
            let sequence = sequence.clone();
            member
                .spawn(move |m| note(&mut sequence.lock().expect("no panic"))(m))
                .expect("a thread")
        })
        .collect();
    std::thread::scope(|scope| {
        for (rank, thread) in [(0, 0u8), (0, 1), (1, 2), (1, 3)] {
            let sender = members[rank].sender().clone();
            scope.spawn(move || {
                for number in 0..EACH {
                    let message = [&[thread][..], &number.to_le_bytes()].concat();
                    sender.send(&message).expect("the group is open");
                }
            });
        }
    });
    // All streams end before any thread waits for the end.
    members.iter().for_each(|member| member.sender().end());
    for member in members {
        member.finish().expect("a clean end");
    }
    let sequences: Vec<Sequence> =
        sequences.iter().map(|sequence| sequence.lock().expect("no panic").clone()).collect();
    assert!(sequences.iter().all(|sequence| sequence == &sequences[0]));
    for thread in 0..4 {
        let numbers = sequences[0].iter().filter(|(_, bytes)| bytes[0] == thread);
        let numbers = numbers.map(|(_, bytes)| bytes[1..].to_vec());
        assert!(numbers.eq((0..EACH).map(|number| number.to_le_bytes().to_vec())));
    }
}

#[test]
fn a_member_that_is_gone_is_cut_off_and_the_survivors_agree() {
    let config = Config {
        members: 3,
        senders: 3,
        window: 50,
        policy: Policy::Opportunistic,
        link: support::link(support::budget::mortal()),
        ..support::group()
    };
    let mut members = group(config);
    let mut sequences = vec![Sequence::new(); 3];
    for number in 0..30u8 {
        members.iter().for_each(|member| {
            member.sender().try_send(&[number]).expect("room");
        });
    }
    drive(&mut members, &mut sequences, 60);
    let tickets: Vec<_> =
        members.iter().map(|m| m.sender().try_send(b"after").expect("room")).collect();
    members[2].progress(Instant::now()); // the last words of it
    drop(members.pop());
    let dead = sequences.pop().expect("three");
    let end = Instant::now() + LIMIT;
    while members.iter().any(|member| !member.is_finished()) {
        for (member, sequence) in members.iter_mut().zip(&mut sequences) {
            member.poll(Instant::now(), note(sequence));
        }
        assert!(Instant::now() < end, "{members:?}");
    }
    assert_eq!(sequences[0], sequences[1]);
    assert!(sequences[0].starts_with(&dead), "what it had delivered, all have");
    for (member, ticket) in members.iter().zip(tickets) {
        let error = member.error();
        assert!(matches!(error, Some(GroupError::CutOff { member: Rank(2), .. })), "{error:?}");
        assert!(member.sender().is_delivered(ticket), "what survivors have sent is delivered");
        let refused = member.sender().try_send(b"more");
        assert!(matches!(refused, Err(SendError::Group(_))), "{refused:?}");
    }
}

#[test]
fn a_member_that_leaves_early_ends_the_group_for_the_others() {
    let mut members =
        group(Config { senders: 2, policy: Policy::Opportunistic, ..support::group() });
    let mut sequences = vec![Sequence::new(); 3];
    members[0].sender().try_send(b"a").expect("room");
    members[1].sender().try_send(b"b").expect("room");
    drive(&mut members, &mut sequences, 2);
    let leaver = members.pop().expect("three");
    leaver.leave(LIMIT, |_| {}).expect("a clean leave");
    let end = Instant::now() + LIMIT;
    while members.iter().any(|member| !member.is_finished()) {
        for member in &mut members {
            member.poll(Instant::now(), |_| {});
        }
        assert!(Instant::now() < end, "{members:?}");
    }
    let left = "member 2 was cut off: it has left";
    assert!(members.iter().any(|m| m.error().expect("an end").to_string() == left));
}

#[test]
fn a_group_finishes_without_an_error() {
    let mut members = group(Config { policy: Policy::Every(100), ..support::group() });
    let sender = members[0].sender();
    for _ in 0..10 {
        sender.try_send(b"x").expect("room");
    }
    members.iter().for_each(|member| member.sender().end());
    let end = Instant::now() + LIMIT;
    let mut count = 0;
    while members.iter().any(|member| !member.is_finished()) {
        members.iter_mut().for_each(|member| count += member.poll(Instant::now(), |_| {}));
        assert!(Instant::now() < end, "{members:?}");
    }
    assert_eq!(count, 30);
    for member in members {
        member.finish(LIMIT, |_| {}).expect("a clean end");
    }
}

/// A thread that sends or waits gets an error when the member goes, however it goes.
#[test]
fn senders_get_an_error_when_their_member_goes() {
    let ways: [fn(Group); 3] = [
        drop,
        |group| {
            // The others never end.
            let ended = group.finish(Duration::from_millis(1), |_| {});
            assert!(matches!(ended, Err(GroupError::TimedOut { .. })), "{ended:?}");
        },
        |mut group| {
            let delivering = AssertUnwindSafe(|| {
                loop {
                    group.poll(Instant::now(), |_| resume_unwind(Box::new("asked for")));
                }
            });
            catch_unwind(delivering).unwrap_err();
        },
    ];
    for way in ways {
        let config = Config { members: 2, senders: 2, window: 4, ..support::group() };
        let [mine, other] = <[Group; 2]>::try_from(group(config)).expect("two members");
        let (sender, mut other) = (mine.sender(), [other]);
        // The last of them waits for room, or was delivered; nothing is delivered after that.
        let sending = std::thread::spawn(move || {
            loop {
                match sender.send(b"message") {
                    Ok(ticket) => drop(sender.wait(ticket)),
                    Err(e) => break e,
                }
            }
        });
        let end = Instant::now() + LIMIT;
        std::thread::scope(|scope| {
            let gone = scope.spawn(|| way(mine));
            while !gone.is_finished() {
                other[0].sender().try_send(b"another").ok();
                other[0].poll(Instant::now(), |_| {});
                assert!(Instant::now() < end);
            }
        });
        while !sending.is_finished() {
            assert!(Instant::now() < end, "the sender got no error");
            std::thread::yield_now();
        }
        let told = sending.join().unwrap();
        assert!(matches!(told, SendError::Group(_) | SendError::Ended), "{told}");
    }
}
