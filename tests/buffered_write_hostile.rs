//! Buffered Write with peers that lie, and peers that die: threads that wait get a typed
//! error, and other peers are not affected.
//!
//! Shows: hostile peers.

mod support;

use std::os::unix::net::UnixStream;

use rdma_conn::buffered_write::{
    CloseReason, Config, Peer, ProtocolError, Receiver, RecvError, SendError, Sender, Tail,
};
use rdma_conn::conn_core::buffered_write::{PushedError, UpdateError};
use rdma_conn::conn_core::checksum::checksum_of;
use rdma_conn::conn_core::ring::offer;
use rdma_conn::conn_core::ring::{HeadError, RecordError, TailError};
use rdma_conn::device::Device;
use rdma_conn::ring::Layout;
use rdma_conn::{BufferedWrite, Listener, RecvHalf, SendHalf, connect_sender_over, join, receiver};
use support::write::{RawReceiver, RawSender, inquisitive, small};
use support::{assert_content, bounded, content, device};

const WRITTEN: Tail = Tail::Written;
const IMMEDIATE: Tail = Tail::Immediate { window: 4 };
const BOTH: [Tail; 2] = [WRITTEN, IMMEDIATE];

/// A receiver with an honest peer 0, and a hand-made one, 1.
fn victim_receiver(device: &Device, config: &Config) -> (Receiver, Sender, RawSender) {
    let mut victim = receiver::<BufferedWrite>(device, config, 2).unwrap();
    let honest = join::<BufferedWrite>(&mut victim, device, device, config).unwrap();
    let listener = Listener::<BufferedWrite>::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr();
    let raw = std::thread::scope(|scope| {
        let raw = scope.spawn(|| RawSender::to(address, device));
        listener.next().unwrap().accept_into(&mut victim, device, config).unwrap();
        raw.join().unwrap()
    });
    (victim, honest, raw)
}

fn violated(ended: &RecvError) -> ProtocolError {
    match ended {
        RecvError::Peer { peer: Peer(1), reason: CloseReason::Protocol(violation) } => {
            violation.clone()
        }
        other => panic!("{other:?}"),
    }
}

/// Returns the error that the liar gets, after one honest message of it, while the honest peer goes
/// on.
fn verdict(
    tail: Tail,
    layout: Layout,
    lie: impl Fn(&mut RawSender) + Send + 'static,
) -> ProtocolError {
    bounded(move || {
        let (device, config) = (device(), small(layout, tail));
        let (mut victim, mut honest, mut liar) = victim_receiver(&device, &config);
        liar.put_record(0, 8, b"12345678");
        liar.tell(16, false);
        let message = victim.recv().unwrap();
        assert_eq!((message.peer(), &*message), (Peer(1), &b"12345678"[..]));
        lie(&mut liar);
        let violation = violated(&victim.recv().unwrap_err());
        for number in 0..100 {
            honest.send_acked(&content(1, number, 100)).unwrap();
            assert_content(&victim.recv().unwrap(), 1, number, 100);
        }
        assert!(matches!(victim.try_recv(), Err(RecvError::Empty)), "it is reported once");
        drop(honest);
        assert!(matches!(victim.recv(), Err(RecvError::Closed)));
        violation
    })
}

#[test]
fn a_tail_that_cannot_be_ends_its_connection_alone() {
    let told = |position, is_last| move |liar: &mut RawSender| liar.tell(position, is_last);
    let tail = ProtocolError::Tail;
    let mirrored = Layout::Mirrored;
    assert_eq!(verdict(WRITTEN, mirrored, told(8, false)), tail(TailError::Backwards { by: 8 }));
    for form in BOTH {
        let over = verdict(form, mirrored, told(16 + 4096 + 8, false));
        assert_eq!(over, tail(TailError::BeyondCapacity { by: 8 }), "{form:?}");
    }
    assert_eq!(verdict(WRITTEN, mirrored, told(20, false)), tail(TailError::Misaligned));
    let back = verdict(IMMEDIATE, mirrored, told(8, false));
    assert!(matches!(back, ProtocolError::Tail(TailError::BeyondCapacity { .. })), "{back:?}");
}

