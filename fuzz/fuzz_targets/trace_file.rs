//! Whatever lies in a trace of soft0: its header, the records at the beginning of its log, and its
//! objects.
#![no_main]

use libfuzzer_sys::fuzz_target;
use soft_rnic::trace::{LOG_RECORDS, VERSION, read};

/// Words of the header, and of a record.
const HEADER: usize = 32;
const RECORD: usize = 6;

type Edits = Vec<(u8, u64)>;

fuzz_target!(|input: (Edits, Vec<u64>, Vec<(u8, u8)>, Edits)| {
    let (header, log, objects, edits) = input;
    let first_object = HEADER + LOG_RECORDS * RECORD;
    let mut words = vec![0; first_object];
    words[HEADER..].iter_mut().zip(log).for_each(|(to, from)| *to = from);
    // Most words are two small numbers.
    words.extend(objects.into_iter().map(|(low, high)| u64::from(low) | u64::from(high) << 32));
    for (at, word) in edits {
        if let Some(to) = words.get_mut(first_object + usize::from(at)) {
            *to = word;
        }
    }
    words[0] = u64::from_le_bytes(*b"RDMAtrac");
    words[1] = VERSION.into();
    // Words in use.
    words[5] = words.len() as u64;
    header.into_iter().for_each(|(at, word)| words[usize::from(at) % HEADER] = word);
    let bytes: Vec<u8> = words.iter().flat_map(|word| word.to_ne_bytes()).collect();
    let Ok(trace) = read(&bytes) else { return };
    let shown = trace.queue_pairs.iter().map(|pair| pair.sends.len() + pair.receives.len());
    assert!(shown.sum::<usize>() <= words.len() - first_object);
    assert!(trace.torn <= words.len() as u64);
});
