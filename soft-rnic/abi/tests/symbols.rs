//! The symbols that the library exports, and their versions, are those of rdma-core 44.
//!
//! Only on soft0: it is about the symbols in front of soft0.

mod common;

use std::collections::BTreeSet;
use std::path::Path;

use object::Endianness;
use object::elf::{self, DT_SONAME, FileHeader64};
use object::read::elf::{Dyn, FileHeader, Sym};

/// The symbols as `name@version`, those that programs get which ask for no version.
fn default_symbols(path: &Path) -> BTreeSet<String> {
    let data = std::fs::read(path).unwrap();
    let header = FileHeader64::<Endianness>::parse(&*data).unwrap();
    let endian = header.endian().unwrap();
    let sections = header.sections(endian, &*data).unwrap();
    let symbols = sections.symbols(endian, &*data, elf::SHT_DYNSYM).unwrap();
    let versions = sections.versions(endian, &*data).unwrap().expect("symbols have versions");
    let mut found = BTreeSet::new();
    for (index, symbol) in symbols.enumerate() {
        // The nodes themselves are absolute symbols in some linkers' output.
        let is_ours = !symbol.is_undefined(endian) && symbol.st_shndx(endian) != elf::SHN_ABS;
        if index.0 == 0 || !is_ours || symbol.st_bind() == elf::STB_LOCAL {
            continue;
        }
        let name = str::from_utf8(symbol.name(endian, symbols.strings()).unwrap()).unwrap();
        let version = versions.version_index(endian, index);
        if version.is_hidden() {
            continue;
        }
        let node = versions.version(version.into()).unwrap().map_or(&b""[..], |v| v.name());
        found.insert(format!("{name}@{}", str::from_utf8(node).unwrap()));
    }
    found
}

fn soname(path: &Path) -> String {
    let data = std::fs::read(path).unwrap();
    let header = FileHeader64::<Endianness>::parse(&*data).unwrap();
    let endian = header.endian().unwrap();
    let sections = header.sections(endian, &*data).unwrap();
    let (entries, link) = sections.dynamic(endian, &*data).unwrap().unwrap();
    let strings = sections.strings(endian, &*data, link).unwrap();
    let entry = entries.iter().find(|e| e.tag(endian) == DT_SONAME).unwrap();
    let offset = u32::try_from(entry.d_val.get(endian)).unwrap();
    String::from_utf8(strings.get(offset).unwrap().to_vec()).unwrap()
}

#[track_caller]
fn assert_same(ours: &BTreeSet<String>, theirs: &BTreeSet<String>) {
    let missing: Vec<_> = theirs.difference(ours).collect();
    let more: Vec<_> = ours.difference(theirs).collect();
    assert!(missing.is_empty() && more.is_empty(), "missing: {missing:?}, more: {more:?}");
}

/// Those of Debian 12.
#[test]
fn the_symbols_are_those_of_the_list() {
    let list = include_str!("../symbols.txt").lines().map(str::to_owned).collect();
    assert_same(&default_symbols(common::library()), &list);
    assert_eq!(soname(common::library()), "libibverbs.so.1");
}

/// Newer ones have more.
#[test]
fn the_installed_library_has_the_symbols() {
    let Some(installed) = common::installed() else { return };
    let theirs = default_symbols(&installed);
    let ours = default_symbols(common::library());
    if theirs.len() == ours.len() {
        assert_same(&ours, &theirs);
    }
    let public = |name: &&String| !name.ends_with("PRIVATE_34");
    let unknown: Vec<_> = ours.difference(&theirs).filter(public).collect();
    assert!(unknown.is_empty(), "not in {}: {unknown:?}", installed.display());
}
