//! The test programs of the workspace: cargo's list of them, and how they are built.

use std::collections::HashMap;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};

use super::header::TestHeader;
use crate::workspace::{self, MetadataPackage, MetadataTarget};

/// An integration-test program, as its source and cargo describe it.
pub(super) struct TestSource {
    pub(super) package: String,
    pub(super) target: String,
    /// The package's folder, in which cargo starts the tests.
    pub(super) folder: PathBuf,
    pub(super) path: PathBuf,
    pub(super) header: TestHeader,
}

/// The test programs of the workspace, by package and name.
pub(super) fn all() -> Result<Vec<TestSource>> {
    let mut all = Vec::new();
    for MetadataPackage { name, manifest_path, targets, .. } in workspace::packages()? {
        let folder = manifest_path.parent().unwrap_or(Path::new("/"));
        for MetadataTarget { name: target, src_path: path, .. } in
            targets.into_iter().filter(MetadataTarget::is_test)
        {
            let header = std::fs::read_to_string(&path)?;
            let header =
                TestHeader::parse(&header).with_context(|| format!("in {}", path.display()))?;
            let (package, folder) = (name.clone(), folder.to_owned());
            all.push(TestSource { package, target, folder, path, header });
        }
    }
    all.sort_by(|a, b| (&a.package, &a.target).cmp(&(&b.package, &b.target)));
    Ok(all)
}

/// Builds test programs of these names, with the command and the library of soft0: the
/// executables, by the paths of their sources. Profile and features are those of `cargo test --workspace`, so that
/// no lane builds anything once more: in the guest, on an emulated processor, tests take a minute longer than
/// optimised ones, which take minutes to build.
pub(crate) fn build(names: &[String]) -> Result<HashMap<PathBuf, PathBuf>> {
    let parts = ["build", "--workspace", "--quiet", "--lib", "--bin", "rdma-conn"];
    let mut cargo = workspace::cargo(&parts);
    for name in names {
        cargo.args(["--test", name]);
    }
    let tests = workspace::artifacts(&mut cargo)?.into_iter().filter(|it| it.target.is_test());
    Ok(tests.filter_map(|it| Some((it.target.src_path, it.executable?))).collect())
}
