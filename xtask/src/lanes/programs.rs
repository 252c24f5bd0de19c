//! The test programs of the workspace: cargo's list of them, and how they are built.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, Result, ensure};
use serde::Deserialize;
use serde::de::DeserializeOwned;

use super::header::TestHeader;

/// An integration-test program, as its source and cargo describe it.
pub(super) struct TestSource {
    pub(super) package: String,
    pub(super) target: String,
    /// The package's folder, in which cargo starts the tests.
    pub(super) folder: PathBuf,
    pub(super) path: PathBuf,
    pub(super) header: TestHeader,
}

/// A part of what `cargo metadata` prints.
#[derive(Deserialize)]
struct Metadata {
    packages: Vec<MetadataPackage>,
}

#[derive(Deserialize)]
struct MetadataPackage {
    name: String,
    manifest_path: PathBuf,
    targets: Vec<MetadataTarget>,
}

#[derive(Deserialize)]
struct MetadataTarget {
    name: String,
    kind: Vec<String>,
    src_path: PathBuf,
}

/// A line of `cargo build --message-format=json`.
#[derive(Deserialize)]
struct BuiltTest {
    executable: Option<PathBuf>,
    target: Option<MetadataTarget>,
}

impl MetadataTarget {
    fn is_test(&self) -> bool {
        self.kind.iter().any(|kind| kind == "test")
    }
}

/// The test programs of the workspace, by package and name.
pub(super) fn all() -> Result<Vec<TestSource>> {
    let mut cargo = Command::new(env!("CARGO"));
    let metadata = json(cargo.args(["metadata", "--no-deps", "--format-version=1"]))?;
    let mut all = Vec::new();
    for MetadataPackage { name, manifest_path, targets } in
        metadata.into_iter().flat_map(|metadata: Metadata| metadata.packages)
    {
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
    let mut cargo = Command::new(env!("CARGO"));
    cargo.args(["build", "--workspace", "--quiet"]);
    cargo.args(["--lib", "--bin", "rdma-conn", "--message-format=json-render-diagnostics"]);
    for name in names {
        cargo.args(["--test", name]);
    }
    let artifacts = json(&mut cargo)?.into_iter().filter_map(|BuiltTest { executable, target }| {
        Some((target.filter(MetadataTarget::is_test)?.src_path, executable?))
    });
    Ok(artifacts.collect())
}

/// Runs cargo, and reads what it prints, one value a line.
fn json<T: DeserializeOwned>(cargo: &mut Command) -> Result<Vec<T>> {
    let out = cargo.stderr(Stdio::inherit()).output().context("starting cargo")?;
    ensure!(out.status.success(), "cargo failed");
    let lines = String::from_utf8(out.stdout)?;
    lines.lines().map(|line| Ok(serde_json::from_str(line)?)).collect()
}
