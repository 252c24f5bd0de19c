//! The workspace: its folder and sources, and cargo, which knows its programs and builds them.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, Result, ensure};
use serde::Deserialize;

use crate::process;

/// A part of what `cargo metadata` prints.
#[derive(Deserialize)]
struct Metadata {
    packages: Vec<MetadataPackage>,
}

#[derive(Deserialize)]
pub(crate) struct MetadataPackage {
    pub(crate) name: String,
    pub(crate) manifest_path: PathBuf,
    pub(crate) targets: Vec<MetadataTarget>,
    pub(crate) dependencies: Vec<MetadataDependency>,
}

#[derive(Deserialize)]
pub(crate) struct MetadataTarget {
    pub(crate) name: String,
    kind: Vec<String>,
    pub(crate) src_path: PathBuf,
}

#[derive(Deserialize)]
pub(crate) struct MetadataDependency {
    pub(crate) name: String,
}

impl MetadataTarget {
    /// Reports whether it is an integration test.
    pub(crate) fn is_test(&self) -> bool {
        self.kind.iter().any(|kind| kind == "test")
    }

    /// Reports whether it is one file beside sources of others.
    pub(crate) fn is_script_or_example(&self) -> bool {
        self.kind.iter().any(|kind| kind == "custom-build" || kind == "example")
    }
}

/// Message of cargo about an artifact that it has made.
#[derive(Deserialize)]
pub(crate) struct CargoArtifact {
    pub(crate) manifest_path: PathBuf,
    pub(crate) executable: Option<PathBuf>,
    pub(crate) target: MetadataTarget,
    pub(crate) profile: ArtifactProfile,
}

#[derive(Deserialize)]
pub(crate) struct ArtifactProfile {
    /// True if it is a program of tests.
    pub(crate) test: bool,
}

/// The folder of the workspace.
pub(crate) fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("xtask lies in the workspace")
}

/// Cargo's target folder, in which this program lies.
pub(crate) fn target_folder() -> Result<PathBuf> {
    let own = std::env::current_exe().context("finding this program")?;
    Ok(own.ancestors().nth(2).context("this program lies in no target folder")?.to_owned())
}

/// Cargo, with these arguments.
pub(crate) fn cargo(arguments: &[&str]) -> Command {
    let mut cargo = Command::new(env!("CARGO"));
    cargo.args(arguments);
    cargo
}

/// The packages of the workspace.
pub(crate) fn packages() -> Result<Vec<MetadataPackage>> {
    let mut cargo = cargo(&["metadata", "--no-deps", "--format-version=1", "--offline"]);
    let printed = process::printed(cargo.current_dir(root()))?;
    let Metadata { packages } = serde_json::from_str(&printed).context("cargo metadata")?;
    Ok(packages)
}

/// Runs cargo, which builds; what it has made.
pub(crate) fn artifacts(cargo: &mut Command) -> Result<Vec<CargoArtifact>> {
    cargo.arg("--message-format=json-render-diagnostics").stderr(Stdio::inherit());
    let out = cargo.output().context("starting cargo")?;
    ensure!(out.status.success(), "the build failed");
    let lines = String::from_utf8(out.stdout)?;
    // What is no artifact lacks fields of one.
    Ok(lines.lines().filter_map(|line| serde_json::from_str(line).ok()).collect())
}

/// Builds packages, optimised; the folder that has their programs.
pub(crate) fn build_optimised(packages: &[&str]) -> Result<PathBuf> {
    let target = target_folder()?;
    let mut cargo = cargo(&["build", "--release", "--quiet", "--target-dir"]);
    cargo.arg(&target).args(packages.iter().flat_map(|package| ["--package", *package]));
    process::run(&mut cargo)?;
    Ok(target.join("release"))
}

/// The sources in a folder and in those below it.
pub(crate) fn sources(folder: &Path) -> Result<Vec<PathBuf>> {
    let mut all = Vec::new();
    for entry in fs::read_dir(folder)? {
        let path = entry?.path();
        if path.is_dir() {
            all.extend(sources(&path)?);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            all.push(path);
        }
    }
    all.sort();
    Ok(all)
}

/// The lines that `find` finds in the sources of these folders, by the name and the text of each:
/// as `name:line`.
pub(crate) fn found_lines(
    folders: &[&str],
    find: impl Fn(&str, &str) -> Vec<usize>,
) -> Result<Vec<String>> {
    let mut found = Vec::new();
    for folder in folders {
        for file in sources(&root().join(folder))? {
            let name = file.strip_prefix(root())?.display().to_string();
            let text = fs::read_to_string(&file).with_context(|| name.clone())?;
            found.extend(find(&name, &text).into_iter().map(|line| format!("{name}:{line}")));
        }
    }
    Ok(found)
}
