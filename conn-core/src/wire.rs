//! Formats as types, from which both directions follow.
//!
//! A format is a tuple of its fields in the order of the wire, or a struct with a list of them
//! (`fields!`). Integers are little-endian, without padding between fields. The code of the format
//! checks the values.

use core::mem;

/// A value of a fixed number of bytes.
pub(crate) trait Wire: Sized {
    /// Number of its bytes.
    const LEN: usize;

    /// Writes it to the beginning of `out`, and advances `out` behind it. Panics without room.
    fn put(self, out: &mut &mut [u8]);

    /// Reads it from the beginning of `bytes`, and advances `bytes` behind it; `None` if there are
    /// too few.
    fn take(bytes: &mut &[u8]) -> Option<Self>;

    /// Its bytes.
    #[inline]
    fn encoded<const N: usize>(self) -> [u8; N] {
        const { assert!(N == Self::LEN, "the array has the length of the format") };
        let mut bytes = [0; N];
        self.put(&mut &mut bytes[..]);
        bytes
    }

    /// Splits `bytes` into the value at their beginning and the rest.
    #[inline]
    fn split(bytes: &[u8]) -> Option<(Self, &[u8])> {
        // The length is checked once.
        let (mut value, behind) = bytes.split_at_checked(Self::LEN)?;
        Some((Self::take(&mut value)?, behind))
    }
}

macro_rules! integers {
    ($($integer:ident)+) => {$(
        impl Wire for $integer {
            const LEN: usize = size_of::<Self>();

            #[inline]
            fn put(self, out: &mut &mut [u8]) {
                let (here, behind) = mem::take(out).split_at_mut(Self::LEN);
                here.copy_from_slice(&self.to_le_bytes());
                *out = behind;
            }

            #[inline]
            fn take(bytes: &mut &[u8]) -> Option<Self> {
                let (here, behind) = bytes.split_first_chunk()?;
                *bytes = behind;
                Some(Self::from_le_bytes(*here))
            }
        }
    )+};
}

integers! { u8 u16 u32 u64 }

impl<T: Wire + Copy + Default, const N: usize> Wire for [T; N] {
    const LEN: usize = N * T::LEN;

    #[inline]
    fn put(self, out: &mut &mut [u8]) {
        self.into_iter().for_each(|item| item.put(out));
    }

    #[inline]
    fn take(bytes: &mut &[u8]) -> Option<Self> {
        let mut items = [T::default(); N];
        for item in &mut items {
            *item = T::take(bytes)?;
        }
        Some(items)
    }
}

/// Implements [`Wire`] for tuples of these types, and for all shorter ones.
macro_rules! tuples {
    () => {};
    ($first:ident $($other:ident)*) => {
        impl<$first: Wire, $($other: Wire),*> Wire for ($first, $($other,)*) {
            const LEN: usize = $first::LEN $(+ $other::LEN)*;

            #[inline]
            #[allow(non_snake_case, reason = "a field has the name of its type")]
            fn put(self, out: &mut &mut [u8]) {
                let ($first, $($other,)*) = self;
                $first.put(out);
                $($other.put(out);)*
            }

            #[inline]
            fn take(bytes: &mut &[u8]) -> Option<Self> {
                Some(($first::take(bytes)?, $($other::take(bytes)?,)*))
            }
        }

        tuples! { $($other)* }
    };
}

tuples! { A B C D E F G H }

/// Implements [`Wire`] for structs with these fields, in the order of the wire.
macro_rules! fields {
    ($($name:ident { $($field:ident: $type:ty),+ })+) => {$(
        impl $crate::wire::Wire for $name {
            const LEN: usize = 0 $(+ <$type as $crate::wire::Wire>::LEN)+;

            #[inline]
            fn put(self, out: &mut &mut [u8]) {
                $($crate::wire::Wire::put(self.$field, out);)+
            }

            #[inline]
            fn take(bytes: &mut &[u8]) -> Option<Self> {
                Some(Self { $($field: <$type as $crate::wire::Wire>::take(bytes)?),+ })
            }
        }
    )+};
}
pub(crate) use fields;

/// Numbers of an enum of `u8`, which are its discriminants, in both directions.
macro_rules! codes {
    ($name:ident { $($variant:ident),+ }) => {
        impl $name {
            /// From its number; `None` for an unknown one.
            pub const fn from_code(code: u8) -> Option<Self> {
                $(if code == Self::$variant as u8 {
                    return Some(Self::$variant);
                })+
                None
            }

            /// Its number.
            pub const fn code(self) -> u8 {
                self as u8
            }
        }
    };
}
pub(crate) use codes;
