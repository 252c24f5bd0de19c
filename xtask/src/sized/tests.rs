use super::*;

#[test]
fn what_numbers_size_is_fallible_or_bounded() {
    run().unwrap();
}

#[test]
fn lengths_that_are_no_constants_are_found() {
    for (line, is_found) in [
        ("let a = vec![0; n];", true),
        ("let a = vec![0; 2 * SIZE as usize];", false),
        ("let a = vec![n, 2];", false),
        ("let a = Vec::with_capacity(config.slots as usize);", true),
        ("let a = Vec::with_capacity(64);", false),
        ("a.resize(len, 0);", true),
        ("cq.resize(ring_len(device, cqe)?)", false),
        ("a.resize_with(of(2, n), || None);", true),
        ("// a.resize(len, 0);", false),
    ] {
        assert_eq!(allocates(line), is_found, "{line}");
    }
    assert_eq!(sized("fn f() {\n    vec![0; n];\n}\n#[cfg(test)]\nvec![0; n]"), [2]);
    assert_eq!(sized("// Bounded: by a test.\nvec![0; n];"), [0_usize; 0]);
}
