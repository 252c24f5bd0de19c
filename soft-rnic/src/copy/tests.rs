//! Every copy against a plain one, and in which order bytes are stored.

use std::sync::atomic::{AtomicU64, Ordering};

use super::*;

/// Byte that surrounds a target.
const AROUND: u8 = 0xee;

/// Copies every length from every source offset to every target offset, and compares the target,
/// and what is around it, with a plain copy.
fn check(
    lens: impl Iterator<Item = usize> + Clone,
    [targets, sources]: [&[usize]; 2],
    copy: impl Fn(*mut u8, *const u8, usize),
) {
    let most = lens.clone().max().unwrap() + 128;
    let source: Vec<u8> = (0..most).map(|i| (i * 7 + i / 256) as u8).collect();
    let blank = vec![AROUND; most];
    let (mut target, mut expected) = (blank.clone(), blank.clone());
    for len in lens {
        for (&t, &f) in targets.iter().flat_map(|t| sources.iter().map(move |f| (t, f))) {
            assert!(t.max(f) + len <= most);
            target.copy_from_slice(&blank);
            expected.copy_from_slice(&blank);
            expected[t..t + len].copy_from_slice(&source[f..f + len]);
            copy(target[t..].as_mut_ptr(), source[f..].as_ptr(), len);
            assert!(target == expected, "{len} bytes from {f} to {t}");
        }
    }
}

/// Every way in which a long copy can be made on this processor.
fn ways() -> impl Iterator<Item = (Width, Direction)> {
    let both = [Direction::Pull, Direction::Push];
    Width::all_of_this_processor().into_iter().flat_map(move |w| both.map(|d| (w, d)))
}

/// # Safety
/// As [`in_order`]; the way is one of [`ways`].
unsafe fn copy_by((width, direction): (Width, Direction), to: *mut u8, from: *const u8, n: usize) {
    // SAFETY: `from` and `to` have `n` bytes (see # Safety), and `ways` has only widths of this
    // processor.
    unsafe { in_order_by(to, from, n, direction, || width) }
}

const OFFSETS: [usize; 17] = [0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16];

#[test]
fn short_copies_move_exactly_the_bytes() {
    let every = [&OFFSETS[..]; 2];
    // SAFETY: `check` keeps within both vectors.
    check(0..600, every, |to, from, len| unsafe { owned(to, from, len) });
    // SAFETY: `check` keeps within both vectors.
    check(0..600, every, |to, from, len| unsafe { in_order(to, from, len) });
}

#[test]
fn long_copies_of_every_width_move_exactly_their_bytes() {
    let targets = [0, 1, 7, 8, 15, 16, 24, 32, 33, 63, 64];
    for way in ways() {
        // SAFETY: `check` keeps within both vectors; the way is this processor's.
        let copy = |to, from, len| unsafe { copy_by(way, to, from, len) };
        check(LONG - 4..LONG + 600, [&targets, &[0, 1, 8, 29, 64]], copy);
        check([8192, 19_000, 65_536, 70_001].into_iter(), [&targets, &OFFSETS], copy);
    }
}

/// Memory that peers write to may be registered a second time, so that no key tells what a plain
/// access would race with.
#[test]
fn nothing_is_copied_by_plain_accesses() {
    let sources = [
        include_str!("../copy.rs"),
        include_str!("../memory/span.rs"),
        include_str!("../fabric/process/incoming/rx_fast_path.rs"),
    ];
    for plain in ["ptr::copy", "copy_from", "copy_to", "_unaligned(", "_volatile(", ".read()"] {
        assert!(sources.iter().all(|source| !source.contains(plain)), "{plain}");
    }
}

#[test]
fn an_overlapping_copy_is_a_move() {
    for len in [5, 20, 40] {
        let mut bytes: Vec<u8> = (0..64).collect();
        let expected: Vec<u8> = bytes[..len].to_vec();
        // SAFETY: 3 + 40 < 64.
        unsafe { owned(bytes.as_mut_ptr().add(3), bytes.as_ptr(), len) };
        assert_eq!(bytes[3..3 + len], expected);
    }
}

