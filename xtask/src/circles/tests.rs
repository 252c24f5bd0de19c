use super::*;

/// A crate of these files.
pub(super) fn krate(files: &[(&str, &str)]) -> Krate {
    let folder = std::env::temp_dir().join(format!("circles-{}", std::process::id()));
    let folder = folder.join(format!("{:?}", std::thread::current().id()));
    for (name, text) in files {
        let file = folder.join(name);
        std::fs::create_dir_all(file.parent().unwrap()).unwrap();
        std::fs::write(file, text).unwrap();
    }
    let krate = Krate::read(&folder.join("lib.rs")).unwrap();
    std::fs::remove_dir_all(&folder).unwrap();
    krate
}

/// The modules of these circles, by name.
pub(super) fn names(krate: &Krate, circles: &[Vec<usize>]) -> Vec<Vec<String>> {
    circles.iter().map(|circle| circle.iter().map(|m| krate.name(*m)).collect()).collect()
}

#[test]
fn folders_use_each_other_where_no_modules_do() {
    let krate = krate(&[
        ("lib.rs", "mod a; mod b; mod c; pub use a::high::High;"),
        ("a.rs", "pub mod low; pub mod high;"),
        ("a/low.rs", "pub struct Low;"),
        ("a/high.rs", "use crate::b::B; pub struct High(B);"),
        ("b.rs", "pub struct B(crate::a::low::Low);"),
        ("c.rs", "pub struct C(crate::High);"),
    ]);
    let edges = krate.edges();
    assert_eq!(names(&krate, &circles(krate.len(), &edges)), Vec::<Vec<String>>::new());
    let found = |known: &[Pair]| {
        let (folder_edges, ended) = folders(&krate, &edges, known);
        (names(&krate, &circles(krate.len(), &folder_edges)), ended)
    };
    assert_eq!(found(&[]), (vec![vec!["a".to_owned(), "b".to_owned()]], vec![]));
    assert_eq!(found(&[("b", "a")]), (vec![], vec![]));
    assert_eq!(found(&[("a", "b"), ("a", "c")]), (vec![], vec![("a", "c")]));
}
