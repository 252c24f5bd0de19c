//! Frames, right and wrong, there and back.
#![no_main]

use conn_core::handshake::oracle::{Sample, check_sample};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|sample: Sample| check_sample(&sample));
