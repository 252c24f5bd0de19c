//! The peers, each used in the fastest way that gives messages of any length: frames
//! where there are some, otherwise a length before the bytes, or slots for the longest
//! message.

use std::mem::MaybeUninit;

use bbqueue::nicknames::YakiNiku;
use bbqueue::prod_cons::framed::{FramedConsumer, FramedProducer};
use bbqueue::traits::storage::BoxedSlice;
use ringbuf::traits::{Consumer, Observer, Producer, Raw, Split};
use ringbuf::{HeapCons, HeapProd, HeapRb};

use super::{BenchRing, CAPACITY};

/// bbqueue's frames: a length of two bytes, and contiguous bytes.
pub(crate) struct Bbqueue;

pub(crate) struct BbqueueSender(FramedProducer<&'static YakiNiku>);
pub(crate) struct BbqueueReceiver(FramedConsumer<&'static YakiNiku>);

impl<const MOST: usize> BenchRing<MOST> for Bbqueue {
    const NAME: &'static str = "bbqueue";
    type Sender = BbqueueSender;
    type Receiver = BbqueueReceiver;

    fn new() -> (BbqueueSender, BbqueueReceiver) {
        let queue = YakiNiku::new_with_storage(BoxedSlice::new(CAPACITY));
        let queue: &'static YakiNiku = Box::leak(Box::new(queue));
        (BbqueueSender(queue.framed_producer()), BbqueueReceiver(queue.framed_consumer()))
    }
}

impl super::BenchSender for BbqueueSender {
    #[inline(always)]
    fn send(&mut self, message: &[u8]) -> bool {
        let len = message.len() as u16;
        let Ok(mut grant) = self.0.grant(len) else { return false };
        grant.copy_from_slice(message);
        grant.commit(len);
        true
    }
}

impl super::BenchReceiver for BbqueueReceiver {
    #[inline(always)]
    fn receive(&mut self, mut look: impl FnMut(&[u8])) -> bool {
        let Ok(grant) = self.0.read() else { return false };
        look(&grant);
        grant.release();
        true
    }
}

/// Bytes before a message, where the crate has no frames: its length, in a word, so that
/// it never crosses the end.
const WORD: usize = 8;

fn record(len: usize) -> usize {
    WORD + len.next_multiple_of(WORD)
}

/// Copies a length and a message to two pieces of a ring, of which the first has the word.
#[inline]
fn write_pieces((first, second): (&mut [MaybeUninit<u8>], &mut [MaybeUninit<u8>]), message: &[u8]) {
    let (word, first) = first.split_at_mut(WORD);
    word.write_copy_of_slice(&(message.len() as u64).to_ne_bytes());
    if first.len() >= message.len() {
        first[..message.len()].write_copy_of_slice(message);
    } else {
        let (front, back) = message.split_at(first.len());
        first.write_copy_of_slice(front);
        second[..back.len()].write_copy_of_slice(back);
    }
}

/// Shows the message in two pieces, of which the first begins with its length; one that
/// is in both is put together first.
#[inline]
fn show((first, second): (&[u8], &[u8]), whole: &mut [u8], look: &mut impl FnMut(&[u8])) {
    let (word, first) = first.split_at(WORD);
    let len = u64::from_ne_bytes(word.try_into().expect("a word")) as usize;
    if first.len() >= len {
        look(&first[..len]);
    } else {
        let whole = &mut whole[..len];
        let (front, back) = whole.split_at_mut(first.len());
        front.copy_from_slice(first);
        back.copy_from_slice(&second[..back.len()]);
        look(whole);
    }
}

/// rtrb's chunks.
pub(crate) struct Rtrb;

pub(crate) struct RtrbSender(rtrb::Producer<u8>);
pub(crate) struct RtrbReceiver(rtrb::Consumer<u8>, Box<[u8]>);

impl<const MOST: usize> BenchRing<MOST> for Rtrb {
    const NAME: &'static str = "rtrb";
    type Sender = RtrbSender;
    type Receiver = RtrbReceiver;

    fn new() -> (RtrbSender, RtrbReceiver) {
        let (sender, receiver) = rtrb::RingBuffer::new(CAPACITY);
        (RtrbSender(sender), RtrbReceiver(receiver, vec![0; MOST].into()))
    }
}

impl super::BenchSender for RtrbSender {
    #[inline(always)]
    fn send(&mut self, message: &[u8]) -> bool {
        let Ok(mut chunk) = self.0.write_chunk_uninit(record(message.len())) else { return false };
        write_pieces(chunk.as_mut_slices(), message);
        // SAFETY: they are bytes; those that were not written are not read.
        unsafe { chunk.commit_all() };
        true
    }
}

impl super::BenchReceiver for RtrbReceiver {
    #[inline(always)]
    fn receive(&mut self, mut look: impl FnMut(&[u8])) -> bool {
        let Ok(word) = self.0.read_chunk(WORD) else { return false };
        let word = word.as_slices().0.try_into().expect("a word");
        let bytes = record(u64::from_ne_bytes(word) as usize);
        let chunk = self.0.read_chunk(bytes).expect("sent as a whole");
        show(chunk.as_slices(), &mut self.1, &mut look);
        chunk.commit_all();
        true
    }
}

/// ringbuf's slices, through its ends that cache the other one's index.
pub(crate) struct Ringbuf;

pub(crate) struct RingbufSender(HeapProd<u8>);
pub(crate) struct RingbufReceiver(HeapCons<u8>, Box<[u8]>);

impl<const MOST: usize> BenchRing<MOST> for Ringbuf {
    const NAME: &'static str = "ringbuf";
    type Sender = RingbufSender;
    type Receiver = RingbufReceiver;

    fn new() -> (RingbufSender, RingbufReceiver) {
        let (sender, receiver) = HeapRb::new(CAPACITY).split();
        (RingbufSender(sender), RingbufReceiver(receiver, vec![0; MOST].into()))
    }
}

impl super::BenchSender for RingbufSender {
    #[inline(always)]
    fn send(&mut self, message: &[u8]) -> bool {
        let bytes = record(message.len());
        if self.0.vacant_len() < bytes {
            return false;
        }
        write_pieces(self.0.vacant_slices_mut(), message);
        // SAFETY: they are bytes; those that were not written are not read.
        unsafe { self.0.advance_write_index(bytes) };
        true
    }
}

impl super::BenchReceiver for RingbufReceiver {
    #[inline(always)]
    fn receive(&mut self, mut look: impl FnMut(&[u8])) -> bool {
        let (first, second) = self.0.as_slices();
        let Some(word) = first.first_chunk() else { return false };
        let bytes = record(u64::from_ne_bytes(*word) as usize);
        show((first, second), &mut self.1, &mut look);
        // SAFETY: bytes need no drop; the record was there as a whole.
        unsafe { self.0.advance_read_index(bytes) };
        true
    }
}

/// heapless' queue of slots, each with room for the longest message.
pub(crate) struct Heapless;

pub(crate) struct HeaplessSender<const MOST: usize>(
    heapless::spsc::Producer<'static, heapless::Vec<u8, MOST>>,
);
pub(crate) struct HeaplessReceiver<const MOST: usize>(
    heapless::spsc::Consumer<'static, heapless::Vec<u8, MOST>>,
);

impl<const MOST: usize> BenchRing<MOST> for Heapless {
    const NAME: &'static str = "heapless";
    type Sender = HeaplessSender<MOST>;
    type Receiver = HeaplessReceiver<MOST>;

    fn new() -> (HeaplessSender<MOST>, HeaplessReceiver<MOST>) {
        // More memory than the others have, for runs to fit.
        split::<MOST, 64>()
    }
}

/// The same with slots for messages of one size: what messages of any size cost above
/// that.
pub(crate) struct HeaplessOfSize;

impl<const MOST: usize> BenchRing<MOST> for HeaplessOfSize {
    const NAME: &'static str = "heapless-of-size";
    type Sender = HeaplessSender<MOST>;
    type Receiver = HeaplessReceiver<MOST>;

    fn new() -> (HeaplessSender<MOST>, HeaplessReceiver<MOST>) {
        match MOST {
            16 => split::<MOST, 2048>(),
            512 => split::<MOST, 128>(),
            _ => split::<MOST, 8>(),
        }
    }
}

fn split<const MOST: usize, const SLOTS: usize>() -> (HeaplessSender<MOST>, HeaplessReceiver<MOST>)
{
    let queue = Box::leak(Box::new(heapless::spsc::Queue::<_, SLOTS>::new()));
    let (sender, receiver) = queue.split();
    (HeaplessSender(sender), HeaplessReceiver(receiver))
}

impl<const MOST: usize> super::BenchSender for HeaplessSender<MOST> {
    #[inline(always)]
    fn send(&mut self, message: &[u8]) -> bool {
        if !self.0.ready() {
            return false;
        }
        let message = heapless::Vec::from_slice(message).expect("no longer than a slot");
        self.0.enqueue(message).is_ok()
    }
}

impl<const MOST: usize> super::BenchReceiver for HeaplessReceiver<MOST> {
    #[inline(always)]
    fn receive(&mut self, mut look: impl FnMut(&[u8])) -> bool {
        // Looked at where it is, and then dropped there: not moved out.
        let Some(message) = self.0.peek() else { return false };
        look(message);
        // SAFETY: there is one.
        drop(unsafe { self.0.dequeue_unchecked() });
        true
    }
}
