use super::*;

#[test]
fn what_is_preloaded_already_stays() {
    let list = |already: Option<&str>| preload(Path::new("/a.so"), already.map(OsStr::new));
    assert_eq!(list(None), "/a.so");
    assert_eq!(list(Some("")), "/a.so");
    assert_eq!(list(Some("/b.so:/c.so")), "/a.so:/b.so:/c.so");
}
