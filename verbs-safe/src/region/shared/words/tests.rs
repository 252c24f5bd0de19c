use super::*;

#[test]
fn what_was_stored_is_loaded_whatever_its_length_and_place() {
    let source: Vec<u8> = (0..9000_u32).map(|i| (i * 7 + i / 256) as u8).collect();
    for words in (0..40).chain([63, 64, 65, 100, 511, 512, 513, 520, 1000]) {
        for (at, skew) in (0..6).flat_map(|at| (0..9).map(move |skew| (at, skew))) {
            let (mut shared, len) = ([0u64; 1024], 8 * words);
            let to = shared[at..].as_mut_ptr().cast::<u8>();
            // SAFETY: 6 + 1000 words fit; no other code uses them.
            unsafe { store(to, &source[skew..skew + len]) };
            let mut back = vec![0xee; len + 16];
            // SAFETY: `to` is followed by the `words` words that were stored; no other code
            // uses them.
            unsafe { load(&mut back[skew..skew + len], to) };
            assert_eq!(back[skew..skew + len], source[skew..skew + len], "{words} {at} {skew}");
            assert!(back[..skew].iter().chain(&back[skew + len..]).all(|b| *b == 0xee));
            assert!(shared[..at].iter().chain(&shared[at + words..]).all(|w| *w == 0));
        }
    }
}
