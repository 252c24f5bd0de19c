//! Static rates: the specification's codes, in multiples of 2.5 Gbit/s, and in Mbit/s.

use core::ffi::{c_int, c_uint};

/// Code, multiple of 2.5 Gbit/s where there is one, Mbit/s.
const RATES: [(c_uint, Option<c_int>, c_int); 23] = [
    (2, Some(1), 2_500),
    (3, Some(4), 10_000),
    (4, Some(12), 30_000),
    (5, Some(2), 5_000),
    (6, Some(8), 20_000),
    (7, Some(16), 40_000),
    (8, Some(24), 60_000),
    (9, Some(32), 80_000),
    (10, Some(48), 120_000),
    (11, None, 14_062),
    (12, None, 56_250),
    (13, None, 112_500),
    (14, None, 168_750),
    (15, None, 25_781),
    (16, None, 103_125),
    (17, None, 206_250),
    (18, None, 309_375),
    (19, Some(11), 28_125),
    (20, Some(20), 53_125),
    (21, Some(160), 425_000),
    (22, Some(240), 637_500),
    (23, Some(320), 850_000),
    (24, Some(480), 1_275_000),
];

/// The code for "as fast as the port".
const MAX: c_uint = 0;

pub(crate) extern "C" fn rate_to_mult(rate: c_uint) -> c_int {
    RATES.iter().find(|r| r.0 == rate).and_then(|r| r.1).unwrap_or(-1)
}

pub(crate) extern "C" fn mult_to_rate(mult: c_int) -> c_uint {
    RATES.iter().find(|r| r.1 == Some(mult)).map_or(MAX, |r| r.0)
}

pub(crate) extern "C" fn rate_to_mbps(rate: c_uint) -> c_int {
    RATES.iter().find(|r| r.0 == rate).map_or(-1, |r| r.2)
}

pub(crate) extern "C" fn mbps_to_rate(mbps: c_int) -> c_uint {
    RATES.iter().find(|r| r.2 == mbps).map_or(MAX, |r| r.0)
}
