//! Width of one store of a long copy.

use host::sync::OnceLock;

/// Number of bytes that one store of a long copy moves.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Width {
    Bytes16,
    Bytes32,
    Bytes64,
}

impl Width {
    /// The widest aligned store that this processor carries out in one piece.
    pub(super) fn of_this_processor() -> Width {
        static WIDTH: OnceLock<Width> = OnceLock::new();
        *WIDTH.get_or_init(|| Width::for_processor(&Processor::this()))
    }

    /// The manuals promise 16 bytes in one piece, from AVX on. A store that a core splits takes
    /// as long as two, and no manual says which half becomes visible first. No bit of CPUID says
    /// how wide the data paths of stores are, so that the instructions tell of the design:
    ///
    /// - Of Intel, VAES with AVX-512 are Ice Lake and later, whose paths have 64 bytes. VAES
    ///   with AVX2 alone may be an E-core, which splits stores of 32 bytes (Alder Lake and
    ///   later, Sierra Forest). In hybrid processors a thread moves between both kinds of core.
    /// - Of AMD, VAES with AVX2 are Zen 3 and later, whose paths have 32 bytes at least. Zen 4
    ///   splits stores of 64 bytes, and so do some of Zen 5.
    /// - Of others nothing is known.
    fn for_processor(processor: &Processor) -> Width {
        let Processor { vendor, avx2, vaes, avx512f, has_e_cores } = *processor;
        match &vendor {
            b"GenuineIntel" if vaes && avx512f && !has_e_cores => Width::Bytes64,
            b"AuthenticAMD" if vaes && avx2 => Width::Bytes32,
            _ => Width::Bytes16,
        }
    }

    /// All widths whose instructions this processor has.
    #[cfg(test)]
    pub(super) fn all_of_this_processor() -> Vec<Width> {
        let mut widths = vec![Width::Bytes16];
        widths.extend(std::is_x86_feature_detected!("avx").then_some(Width::Bytes32));
        widths.extend(std::is_x86_feature_detected!("avx512f").then_some(Width::Bytes64));
        widths
    }
}

/// Properties of a processor, from CPUID.
#[derive(Debug, Clone, Copy)]
struct Processor {
    vendor: [u8; 12],
    /// The system saves the registers of these, too.
    avx2: bool,
    vaes: bool,
    avx512f: bool,
    /// A hybrid one, or one whose core says that it is an E-core.
    has_e_cores: bool,
}

impl Processor {
    fn this() -> Processor {
        Processor {
            vendor: vendor(),
            avx2: std::is_x86_feature_detected!("avx2"),
            vaes: std::is_x86_feature_detected!("vaes"),
            avx512f: std::is_x86_feature_detected!("avx512f"),
            has_e_cores: has_e_cores(),
        }
    }
}

fn vendor() -> [u8; 12] {
    let leaf = core::arch::x86_64::__cpuid(0);
    let mut name = [0; 12];
    name.copy_from_slice([leaf.ebx, leaf.edx, leaf.ecx].map(u32::to_le_bytes).as_flattened());
    name
}

/// The leaf of extended features, and its bit (in EDX) of hybrid processors.
const FEATURES: u32 = 7;
const HYBRID: u32 = 1 << 15;
/// The leaf of the core that asks, and the type of E-cores in the upper eight bits of EAX.
const CORE: u32 = 0x1a;
const E_CORE: u32 = 0x20;

fn has_e_cores() -> bool {
    use core::arch::x86_64::{__cpuid, __cpuid_count};
    let last = __cpuid(0).eax;
    let is_hybrid = last >= FEATURES && __cpuid_count(FEATURES, 0).edx & HYBRID != 0;
    is_hybrid || last >= CORE && __cpuid_count(CORE, 0).eax >> 24 == E_CORE
}

#[cfg(test)]
mod tests;
