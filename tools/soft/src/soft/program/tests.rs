use super::*;

#[test]
fn the_interpreter_is_the_first_word() {
    let of = |text: &str| interpreter(text.as_bytes());
    assert_eq!(of("#!/bin/sh\necho"), Some("/bin/sh".into()));
    assert_eq!(of("#! /usr/bin/env python3\n"), Some("/usr/bin/env".into()));
    assert_eq!(of("#!\n"), None);
    assert_eq!(of("\x7fELF"), None);
}

#[test]
fn what_is_no_program_says_so() {
    let why = |bytes: &[u8]| check_elf(Path::new("p"), bytes).unwrap_err().to_string();
    assert!(why(b"\x7fELF").contains("no program for x86-64"));
    assert!(why(b"echo").contains("no program for x86-64"));
    let mut cut = start(Path::new("/proc/self/exe")).unwrap();
    cut.truncate(70);
    assert!(why(&cut).contains("no program for x86-64"));
}

/// Each program header of this test is taken for another one.
#[test]
fn a_program_without_a_dynamic_linker_is_static() {
    let mut bytes = start(Path::new("/proc/self/exe")).unwrap();
    check_elf(Path::new("p"), &bytes).unwrap();
    let (offset, size, n) = (64, 56, usize::from(bytes[56]));
    for i in 0..n {
        let kind = &mut bytes[offset + i * size..][..4];
        if kind == PT_INTERP.0.to_le_bytes() {
            kind.fill(0);
        }
    }
    let why = check_elf(Path::new("p"), &bytes).unwrap_err().to_string();
    assert!(why.contains("statically"), "{why}");
}
