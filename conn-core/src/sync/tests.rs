use std::{format, fs, path::Path, string::String, vec::Vec};

/// Lines of all source files of the crate: location and text.
fn lines(folder: &Path, found: &mut Vec<(String, String)>) {
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            lines(&path, found);
            continue;
        }
        let text = fs::read_to_string(&path).unwrap();
        let place = |number: usize| format!("{}:{}", path.display(), number + 1);
        let numbered = text.lines().enumerate();
        found.extend(numbered.map(|(number, line)| (place(number), String::from(line.trim()))));
    }
}

fn code() -> Vec<(String, String)> {
    let mut found = Vec::new();
    lines(Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/src")), &mut found);
    found.retain(|(place, line)| !line.starts_with("//") && !place.contains("src/sync"));
    assert!(found.len() > 10_000, "the sources");
    found
}

/// A type that the target may lack is imported by this module only.
#[test]
fn atomics_come_from_this_module() {
    for (place, line) in code() {
        assert!(!line.contains("sync::atomic"), "{place}: {line}");
    }
}

/// The private cfg leaves out the same modules as a target without 64-bit atomics: one condition
/// names both.
#[test]
fn what_is_left_out_for_the_target_is_left_out_for_the_test() {
    let mut modules = 0;
    for (place, line) in code() {
        if line.contains("target_has_atomic") || line.contains("rdma_conn_no_atomic64") {
            let both = r#"all(target_has_atomic = "64", not(rdma_conn_no_atomic64))"#;
            assert!(line.contains(both), "{place}: {line}");
            modules += 1;
        }
    }
    assert!(modules >= 4, "{modules} conditions");
}
