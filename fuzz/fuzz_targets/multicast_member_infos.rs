//! Whatever bytes arrive as terms, or as a member info; and what is decoded is encoded again.
#![no_main]

use conn_core::multicast::{MAX_MEMBER_INFO_BYTES, MemberInfo, Rank, Terms};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    if let Ok(terms) = Terms::decode(bytes) {
        assert_eq!(terms.encode(), bytes);
    }
    let Some((&[rank, members], info)) = bytes.split_first_chunk() else { return };
    if members <= 16
        && let Ok(decoded) = MemberInfo::decode(info, Rank(rank), members)
    {
        let mut again = [0; MAX_MEMBER_INFO_BYTES];
        let len = decoded.encode(&mut again);
        assert_eq!(&again[..len], info);
    }
});
