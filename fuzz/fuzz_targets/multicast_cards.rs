//! Whatever bytes arrive as terms, or as a card; and what is decoded is encoded again.
#![no_main]

use conn_core::multicast::{Card, MAX_CARD_BYTES, Rank, Terms};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    if let Ok(terms) = Terms::decode(bytes) {
        assert_eq!(terms.encode(), bytes);
    }
    let Some((&[rank, members], card)) = bytes.split_first_chunk() else { return };
    if members <= 16
        && let Ok(decoded) = Card::decode(card, Rank(rank), members)
    {
        let mut again = [0; MAX_CARD_BYTES];
        let len = decoded.encode(&mut again);
        assert_eq!(&again[..len], card);
    }
});
