//! The modules of a crate, what each defines, and which names each uses.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use proc_macro2::{TokenStream, TokenTree};
use syn::visit::{self, Visit};
use syn::{Attribute, Ident, Item, ItemMod, ItemUse, Meta, UseTree, Visibility};

use super::graph::Edges;

/// The module at the top.
const ROOT: usize = 0;

/// A name that a module has imported.
struct Import {
    name: String,
    path: Vec<String>,
}

#[derive(Default)]
struct Module {
    name: Vec<String>,
    parent: usize,
    children: BTreeMap<String, usize>,
    items: BTreeSet<String>,
    imports: Vec<Import>,
    globs: Vec<Vec<String>>,
    /// Paths in its code and its `use` declarations.
    uses: Vec<Vec<String>>,
}

/// A crate.
pub(super) struct Krate(Vec<Module>);

/// Target of a path.
#[derive(Clone, Copy)]
enum PathTarget {
    Module(usize),
    /// An item of this module.
    Item(usize),
}

impl Krate {
    pub(super) fn read(file: &Path) -> Result<Krate> {
        let mut krate = Krate(vec![Module::default()]);
        let folder = file.parent().context("a file lies in a folder")?;
        krate.read_file(ROOT, file, folder)?;
        Ok(krate)
    }

    pub(super) fn len(&self) -> usize {
        self.0.len()
    }

    pub(super) fn name(&self, module: usize) -> String {
        if module == ROOT { "crate".to_owned() } else { self.0[module].name.join("::") }
    }

    /// The module of the crate's root that a module is in, or is; none of the root's own.
    pub(super) fn folder(&self, module: usize) -> Option<usize> {
        match self.0[module].parent {
            _ if module == ROOT => None,
            ROOT => Some(module),
            parent => self.folder(parent),
        }
    }

    /// `folder` is where the files of the module's children are.
    fn read_file(&mut self, module: usize, file: &Path, folder: &Path) -> Result<()> {
        let text = std::fs::read_to_string(file).with_context(|| file.display().to_string())?;
        let parsed = syn::parse_file(&text).with_context(|| file.display().to_string())?;
        self.read_items(module, &parsed.items, folder)
    }

    fn read_items(&mut self, module: usize, items: &[Item], folder: &Path) -> Result<()> {
        for item in items {
            let (attributes, name) = parts(item);
            if is_test(attributes) {
                continue;
            }
            if let Some(name) = name {
                self.0[module].items.insert(name.to_string());
            }
            match item {
                Item::Mod(child) => self.read_child(module, child, folder)?,
                Item::Use(declared) => self.read_use(module, declared),
                other => {
                    let mut names = PathCollector(&mut self.0[module].uses);
                    names.visit_item(other);
                }
            }
        }
        Ok(())
    }

    fn read_child(&mut self, module: usize, child: &ItemMod, folder: &Path) -> Result<()> {
        let name = child.ident.to_string();
        let mut path = self.0[module].name.clone();
        path.push(name.clone());
        let number = self.0.len();
        self.0.push(Module { name: path, parent: module, ..Module::default() });
        self.0[module].children.insert(name.clone(), number);
        let inner = folder.join(&name);
        if let Some((_, items)) = &child.content {
            return self.read_items(number, items, &inner);
        }
        let files: [PathBuf; 2] = [folder.join(format!("{name}.rs")), inner.join("mod.rs")];
        let file = files.iter().find(|file| file.exists());
        let file = file.with_context(|| format!("no file of module {}", self.name(number)))?;
        self.read_file(number, file, &inner)
    }