/// A device that copies byte by byte shows half a tail: it is no lie, and nothing is new yet.
#[test]
fn a_tail_that_is_half_written_is_waited_for() {
    bounded(|| {
        let (device, config) = (device(), small(Layout::Plain, WRITTEN));
        let (mut victim, _honest, mut liar) = victim_receiver(&device, &config);
        liar.put_record(0, 0x1f0, b"");
        liar.put_record(0x1f8, 0x50, b"");
        liar.tell(0x1f8, false);
        assert_eq!(victim.recv().unwrap().len(), 0x1f0);
        // From 0x1f8 to 0x250: the low byte has arrived, and the rest not yet.
        for half in [[0x150, checksum_of(&[0x1f8])], [0x250, checksum_of(&[0x1f8])], [0x3f8, 0]] {
            liar.write_tail(half);
            liar.raw.drain();
            for _ in 0..100 {
                assert!(matches!(victim.try_recv(), Err(RecvError::Empty)), "{half:x?}");
            }
        }
        liar.tell(0x250, false);
        assert_eq!(victim.recv().unwrap().len(), 0x50);
    });
}

/// A record that lies beside a tail is taken from there: its place in the ring is not looked at,
/// and what precedes it is in the ring.
#[test]
fn a_record_inline_with_its_tail_is_taken_from_there() {
    bounded(|| {
        for layout in [Layout::Mirrored, Layout::Plain] {
            let (device, config) = (device(), small(layout, WRITTEN));
            let (mut victim, _honest, mut liar) = victim_receiver(&device, &config);
            liar.tell_inline(24, 0, b"beside it");
            liar.raw.drain();
            assert_eq!(&*victim.recv().unwrap(), b"beside it");
            // Two that were overtaken, one of which is only in the ring by now.
            liar.put_record(24, 8, b"in there");
            liar.tell_inline(56, 40, b"12345678");
            liar.raw.drain();
            assert_eq!(&*victim.recv().unwrap(), b"in there");
            assert_eq!(&*victim.recv().unwrap(), b"12345678");
            liar.tell_inline(72, 56, b"in place");
            liar.raw.drain();
            let word = victim.recv_in_place(|_, view| view.words().next()).unwrap();
            assert_eq!(word, Some(*b"in place"));
        }
    });
}

#[test]
fn a_record_inline_with_its_tail_that_lies_is_not_followed() {
    let beside =
        |tail, position| move |liar: &mut RawSender| liar.tell_inline(tail, position, &[1; 40]);
    for layout in [Layout::Mirrored, Layout::Plain] {
        // After a record of 16 bytes: it would begin before that one's end.
        let early = verdict(WRITTEN, layout, beside(32, 16));
        assert_eq!(early, ProtocolError::Pushed(PushedError::InlineRecord { by: 16 }));
        let far = verdict(WRITTEN, layout, beside(16 + 4096 + 8, 16));
        assert_eq!(far, ProtocolError::Tail(TailError::BeyondCapacity { by: 8 }));
        let elsewhere = verdict(WRITTEN, layout, beside(64, 24));
        assert_eq!(elsewhere, ProtocolError::Record(RecordError::Mark { position: 16 }));
    }
}

/// A record does not cross the end of memory: neither in the ring nor beside a tail.
#[test]
fn an_inline_record_across_the_end_of_the_ring_is_refused() {
    for in_place in [false, true] {
        bounded(move || {
            let (device, config) = (device(), small(Layout::Plain, WRITTEN));
            let (mut victim, mut honest, mut liar) = victim_receiver(&device, &config);
            for position in [0, 2040] {
                liar.put_record(position, 2032, &[]);
                liar.tell(position + 2040, false);
                assert_eq!(victim.recv().unwrap().len(), 2032);
            }
            liar.tell_inline(4080 + 48, 4080, &[1; 40]);
            liar.raw.drain();
            let refused = match in_place {
                true => victim.recv_in_place(|_, _| ()).unwrap_err(),
                false => victim.recv().unwrap_err(),
            };
            assert_eq!(violated(&refused), ProtocolError::Record(RecordError::Wrap));
            honest.send_acked(b"others go on").unwrap();
            assert_eq!(&*victim.recv().unwrap(), b"others go on");
        });
    }
}

#[test]
fn a_record_that_lies_is_not_followed() {
    use ProtocolError::Record;
    for form in BOTH {
        for layout in [Layout::Mirrored, Layout::Plain] {
            let most = small(layout, form).ring.message_bytes;
            let lies: [(u32, u64, RecordError); 3] = [
                (most + 1, 4096, RecordError::TooLong { claimed: most + 1, most }),
                (u32::MAX, 4096, RecordError::TooLong { claimed: u32::MAX, most }),
                (80, 64, RecordError::BeyondTail { by: 16 + 88 - 64 }),
            ];
            for (len, tail, expected) in lies {
                let lie = move |liar: &mut RawSender| {
                    liar.put_record(16, len, b"");
                    liar.tell(tail, false);
                };
                assert_eq!(verdict(form, layout, lie), Record(expected), "{len} {layout:?}");
            }
            // The header of another place, and none at all.
            for word in [17u64 << 29 | 8, 8, u64::MAX] {
                let lie = move |liar: &mut RawSender| {
                    liar.put(16, &word.to_le_bytes());
                    liar.tell(64, false);
                };
                let violation = verdict(form, layout, lie);
                assert!(matches!(violation, Record(_)), "{word:#x}: {violation:?}");
            }
        }
    }
    let wraps = |liar: &mut RawSender| {
        // A skip record that leaves the liar at the end of its lap, and one over it.
        let skip = (16u64 << 29 | (4096 - 16 - 16 - 8)) ^ 1 << 63;
        liar.put(16, &skip.to_le_bytes());
        liar.put_record(4096 - 16, 100, b"");
        liar.tell(4096, false);
    };
    let wrap = verdict(WRITTEN, Layout::Plain, wraps);
    assert!(matches!(wrap, Record(RecordError::BeyondTail { .. } | RecordError::Wrap)), "{wrap:?}");
}