/// An optimised build keeps a value in the register where it was made, if a copy that is inlined
/// behind it does not declare that register. (One that is not optimised keeps it in memory.)
#[test]
fn a_copy_declares_the_registers_that_it_changes() {
    use core::arch::asm;
    use core::arch::x86_64::{__m256i, __m512i};

    #[repr(align(64))]
    struct Block([u8; 256]);

    macro_rules! keeps {
        ($name:ident, $features:literal, $vector:ty, $register:tt, $copy:ident, $load:literal, $store:literal) => {
            #[target_feature(enable = $features)]
            fn $name() {
                let (bytes, mut kept) = ([1_u8; 64], [0_u8; 64]);
                let (source, mut target) = (Block([2; 256]), Block([AROUND; 256]));
                let (mut to, mut from, len) =
                    (target.0.as_mut_ptr(), source.0.as_ptr(), 256_usize);
                // SAFETY: as many bytes as the blocks have, and a vector at most.
                unsafe {
                    let value: $vector;
                    asm!($load, p = in(reg) &bytes, out($register) value);
                    $copy!(to, from, len, []);
                    asm!($store, p = in(reg) &mut kept, in($register) value);
                }
                let _ = (to, from);
                assert_eq!(kept[..size_of::<$vector>()], bytes[..size_of::<$vector>()]);
                assert_eq!(target.0, source.0);
            }
        };
    }
    keeps!(upper, "avx", __m256i, "ymm8", move_by_32, "vmovdqu ymm8, [{p}]", "vmovdqu [{p}], ymm8");
    keeps!(low, "avx", __m256i, "ymm1", move_by_32, "vmovdqu ymm1, [{p}]", "vmovdqu [{p}], ymm1");
    keeps!(
        high,
        "avx512f",
        __m512i,
        "zmm17",
        move_by_64,
        "vmovdqu64 zmm17, [{p}]",
        "vmovdqu64 [{p}], zmm17"
    );
    if std::is_x86_feature_detected!("avx") {
        // SAFETY: `is_x86_feature_detected` has checked that the processor has AVX.
        unsafe {
            upper();
            low();
        }
    }
    if std::is_x86_feature_detected!("avx512f") {
        // SAFETY: `is_x86_feature_detected` has checked that the processor has AVX-512F.
        unsafe { high() }
    }
}

/// A child process copies one instruction at a time, and looks after each: what has been stored
/// is always the first part of the target, with no gap.
#[test]
#[cfg(target_os = "linux")]
fn a_copy_stores_its_bytes_in_order_without_a_gap() {
    let lens = [1, 63, 64, 65, 300, LONG - 1, LONG + 555];
    for (way, len, at) in
        ways().flat_map(|way| lens.map(|len| [0, 3].map(|at| (way, len, at)))).flatten()
    {
        let (mut target, source) = (vec![AROUND; at + len + LINE], vec![stepped::NEW; len]);
        // SAFETY: the child does nothing but copy, in its own memory, and end.
        let child = unsafe { libc::fork() };
        if child == 0 {
            let to = target[at..].as_mut_ptr();
            // SAFETY: `len` bytes of either vector.
            unsafe { stepped::copy(to, len, || copy_by(way, to, source.as_ptr(), len)) }
        }
        let mut status = 0;
        // SAFETY: our own child.
        assert_eq!(unsafe { libc::waitpid(child, &raw mut status, 0) }, child);
        assert!(libc::WIFEXITED(status), "{len} bytes to {at}, {way:?}: status {status}");
        let code = libc::WEXITSTATUS(status);
        assert_eq!(code, stepped::IN_ORDER, "{len} bytes to {at}, {way:?}");
    }
}

