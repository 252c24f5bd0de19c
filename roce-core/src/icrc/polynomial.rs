//! Arithmetic modulo the polynomial of CRC-32: bits stand for coefficients, the highest bit for
//! that of x^0 (as the CRC is computed).

/// The polynomial without x^32.
const P: u32 = 0xedb8_8320;
/// x^0.
const ONE: u32 = 1 << 31;

/// Powers in a table. Two tables reach [`MAX_WORDS`].
const STEPS: usize = 64;
/// [`divide_by_words`] divides by fewer words than this: more than a packet has.
pub(super) const MAX_WORDS: usize = STEPS * STEPS;

/// x^-32k, for k < 64.
static INVERSE_WORDS: [u32; STEPS] = powers(INVERSE_WORD);
/// x^(-32 · 64k), for k < 64.
static INVERSE_64_WORDS: [u32; STEPS] = powers(multiply(INVERSE_WORDS_63, INVERSE_WORD));

const INVERSE_WORDS_63: u32 = powers(INVERSE_WORD)[STEPS - 1];

/// x^-32.
const INVERSE_WORD: u32 = {
    let (mut value, mut bits) = (ONE, 0);
    while bits < 32 {
        value = divide_by_x(value);
        bits += 1;
    }
    value
};

/// Divides by x^32 that often: takes zero words away from what a CRC has seen. `None` for
/// [`MAX_WORDS`] and more.
#[inline]
pub(super) fn divide_by_words(value: u32, words: usize) -> Option<u32> {
    if value == 0 {
        return Some(0);
    }
    let upper = INVERSE_64_WORDS.get(words / STEPS)?;
    Some(multiply(multiply(value, INVERSE_WORDS[words % STEPS]), *upper))
}

/// Returns the CRC after `bytes` more bytes of zero.
pub(super) const fn pass_bytes(mut crc: u32, bytes: usize) -> u32 {
    let mut bits = 8 * bytes;
    while bits > 0 {
        crc = times_x(crc);
        bits -= 1;
    }
    crc
}

/// Returns the CRC that `bytes` more bytes of zero turn into this one.
pub(super) const fn take_bytes(mut crc: u32, bytes: usize) -> u32 {
    let mut bits = 8 * bytes;
    while bits > 0 {
        crc = divide_by_x(crc);
        bits -= 1;
    }
    crc
}

const fn powers(of: u32) -> [u32; STEPS] {
    let (mut table, mut at) = ([ONE; STEPS], 1);
    while at < STEPS {
        table[at] = multiply(table[at - 1], of);
        at += 1;
    }
    table
}

/// The product.
const fn multiply(a: u32, b: u32) -> u32 {
    let (mut product, mut shifted, mut degree) = (0, b, 0);
    while degree < 32 {
        // All ones if `a` has the coefficient, else zero: no branch on what a peer sends.
        product ^= shifted & ((a << degree) as i32 >> 31) as u32;
        shifted = times_x(shifted);
        degree += 1;
    }
    product
}

const fn times_x(value: u32) -> u32 {
    value >> 1 ^ (P & (value & 1).wrapping_neg())
}

const fn divide_by_x(value: u32) -> u32 {
    // What `times_x` has taken away shows by the coefficient of x^0, which the polynomial has.
    let taken = value >> 31;
    (value ^ P & taken.wrapping_neg()) << 1 | taken
}

#[cfg(test)]
mod tests;
