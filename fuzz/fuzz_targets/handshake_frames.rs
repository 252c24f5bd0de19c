//! Frames, right and wrong, there and back.
#![no_main]

use conn_core::handshake::oracle::{FrameSample, check_sample};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|sample: FrameSample| check_sample(&sample));
