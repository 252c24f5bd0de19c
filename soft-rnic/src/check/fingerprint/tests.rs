use super::*;

fn fingerprint(pieces: &[&[u8]], len: usize) -> Fingerprint {
    let all = pieces.concat();
    let read = |at: usize, to: &mut [u8]| {
        to.copy_from_slice(&all[at..at + to.len()]);
        Ok::<(), ()>(())
    };
    Fingerprint::compute(len, read).unwrap()
}

#[test]
fn bytes_that_cannot_be_read_are_named() {
    let refuse = |at: usize, _: &mut [u8]| if at < CHUNK { Ok(()) } else { Err(7) };
    assert!(Fingerprint::compute(CHUNK, refuse).is_ok());
    let refused = Fingerprint::compute(CHUNK + 5, refuse);
    assert_eq!(refused, Err((CHUNK..CHUNK + 5, 7)));
}

#[test]
fn a_change_is_found_about_where_it_is() {
    for len in [1, 7, 8, 63, 64, 65, 1000, 1024, 1025, 5000, 70_000] {
        let mut bytes: Vec<u8> = (0..len).map(|i| i as u8).collect();
        let before = fingerprint(&[&bytes], len);
        for at in [0, len / 3, len / 2, len - 1] {
            bytes[at] ^= 0x80;
            let range = before.changed(&fingerprint(&[&bytes], len)).unwrap();
            assert!(range.contains(&at) && range.end <= len, "{at} of {len}: {range:?}");
            assert!(range.len() <= LEAST.max(len.div_ceil(BLOCKS) + LEAST));
            bytes[at] ^= 0x80;
        }
        assert_eq!(before.changed(&fingerprint(&[&bytes], len)), None);
    }
}

#[test]
fn only_the_bytes_of_the_message_count() {
    let (a, b) = ([1; 100], [2; 5000]);
    let before = fingerprint(&[&a, &b], 3000);
    let mut other = b;
    other[2900] = 3;
    assert_eq!(before.changed(&fingerprint(&[&a, &other], 3000)), None);
    other[2899] = 3;
    assert!(before.changed(&fingerprint(&[&a, &other], 3000)).unwrap().contains(&2999));
    assert_eq!(fingerprint(&[], 0).changed(&fingerprint(&[&a], 0)), None);
}

#[test]
fn bytes_that_change_places_differ() {
    assert!(
        fingerprint(&[b"ab------cd------"], 16)
            .changed(&fingerprint(&[b"cd------ab------"], 16))
            .is_some()
    );
    assert!(fingerprint(&[b"a\0"], 2).changed(&fingerprint(&[b"\0a"], 2)).is_some());
}