/// A process that is interrupted after each of its instructions.
#[cfg(target_os = "linux")]
mod stepped {
    use core::sync::atomic::{AtomicPtr, AtomicUsize, Ordering::Relaxed};

    pub(super) const NEW: u8 = 0x55;
    /// Exit status of a process that stored everything in order.
    pub(super) const IN_ORDER: i32 = 0;
    const OUT_OF_ORDER: i32 = 1;
    const NOT_STEPPED: i32 = 2;

    // Relaxed: one thread, and its signal handler.
    static STEPS: AtomicUsize = AtomicUsize::new(0);
    /// The first byte that was not stored at the last step, and how many there are from it on.
    static REST: AtomicPtr<u8> = AtomicPtr::new(core::ptr::null_mut());
    static REST_LEN: AtomicUsize = AtomicUsize::new(0);

    extern "C" fn after_each(_: libc::c_int) {
        STEPS.fetch_add(1, Relaxed);
        let (mut rest, mut len) = (REST.load(Relaxed), REST_LEN.load(Relaxed));
        // SAFETY: the rest of the target, which the interrupted copy writes.
        unsafe {
            while len > 0 && rest.read_volatile() == NEW {
                (rest, len) = (rest.add(1), len - 1);
            }
            if !libc::memchr(rest.cast(), NEW.into(), len).is_null() {
                libc::_exit(OUT_OF_ORDER);
            }
        }
        REST.store(rest, Relaxed);
        REST_LEN.store(len, Relaxed);
    }

    /// Copies to `len` bytes at `to`, and ends the process.
    ///
    /// # Safety
    /// These bytes may be read, and none of them is [`NEW`] before `copy` stores it. The process
    /// has one thread.
    pub(super) unsafe fn copy(to: *mut u8, len: usize, copy: impl FnOnce()) -> ! {
        REST.store(to, Relaxed);
        REST_LEN.store(len, Relaxed);
        let handler: extern "C" fn(libc::c_int) = after_each;
        // SAFETY: the handler is async-signal-safe; the trap flag interrupts this thread after
        // each instruction, and changes nothing else.
        unsafe {
            libc::signal(libc::SIGTRAP, handler as libc::sighandler_t);
            core::arch::asm!("pushfq", "or dword ptr [rsp], 0x100", "popfq");
            copy();
            core::arch::asm!("pushfq", "and dword ptr [rsp], 0xfffffeff", "popfq");
            let is_all = REST_LEN.load(Relaxed) == 0 && STEPS.load(Relaxed) > 0;
            libc::_exit(if is_all { IN_ORDER } else { NOT_STEPPED })
        }
    }
}

/// A thread that loads the words of a target from the last to the first, while copies of ever
/// higher numbers are made to it, sees no number that is lower than one behind it.
#[test]
fn a_reader_that_sees_a_word_sees_all_before_it() {
    const WORDS: usize = 1024;
    const COPIES: u64 = 300;
    for way in ways() {
        for shift in [0, 3] {
            let target: Vec<AtomicU64> = (0..WORDS).map(|_| AtomicU64::new(0)).collect();
            std::thread::scope(|scope| {
                scope.spawn(|| {
                    for number in 1..=COPIES {
                        let source = vec![number; WORDS - shift];
                        let to = target[shift..].as_ptr().cast::<u8>().cast_mut();
                        // SAFETY: as many words; the reader uses atomic loads.
                        unsafe { copy_by(way, to, source.as_ptr().cast(), source.len() * 8) };
                    }
                });
                let mut last = 0;
                while last < COPIES {
                    let mut behind = 0;
                    for word in target[shift..].iter().rev() {
                        // Acquire: the words before it are loaded after it.
                        let number = word.load(Ordering::Acquire);
                        assert!(number >= behind, "{number} before {behind}, {way:?}");
                        behind = number;
                    }
                    last = target[WORDS - 1].load(Ordering::Acquire);
                }
            });
        }
    }
}