#[test]
fn immediates_without_a_credit_or_a_meaning_end_one_connection() {
    // All are there before the first is looked at: each that is gives credit for another.
    let many = |liar: &mut RawSender| {
        (0..6).for_each(|_| liar.tell_imm(2));
        liar.raw.drain();
    };
    let overrun = verdict(IMMEDIATE, Layout::Mirrored, many);
    assert_eq!(overrun, ProtocolError::Pushed(PushedError::Uncredited));
    let plain = |liar: &mut RawSender| liar.raw.control(2);
    let meaningless = verdict(IMMEDIATE, Layout::Mirrored, plain);
    assert_eq!(meaningless, ProtocolError::Pushed(PushedError::Uncredited));
    for form in BOTH {
        let undead = |liar: &mut RawSender| {
            liar.put_record(16, 0, b"");
            liar.tell(16, true);
            liar.tell(24, false);
        };
        let said = bounded(move || {
            let (device, config) = (device(), small(Layout::Mirrored, form));
            let (mut victim, _honest, mut liar) = victim_receiver(&device, &config);
            liar.put_record(0, 8, b"12345678");
            liar.tell(16, false);
            drop(victim.recv().unwrap());
            undead(&mut liar);
            // Its goodbye counts if it was seen before what follows.
            victim.try_recv().map(drop)
        });
        match said {
            Err(RecvError::Empty)
            | Err(RecvError::Peer { reason: CloseReason::Protocol(_), .. }) => {}
            Ok(()) => assert_eq!(form, WRITTEN, "the goodbye was overwritten before it was seen"),
            Err(e) => panic!("{e}"),
        }
    }
}

/// A peer that writes on into what it has told: what was handed out does not change.
#[test]
fn a_ring_that_changes_under_our_feet_changes_no_message() {
    for form in BOTH {
        bounded(move || {
            let (device, config) = (device(), small(Layout::Mirrored, form));
            let (mut victim, _honest, mut liar) = victim_receiver(&device, &config);
            for number in 0..3 {
                liar.put_record(16 * number, 8, &[number as u8; 8]);
            }
            liar.tell(48, false);
            let first = victim.recv().unwrap();
            assert_eq!(*first, [0; 8]);
            liar.put(0, &[0xff; 48]);
            liar.raw.drain();
            // They were copied together, and are what they were.
            assert_eq!(*victim.recv().unwrap(), [1; 8]);
            assert_eq!(*victim.recv().unwrap(), [2; 8]);
            assert_eq!(*first, [0; 8]);
        });
    }
}

/// A peer that writes as fast as it can, anything at all, where a receiver looks: the
/// result is a message within the bounds, or an error, and nothing worse.
#[test]
fn a_ring_that_is_scribbled_over_gives_messages_or_an_error() {
    for form in BOTH {
        bounded(move || {
            let (device, config) = (device(), small(Layout::Plain, form));
            let (mut victim, _honest, mut liar) = victim_receiver(&device, &config);
            let scribbling = std::thread::spawn(move || {
                for round in 0..200u64 {
                    let len = (round * 37 % 300) as u32;
                    liar.put_record(0, len, b"");
                    if round == 50 {
                        liar.tell(2048, false);
                    }
                    liar.raw.drain();
                }
                liar
            });
            let ended = loop {
                match victim.recv() {
                    Ok(message) => assert!(message.len() <= 2040),
                    Err(e) => break e,
                }
            };
            assert!(matches!(violated(&ended), ProtocolError::Record(_)), "{ended:?}");
            drop(scribbling.join().unwrap());
        });
    }
}

/// A sender of the library, and a hand-made receiver.
fn victim_sender(device: &Device, config: &Config, tail: offer::Tail) -> (Sender, RawReceiver) {
    let (mut near, mut far) = UnixStream::pair().unwrap();
    std::thread::scope(|scope| {
        let raw = scope.spawn(|| RawReceiver::accept(&mut far, device, tail));
        let sender =
            connect_sender_over::<BufferedWrite, _>(&mut near, device, config, b"").unwrap();
        (sender, raw.join().unwrap())
    })
}

