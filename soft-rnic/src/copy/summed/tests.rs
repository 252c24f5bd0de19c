use super::*;
use host::random::Random;

/// All ways of this processor.
fn ways() -> impl Iterator<Item = bool> {
    [false, true].into_iter().filter(|folds| !folds || super::folds())
}

fn check(bytes: &[u8], shift: usize, crc: u32) {
    for folds in ways() {
        let mut room = vec![0x5a; bytes.len() + shift + 64];
        let to = &mut room[shift..][..bytes.len()];
        // SAFETY: as many bytes as the target has.
        let found = unsafe { summed_by(to, bytes.as_ptr(), crc, folds) };
        assert_eq!(to, bytes);
        assert_eq!(found, sum(bytes, crc), "{} bytes, {folds}", bytes.len());
        room.drain(shift..shift + bytes.len());
        assert!(room.iter().all(|byte| *byte == 0x5a), "something else was written");
    }
}

#[test]
fn a_copy_of_each_length_has_its_checksum() {
    let bytes: Vec<u8> = (0..1_600_u32).map(|n| ((n * n) >> 3) as u8).collect();
    (0..bytes.len()).for_each(|len| check(&bytes[..len], len % 33, 0x1234_5678));
}

#[test]
fn a_copy_of_any_bytes_has_its_checksum() {
    let mut random = Random::new(24);
    for _ in 0..2_000 {
        let bytes: Vec<u8> = (0..random.below(3_000)).map(|_| random.below(256) as u8).collect();
        check(&bytes, random.below(64) as usize, random.below(1 << 32) as u32);
    }
}

/// An optimised build keeps a value in its register, if the assembly does not declare that it
/// changes it.
#[test]
fn a_copy_declares_the_registers_that_it_changes() {
    #[target_feature(enable = "avx")]
    fn keeps() {
        use core::arch::{asm, x86_64::__m256i};
        let (bytes, mut kept) = ([1_u8; 32], [0_u8; 32]);
        let (source, mut target) = ([2_u8; BLOCK], [0_u8; BLOCK]);
        // SAFETY: as many bytes as the arrays have.
        let folded = unsafe {
            let value: __m256i;
            asm!("vmovdqu ymm10, [{p}]", p = in(reg) &bytes, out("ymm10") value);
            let folded = fold(&mut target, source.as_ptr(), 0);
            asm!("vmovdqu [{p}], ymm10", p = in(reg) &mut kept, in("ymm10") value);
            folded
        };
        assert_eq!((kept, target), (bytes, source));
        assert_eq!(sum(&folded, u32::MAX), sum(&source, 0));
    }
    if folds() {
        // SAFETY: the processor has the instructions.
        unsafe { keeps() }
    }
}
