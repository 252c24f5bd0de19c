use super::*;

#[test]
fn readers_share_and_writers_contest() {
    let mut claims = OutstandingClaims::default();
    assert!(!claims.add((10, 20), false));
    assert!(!claims.add((10, 20), false));
    assert!(!claims.add((15, 30), false));
    assert!(!claims.add((30, 40), true), "they only touch");
    assert!(!claims.add((0, 10), true));
    assert!(claims.add((29, 31), true));
    let contested = [(10, 20), (15, 30), (30, 40), (0, 10), (29, 31)];
    assert_eq!(contested.map(|bytes| claims.is_contested(bytes)), [false, true, true, false, true]);
    assert!(claims.add((0, 100), false), "it reads what others write to");
    assert!(claims.is_contested((0, 10)) && !claims.is_contested((10, 20)));
}

#[test]
fn the_same_bytes_are_contested_by_a_second_writer() {
    let mut claims = OutstandingClaims::default();
    assert!(!claims.add((10, 20), true));
    assert!(claims.add((10, 20), true));
    claims.remove((10, 20), true);
    assert!(claims.is_contested((10, 20)), "the other one may have been written to");
    claims.remove((10, 20), true);
    assert!(!claims.add((10, 20), true) && !claims.is_contested((10, 20)));
    claims.remove((10, 20), false);
    claims.remove((0, 5), true);
    assert_eq!((claims.by_bytes.len(), claims.longest), (1, 10));
}

#[test]
fn what_others_may_write_to_is_contested_while_it_is_claimed() {
    let mut claims = OutstandingClaims::default();
    claims.add((10, 20), true);
    claims.add((20, 30), true);
    assert!(claims.has_any_of((29, 40)) && claims.has_any_of((0, 11)));
    assert!(!claims.has_any_of((30, 40)) && !claims.has_any_of((0, 10)));
    claims.contest((0, 11));
    assert!(claims.is_contested((10, 20)) && !claims.is_contested((20, 30)));
    claims.remove((10, 20), true);
    assert!(!claims.add((10, 20), true) && !claims.is_contested((10, 20)));
}

/// A long claim that begins far before is found.
#[test]
fn a_long_claim_is_found() {
    let mut claims = OutstandingClaims::default();
    claims.add((0, 1000), false);
    (0..9).for_each(|i| _ = claims.add((i * 100, i * 100 + 1), false));
    assert!(claims.add((990, 995), true) && claims.is_contested((0, 1000)));
}
