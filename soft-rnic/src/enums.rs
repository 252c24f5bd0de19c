//! Enums that have a text for each value.

/// An enum with a text for each value.
pub(crate) trait NamedEnum: Sized + 'static {
    /// Its values, in their order.
    const ALL: &'static [Self];

    /// Text of the value.
    fn name(self) -> &'static str;
}

/// Declares an enum, each value with its text.
macro_rules! named_enum {
    ($(#[$attr:meta])* $vis:vis enum $Enum:ident {
        $($(#[$doc:meta])* $value:ident = $name:literal,)*
    }) => {
        $(#[$attr])*
        $vis enum $Enum {
            $($(#[$doc])* $value,)*
        }

        impl $crate::enums::NamedEnum for $Enum {
            const ALL: &'static [$Enum] = &[$($Enum::$value),*];

            fn name(self) -> &'static str {
                match self {
                    $($Enum::$value => $name,)*
                }
            }
        }
    };
}

pub(crate) use named_enum;
