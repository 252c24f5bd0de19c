use super::*;

#[test]
fn the_store_width_follows_from_the_processor_design() {
    let (intel, amd) = (b"GenuineIntel", b"AuthenticAMD");
    // The vendor; AVX2, VAES, AVX-512, E-cores.
    let processors = [
        ("Westmere", intel, [false; 4], Width::Bytes16),
        ("Haswell", intel, [true, false, false, false], Width::Bytes16),
        ("Skylake-SP", intel, [true, false, true, false], Width::Bytes16),
        ("Ice Lake", intel, [true, true, true, false], Width::Bytes64),
        ("Alder Lake", intel, [true, true, false, true], Width::Bytes16),
        (
            "a virtual machine that hides the kind of core",
            intel,
            [true, true, false, false],
            Width::Bytes16,
        ),
        ("Sierra Forest", intel, [true, true, false, true], Width::Bytes16),
        ("an E-core with AVX-512", intel, [true, true, true, true], Width::Bytes16),
        ("Zen 2", amd, [true, false, false, false], Width::Bytes16),
        ("Zen 3", amd, [true, true, false, false], Width::Bytes32),
        ("Zen 4", amd, [true, true, true, false], Width::Bytes32),
        ("another vendor", b"  Shanghai  ", [true, true, true, false], Width::Bytes16),
    ];
    for (name, &vendor, [avx2, vaes, avx512f, has_e_cores], width) in processors {
        let processor = Processor { vendor, avx2, vaes, avx512f, has_e_cores };
        assert_eq!(Width::for_processor(&processor), width, "{name}");
    }
}

#[test]
fn the_width_of_this_processor_is_one_that_it_has() {
    let width = Width::of_this_processor();
    assert!(Width::all_of_this_processor().contains(&width), "{width:?}");
    assert_eq!(width, Width::of_this_processor());
}
