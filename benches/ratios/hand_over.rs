//! Buffers that one thread fills and another one copies out, each pinned to a core: what any
//! connection has at most whose sender writes each message anew.

use std::hint::black_box;
use std::time::Instant;

use rtrb::{Consumer, Producer, RingBuffer};

use super::processes::on_core;
use super::rate;

/// Buffers that go around: of 64 KiB, they stay in the cache of a core.
const BUFFERS: usize = 8;

type Buffer = Box<[u8]>;

/// GB/s of `messages` buffers of `size` bytes.
pub(crate) fn gigabytes_per_s(size: usize, messages: u64) -> f64 {
    let (full, to_copy) = RingBuffer::new(BUFFERS);
    let (mut emptied, empty) = RingBuffer::new(BUFFERS);
    for _ in 0..BUFFERS {
        emptied.push(vec![0; size].into_boxed_slice()).expect("room for all buffers");
    }
    std::thread::scope(|scope| {
        scope.spawn(|| on_core(1, || fill(empty, full, messages)));
        on_core(0, || copy_out(to_copy, emptied, size, messages))
    })
}

fn fill(mut empty: Consumer<Buffer>, mut full: Producer<Buffer>, messages: u64) {
    for number in 0..messages {
        let mut buffer = next(&mut empty);
        buffer.fill(black_box(number as u8));
        full.push(buffer).expect("room for all buffers");
    }
}

fn copy_out(
    mut full: Consumer<Buffer>,
    mut emptied: Producer<Buffer>,
    size: usize,
    messages: u64,
) -> f64 {
    let mut target = vec![0; size];
    let mut take = |number: u64| {
        let buffer = next(&mut full);
        target.copy_from_slice(&buffer);
        assert_eq!(black_box(&target)[size - 1], number as u8);
        emptied.push(buffer).expect("room for all buffers");
    };
    // The other thread is there with its first one.
    take(0);
    let start = Instant::now();
    (1..messages).for_each(&mut take);
    rate((messages - 1) * size as u64, start.elapsed()) / 1e9
}

fn next(ring: &mut Consumer<Buffer>) -> Buffer {
    loop {
        match ring.pop() {
            Ok(buffer) => return buffer,
            Err(_) => std::hint::spin_loop(),
        }
    }
}
