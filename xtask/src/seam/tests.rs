use super::*;

#[test]
fn roots_deny_what_clippy_lists_or_have_a_reason() {
    run().unwrap();
}

#[test]
fn stores_that_publish_where_no_point_is_are_found() {
    let publishes = "fn f() {\n    word.store(1, Ordering::Release);\n}\n";
    assert_eq!(unseen(publishes), [2]);
    assert_eq!(unseen(&publishes.replace('}', "    host::point();\n}")), [0_usize; 0]);
    assert_eq!(unseen(&publishes.replace("Release", "Relaxed")), [0_usize; 0]);
    assert_eq!(unseen("// Ordering::Release"), [0_usize; 0]);
}

#[test]
fn a_root_that_denies_nothing_and_code_that_allows_are_found() {
    let folder = std::env::temp_dir().join(format!("seam-{}", std::process::id()));
    let check = |root: &str, module: &str| {
        fs::create_dir_all(folder.join("src")).unwrap();
        fs::write(folder.join("src/lib.rs"), root).unwrap();
        fs::write(folder.join("src/module.rs"), module).unwrap();
        let found = complaints(Path::new("src/lib.rs"), &folder).unwrap();
        fs::remove_dir_all(&folder).unwrap();
        found.len()
    };
    let allows = "#[allow(clippy::disallowed_methods)]\nfn f() {}\n";
    assert_eq!(check(DENIES, ""), 0);
    assert_eq!(check("mod module;", ""), 1);
    assert_eq!(check(DENIES, allows), 1);
}