#[test]
fn a_head_that_cannot_be_ends_the_sender() {
    // A sender looks when it finds no room: it has pushed these bytes then.
    let pushed = 16 + 4 * 912;
    let beyond = |head| ProtocolError::Head(HeadError::BeyondTail { by: head - pushed });
    let cases: [(u64, u64, ProtocolError); 5] = [
        (pushed + 8, 0, beyond(pushed + 8)),
        (u64::MAX - 7, 0, beyond(u64::MAX - 7)),
        (4, 0, ProtocolError::Head(HeadError::Misaligned)),
        (16, 6, ProtocolError::Update(UpdateError::Taken { taken: 6 })),
        (16, u64::MAX, ProtocolError::Update(UpdateError::Taken { taken: u64::MAX })),
    ];
    for tail in [offer::Tail::Written, offer::Tail::Immediate] {
        for (head, taken, violation) in cases.clone() {
            bounded(move || {
                let (device, config) = (device(), small(Layout::Plain, WRITTEN));
                let (mut sender, mut liar) = victim_sender(&device, &config, tail);
                sender.send_acked(b"12345678").unwrap();
                liar.tell(head, false, taken);
                liar.raw.drain();
                let ended = loop {
                    match sender.send(&[0; 900]) {
                        Ok(_) => {}
                        Err(e) => break e,
                    }
                };
                assert_eq!(ended, SendError::Ended(CloseReason::Protocol(violation.clone())));
                assert_eq!(sender.close(), Err(SendError::Ended(CloseReason::Protocol(violation))));
            });
        }
        bounded(move || {
            let (device, config) = (device(), small(Layout::Plain, WRITTEN));
            let (mut sender, mut liar) = victim_sender(&device, &config, tail);
            sender.send_acked(b"12345678").unwrap();
            let word = liar.ring.load_u64(8).unwrap();
            assert_eq!(&word.to_ne_bytes(), b"12345678");
            liar.tell(16, false, 0);
            liar.raw.drain();
            // When it finds no room, it looks, and sees this head; and then the other one.
            while sender.try_send(&[0; 900]).is_ok() {}
            liar.tell(8, false, 0);
            liar.raw.drain();
            let back = ProtocolError::Head(HeadError::Backwards { by: 8 });
            let ended = sender.wait_for_room(900).unwrap_err();
            assert_eq!(ended, SendError::Ended(CloseReason::Protocol(back)));
        });
    }
}

/// Also if the STOP frees the room that the sender waits for.
#[test]
fn a_stop_ends_a_wait_for_room() {
    for freed in [0, 912] {
        bounded(move || {
            let (device, config) = (device(), small(Layout::Plain, WRITTEN));
            let (mut sender, mut far) = victim_sender(&device, &config, offer::Tail::Written);
            while sender.try_send(&[0; 900]).is_ok() {}
            far.tell(freed, true, 0);
            far.raw.drain();
            let ended = sender.wait_for_room(900).unwrap_err();
            assert!(
                matches!(&ended, SendError::Ended(CloseReason::PeerClosed { .. })),
                "{ended:?}"
            );
        });
    }
}

/// A peer that has gone without a word is found within some keepalives, by a sender that
/// waits for room and by a receiver; and what it had sent is handed out first.
#[test]
fn the_dead_are_missed() {
    for form in BOTH {
        bounded(move || {
            let (device, config) = (device(), inquisitive(small(Layout::Mirrored, form)));
            let (mut victim, honest, mut raw) = victim_receiver(&device, &config);
            raw.put_record(0, 8, b"12345678");
            raw.tell(16, false);
            raw.raw.drain();
            drop(raw);
            assert_eq!(&*victim.recv().unwrap(), b"12345678");
            match victim.recv() {
                Err(RecvError::Peer { peer: Peer(1), reason: CloseReason::PeerLost(_) }) => {}
                other => panic!("{other:?}"),
            }
            drop(honest);
            assert!(matches!(victim.recv(), Err(RecvError::Closed)));

            let tail = match form {
                WRITTEN => offer::Tail::Written,
                _ => offer::Tail::Immediate,
            };
            let (mut sender, far) = victim_sender(&device, &config, tail);
            while sender.try_send(&[0; 900]).is_ok() {}
            sender.flush().unwrap();
            drop(far);
            let lost = sender.wait_for_room(900).unwrap_err();
            assert!(matches!(lost, SendError::Ended(CloseReason::PeerLost(_))), "{lost:?}");
        });
    }
}
