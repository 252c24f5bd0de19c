use crate::circles::graph::circles;
use crate::circles::tests::{krate, names};

fn read(files: &[(&str, &str)]) -> Vec<Vec<String>> {
    let krate = krate(files);
    names(&krate, &circles(krate.len(), &krate.edges()))
}

#[test]
fn two_that_use_each_other_are_a_circle() {
    let found = read(&[
        ("lib.rs", "mod a; mod b;"),
        ("a.rs", "use crate::b::B; pub struct A(B);"),
        ("b.rs", "pub struct B; fn f() { println!(\"{}\", super::a::g()); }"),
    ]);
    assert_eq!(found, [["a", "b"]]);
}

#[test]
fn a_name_that_is_passed_on_counts_where_it_is_defined() {
    let files = [
        ("lib.rs", "mod a; mod b; mod c; pub use a::A; use c::*;"),
        ("a.rs", "pub struct A;"),
        ("b/mod.rs", "mod d; pub use d::D; use crate::A; struct B(A);"),
        ("b/d.rs", "pub struct D(super::super::C);"),
        ("c.rs", "pub struct C;"),
    ];
    assert_eq!(read(&files[..5]), Vec::<Vec<String>>::new());
}

#[test]
fn a_module_and_its_child_form_a_circle_by_mutual_use() {
    let parent = "mod child; use child::f; pub struct Parent; fn g() { f() }";
    let found = read(&[
        ("lib.rs", "mod parent;"),
        ("parent.rs", parent),
        ("parent/child.rs", "pub fn f() { let _ = super::Parent; }"),
    ]);
    assert_eq!(found, [["parent", "parent::child"]]);
    let in_tests = "#[cfg(test)] mod tests { use super::Parent; } pub(super) fn f() {}";
    let none =
        read(&[("lib.rs", "mod parent;"), ("parent.rs", parent), ("parent/child.rs", in_tests)]);
    assert_eq!(none, Vec::<Vec<String>>::new());
}
