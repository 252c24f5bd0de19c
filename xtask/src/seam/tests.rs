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
fn a_root_that_denies_nothing_is_found() {
    let folder = std::env::temp_dir().join(format!("seam-{}", std::process::id()));
    let check = |root: &str| {
        fs::create_dir_all(&folder).unwrap();
        fs::write(folder.join("lib.rs"), root).unwrap();
        let found = denies_nothing(Path::new("lib.rs"), &folder).unwrap();
        fs::remove_dir_all(&folder).unwrap();
        found.is_some()
    };
    assert!(!check(DENIES));
    assert!(check("mod module;"));
}

#[test]
fn code_that_lowers_the_lints_is_found() {
    let count = |text: &str| lowered(text).unwrap();
    assert_eq!(count(DENIES), 0);
    assert_eq!(count("#[allow(clippy::disallowed_methods)]\nfn f() {}\n"), 1);
    assert_eq!(
        count("#[expect(\n    clippy::disallowed_types,\n    reason = \"a, b\"\n)]\nfn f() {}"),
        1
    );
    assert_eq!(count("mod m {\n    #![allow(clippy::style)]\n}"), 1);
    assert_eq!(count("#![cfg_attr(test, warn(warnings))]"), 1);
    assert_eq!(count("macro_rules! m { () => { #[allow(clippy::all)] fn f() {} } }"), 1);
    assert_eq!(count("// #[allow(clippy::all)]\nfn f() { x.expect(\"warnings\"); }"), 0);
}

#[test]
fn tests_that_differ_from_the_list_are_found() {
    let tests = RealTimeTests {
        marks: &["Instant::now"],
        reason: "it waits",
        files: &["tests/a.rs", "tests/b.rs"],
    };
    let codes =
        [("tests/a.rs", "Instant::now()"), ("tests/b.rs", ""), ("tests/c.rs", "Instant::now()")];
    let codes = codes.map(|(name, code)| (name.to_owned(), code.to_owned())).into();
    let found = differences(&tests, &codes);
    assert_eq!(found.len(), 2, "{found:?}");
    assert!(found[0].starts_with("tests/c.rs is not listed"), "{found:?}");
    assert!(found[1].starts_with("tests/b.rs uses none"), "{found:?}");
    assert_eq!(code("now(); // Instant::now\n"), "now(); \n");
}

/// clippy is silent about a misspelt path (`allow-invalid`), since not each crate has each library: the compiler is not
/// silent about `named`.
#[test]
fn each_path_that_clippy_lists_exists() {
    const UNBUILT: &str = "rustix::rand::getrandom";
    let root = workspace::root();
    let settings = fs::read_to_string(root.join("clippy.toml")).unwrap();
    let lenient = settings.lines().filter(|line| line.contains("allow-invalid = true"));
    let path = |line: &str| line.split('"').nth(1).unwrap().to_owned();
    let listed: BTreeSet<String> = lenient.map(path).filter(|path| path != UNBUILT).collect();
    let uses = fs::read_to_string(root.join("xtask/src/seam/named.rs")).unwrap();
    let used = |line: &str| Some(line.strip_prefix("use ")?.strip_suffix(" as _;")?.to_owned());
    let named: BTreeSet<String> = uses.lines().filter_map(used).collect();
    assert_eq!(listed, named, "clippy.toml, and xtask/src/seam/named.rs");
    // The feature that has this one is off; with it, the path belongs into `named`.
    let manifest = fs::read_to_string(root.join("Cargo.toml")).unwrap();
    let rustix = manifest.lines().find(|line| line.starts_with("rustix = ")).unwrap();
    assert!(settings.contains(UNBUILT) && !rustix.contains("\"rand\""), "{rustix}");
}