    fn read_use(&mut self, module: usize, declared: &ItemUse) {
        let passes_on = !matches!(declared.vis, Visibility::Inherited);
        let mut leaves = Vec::new();
        flatten(&declared.tree, &mut Vec::new(), &mut leaves);
        for (path, name) in leaves {
            let own = path.first().is_some_and(|first| {
                let first = if first == "self" { path.get(1) } else { Some(first) };
                first.is_some_and(|first| self.0[module].children.contains_key(first))
            });
            if !(passes_on && own) {
                self.0[module].uses.push(path.clone());
            }
            match name {
                Some(name) => self.0[module].imports.push(Import { name, path }),
                None => self.0[module].globs.push(path),
            }
        }
    }

    /// Returns the uses of one module by another.
    pub(super) fn edges(&self) -> Edges {
        let mut edges = Edges::new();
        for (from, module) in self.0.iter().enumerate() {
            for path in &module.uses {
                if let Some(PathTarget::Item(to) | PathTarget::Module(to)) =
                    self.find(from, path, 0)
                    && to != from
                {
                    edges.entry((from, to)).or_insert_with(|| path.join("::"));
                }
            }
        }
        edges
    }

    /// Returns the target of `path` in the code of `module`, if it stays in this crate.
    fn find(&self, module: usize, path: &[String], depth: u32) -> Option<PathTarget> {
        let (first, rest) = path.split_first()?;
        let found = match first.as_str() {
            "crate" => PathTarget::Module(ROOT),
            "self" => PathTarget::Module(module),
            "super" => PathTarget::Module(self.0[module].parent),
            name => self.look_up(module, name, depth)?,
        };
        rest.iter().try_fold(found, |found, name| match found {
            PathTarget::Item(_) => Some(found),
            PathTarget::Module(at) if name == "super" => {
                Some(PathTarget::Module(self.0[at].parent))
            }
            PathTarget::Module(at) if name == "self" => Some(PathTarget::Module(at)),
            // What a macro has made is not seen: it is taken for an item of the module.
            PathTarget::Module(at) => self.look_up(at, name, depth).or(Some(PathTarget::Item(at))),
        })
    }

    fn look_up(&self, at: usize, name: &str, depth: u32) -> Option<PathTarget> {
        // Modules that pass on each other's names.
        if depth > 16 {
            return None;
        }
        let module = &self.0[at];
        if let Some(child) = module.children.get(name) {
            return Some(PathTarget::Module(*child));
        }
        if module.items.contains(name) {
            return Some(PathTarget::Item(at));
        }
        let import = module.imports.iter().find(|import| import.name == name);
        if let Some(import) = import.filter(|import| import.path.as_slice() != [name]) {
            return self.find(at, &import.path, depth + 1);
        }
        module.globs.iter().find_map(|glob| match self.find(at, glob, depth + 1)? {
            PathTarget::Module(from) if from != at => self.look_up(from, name, depth + 1),
            _ => None,
        })
    }
}

/// Each leaf of a `use` declaration: its path and the name that it gets (none for `*`).
fn flatten(
    tree: &UseTree,
    path: &mut Vec<String>,
    leaves: &mut Vec<(Vec<String>, Option<String>)>,
) {
    let with = |path: &[String], last: &Ident| -> Vec<String> {
        path.iter().cloned().chain([last.to_string()]).collect()
    };
    match tree {
        UseTree::Path(part) => {
            path.push(part.ident.to_string());
            flatten(&part.tree, path, leaves);
            path.pop();
        }
        UseTree::Name(leaf) if leaf.ident == "self" => {
            leaves.push((path.clone(), path.last().cloned()));
        }
        UseTree::Name(leaf) => leaves.push((with(path, &leaf.ident), Some(leaf.ident.to_string()))),
        UseTree::Rename(leaf) => {
            let whole = if leaf.ident == "self" { path.clone() } else { with(path, &leaf.ident) };
            leaves.push((whole, Some(leaf.rename.to_string())));
        }
        UseTree::Glob(_) => leaves.push((path.clone(), None)),
        UseTree::Group(group) => group.items.iter().for_each(|tree| flatten(tree, path, leaves)),
    }
}

/// Collects the paths of code.
struct PathCollector<'a>(&'a mut Vec<Vec<String>>);

impl<'ast> Visit<'ast> for PathCollector<'_> {
    fn visit_path(&mut self, path: &'ast syn::Path) {
        self.0.push(path.segments.iter().map(|segment| segment.ident.to_string()).collect());
        visit::visit_path(self, path);
    }

    fn visit_item_use(&mut self, declared: &'ast ItemUse) {
        let mut leaves = Vec::new();
        flatten(&declared.tree, &mut Vec::new(), &mut leaves);
        self.0.extend(leaves.into_iter().map(|(path, _)| path));
    }

    fn visit_macro(&mut self, called: &'ast syn::Macro) {
        self.visit_path(&called.path);
        paths_in(called.tokens.clone(), self.0);
    }

    // What only tests see.
    fn visit_impl_item(&mut self, item: &'ast syn::ImplItem) {
        let attributes = match item {
            syn::ImplItem::Fn(function) => function.attrs.as_slice(),
            syn::ImplItem::Const(constant) => &constant.attrs,
            _ => &[],
        };
        if !is_test(attributes) {
            visit::visit_impl_item(self, item);
        }
    }

    // Derives and docs name no module.
    fn visit_attribute(&mut self, _: &'ast Attribute) {}

    // `pub(super)` uses nothing.
    fn visit_visibility(&mut self, _: &'ast Visibility) {}
}

/// The arguments of a macro are no syntax tree: what looks like a path is taken for one.
fn paths_in(tokens: TokenStream, paths: &mut Vec<Vec<String>>) {
    let mut path: Vec<String> = Vec::new();
    let mut colons = 0;
    for token in tokens {
        match token {
            TokenTree::Ident(name) => {
                if colons != 2 && !path.is_empty() {
                    paths.push(std::mem::take(&mut path));
                }
                path.push(name.to_string());
                colons = 0;
            }
            TokenTree::Punct(mark) if mark.as_char() == ':' && !path.is_empty() => colons += 1,
            other => {
                if !path.is_empty() {
                    paths.push(std::mem::take(&mut path));
                }
                colons = 0;
                if let TokenTree::Group(group) = other {
                    paths_in(group.stream(), paths);
                }
            }
        }
    }
    if !path.is_empty() {
        paths.push(path);
    }
}

/// Reports whether only tests see an item with these attributes. (Oracles are tests.)
fn is_test(attributes: &[Attribute]) -> bool {
    attributes.iter().any(|attribute| match &attribute.meta {
        Meta::List(list) if list.path.is_ident("cfg") => {
            let condition = list.tokens.to_string();
            condition.split(|c: char| !c.is_alphanumeric()).any(|word| word == "test")
                && !condition.contains("not")
        }
        _ => false,
    })
}

/// The attributes of an item, and the name that it defines in its module.
fn parts(item: &Item) -> (&[Attribute], Option<&Ident>) {
    match item {
        Item::Const(item) => (&item.attrs[..], Some(&item.ident)),
        Item::Enum(item) => (&item.attrs[..], Some(&item.ident)),
        Item::Fn(item) => (&item.attrs[..], Some(&item.sig.ident)),
        Item::Impl(item) => (&item.attrs[..], None),
        Item::Macro(item) => (&item.attrs[..], None),
        Item::Mod(item) => (&item.attrs[..], None),
        Item::Static(item) => (&item.attrs[..], Some(&item.ident)),
        Item::Struct(item) => (&item.attrs[..], Some(&item.ident)),
        Item::Trait(item) => (&item.attrs[..], Some(&item.ident)),
        Item::Type(item) => (&item.attrs[..], Some(&item.ident)),
        Item::Union(item) => (&item.attrs[..], Some(&item.ident)),
        Item::Use(item) => (&item.attrs[..], None),
        _ => (&[][..], None),
    }
}

#[cfg(test)]
mod tests;
