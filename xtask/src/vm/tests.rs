//! `cargo xtask vm test`: the integration tests, on the kernel's device.
//!
//! The host builds them, and takes their list from cargo; the guest runs them one at a
//! time, each in a process of its own ([`super::inside`]), so that each is alone on the
//! device, counters included.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, Result, bail, ensure};
use serde::{Deserialize, Serialize};

/// Test programs that do not belong on a kernel's device: package, target, reason.
const ELSEWHERE: &[(&str, &str, &str)] = &[
    ("loom-tests", "combiner", "a model: it has no device"),
    ("loom-tests", "leader", "a model: it has no device"),
    ("loom-tests", "repost", "a model: it has no device"),
    ("loom-tests", "park_flag", "a model: it has no device"),
    ("rdma-conn", "leaks", "counts what the process holds, under valgrind: no kernel there"),
    ("rdma-conn", "card", "soft devices that take a card's time"),
    ("rdma-conn", "simulation", "seeded faults of simulated devices"),
    ("rdma-conn", "simulated_world", "worlds have devices of their own"),
    ("rdma-conn-apps", "command", "what the command prints and refuses, on any device"),
    ("rdma-conn-apps", "figures", "experiments and pages of what other tests measure there"),
    ("rdma-conn-apps", "sweep", "many measurements of the command, each of which others make"),
    ("rdma-conn-apps", "roced", "devices over UDP, which are this project's own"),
    ("rdma-conn-apps", "soft", "programs on soft0; it has the library built"),
    ("rdma-conn-apps", "strangers", "refusals in the handshake, which goes over TCP"),
    ("rdma-conn-apps", "checked", "programs on soft0; it has the library built"),
    ("rdma-conn-apps", "faults", "programs on soft0; it has the library built"),
    ("rdma-conn-apps", "trace", "programs on soft0; it has the library built"),
    ("rdma-conn-apps", "doctor", "paths of devices over UDP"),
    ("rdma-conn-apps", "wired", "devices over UDP, and what the command says of them"),
    ("soft-rnic", "atomic_write", "atomic writes, which Linux's rxe has from 6.2 on"),
    ("soft-rnic", "atomic_write_between", "how soft0's atomic writes reach other processes"),
    ("soft-rnic", "capabilities", "what soft0 says that it has"),
    ("soft-rnic", "check", "what soft0 reports of a program"),
    ("soft-rnic", "check_record", "what soft0 reports of a program"),
    ("soft-rnic", "allocators", "where soft0's queues lie"),
    ("soft-rnic", "device_memory", "device memory, which rxe does not have"),
    ("soft-rnic", "embedded", "exact limits and tolerance of soft0, and a simulated clock"),
    ("soft-rnic", "import", "importing, which asks for descriptors and handles of soft0"),
    ("soft-rnic", "import_contexts", "importing, which asks for descriptors and handles of soft0"),
    ("soft-rnic", "lists", "the shorter way that soft0 has for plain lists"),
    ("soft-rnic", "moderation", "moderated events, which rxe does not have"),
    ("soft-rnic", "multicast", "groups of soft0, with its limits"),
    ("soft-rnic", "multicast_processes", "how soft0's groups reach other processes"),
    ("soft-rnic", "populations", "how many objects soft0 has"),
    ("soft-rnic", "faults", "plans of faults, which soft0 has"),
    ("soft-rnic", "odp", "on-demand memory, which Linux 6.1's rxe does not have"),
    ("soft-rnic", "odp_between", "how soft0's on-demand memory reaches other processes"),
    ("soft-rnic", "odp_threads", "on-demand memory, which Linux 6.1's rxe does not have"),
    ("soft-rnic", "trace", "traces of soft0"),
    ("soft-rnic", "unsupported", "what soft0 does not have, and its errors"),
    ("soft-rnic", "windows", "memory windows, with soft0's statuses"),
    ("soft-rnic", "windows_between", "how soft0's memory windows reach other processes"),
    ("soft-rnic", "xrc", "XRC, which Linux's rxe does not have"),
    ("soft-rnic", "network", "the faulty network between soft0's queue pairs"),
    ("soft-rnic", "simulation", "seeded faults of simulated devices"),
    ("soft-rnic-abi", "installed", "soft0 behind the library's symbols"),
    ("soft-rnic-abi", "opened", "soft0 behind the library's symbols"),
    ("soft-rnic-abi", "symbols", "files that are compared"),
    ("verbs-safe", "compile_fail", "programs that must not compile: they have no device"),
    ("verbs-safe", "faults", "a provider that fails at will, made of soft0"),
];

/// Devices over UDP, which these make themselves: in the guest, rxe has their port.
const OVER_UDP: (&str, &str, &str) =
    ("soft-rnic", "roce", "devices over UDP, which are this crate's own");

/// Why a test program does not belong on a kernel's device, if it does not.
fn elsewhere(package: &str, target: &str) -> Option<&'static str> {
    let listed = ELSEWHERE.iter().find(|(p, t, _)| (*p, *t) == (package, target));
    let over_udp =
        Some(&OVER_UDP).filter(|(p, begin, _)| *p == package && target.starts_with(begin));
    listed.or(over_udp).map(|(_, _, reason)| *reason)
}

/// What the guest is to run.
#[derive(Serialize, Deserialize)]
pub(super) struct Plan {
    pub(super) programs: Vec<Program>,
    /// Only tests whose names hold this.
    pub(super) filter: Option<String>,
}

/// A test program, with the folder that its tests run in.
#[derive(Serialize, Deserialize)]
pub(super) struct Program {
    pub(super) package: String,
    pub(super) target: String,
    pub(super) executable: PathBuf,
    pub(super) folder: PathBuf,
    /// Why it does not belong on a kernel's device, if it does not.
    pub(super) elsewhere: Option<String>,
}

/// Builds the tests. Of two test targets of the same name there is one a package.
pub(super) fn plan(only: &[String], filter: Option<String>) -> Result<Plan> {
    let mut programs = built(only)?;
    for (package, target, _) in ELSEWHERE.iter().filter(|_| only.is_empty()) {
        let is_there = programs.iter().any(|p| p.package == *package && p.target == *target);
        ensure!(is_there, "{package} has no tests {target}: strike them from ELSEWHERE");
    }
    programs.sort_by(|a, b| (&a.package, &a.target).cmp(&(&b.package, &b.target)));
    Ok(Plan { programs, filter })
}

/// Builds test programs: where they are.
pub(super) fn executables(names: &[&str]) -> Result<Vec<PathBuf>> {
    let names: Vec<String> = names.iter().map(|name| (*name).to_owned()).collect();
    Ok(built(&names)?.into_iter().map(|program| program.executable).collect())
}

/// What cargo says of an artifact it has made.
#[derive(Deserialize)]
struct Artifact {
    reason: String,
    #[serde(default)]
    manifest_path: PathBuf,
    executable: Option<PathBuf>,
    target: Option<Target>,
}

#[derive(Deserialize)]
struct Target {
    name: String,
    kind: Vec<String>,
}

/// The integration tests of the workspace that are named, or every one.
fn built(only: &[String]) -> Result<Vec<Program>> {
    let mut cargo = Command::new(env!("CARGO"));
    cargo.args(["test", "--workspace", "--profile", "lane", "--no-run", "--quiet"]);
    let every = if only.is_empty() { Some("*") } else { None };
    for name in only.iter().map(String::as_str).chain(every) {
        cargo.args(["--test", name]);
    }
    cargo.arg("--message-format=json-render-diagnostics").stderr(Stdio::inherit());
    let out = cargo.output().context("starting cargo")?;
    if !out.status.success() {
        bail!("the tests do not build");
    }
    let lines = String::from_utf8(out.stdout)?;
    let artifacts = lines.lines().map(|line| Ok(serde_json::from_str::<Artifact>(line)?));
    let artifacts = artifacts.collect::<Result<Vec<_>>>()?;
    artifacts.into_iter().filter_map(program).collect()
}

fn program(artifact: Artifact) -> Option<Result<Program>> {
    let target = artifact.target?;
    if artifact.reason != "compiler-artifact" || !target.kind.iter().any(|kind| kind == "test") {
        return None;
    }
    let executable = artifact.executable?;
    let folder = artifact.manifest_path.parent().unwrap_or(Path::new("/")).to_owned();
    let described = package_name(&artifact.manifest_path).map(|package| {
        let elsewhere = elsewhere(&package, &target.name).map(str::to_owned);
        Program { package, target: target.name, executable, folder, elsewhere }
    });
    Some(described)
}

/// The name in a manifest: its first line that begins with `name`.
fn package_name(manifest: &Path) -> Result<String> {
    let text = std::fs::read_to_string(manifest)?;
    let mut sections = text.split("[package]").skip(1).flat_map(str::lines);
    let name = sections.find_map(|line| line.strip_prefix("name = "));
    let name = name.with_context(|| format!("{} names no package", manifest.display()))?;
    Ok(name.trim_matches('"').to_owned())
}

#[cfg(test)]
mod guest {
    use std::fs::read_to_string;

    use super::*;

    /// They fail in the guest, half an hour after the rest of the gate.
    #[test]
    fn what_makes_devices_over_udp_is_not_for_the_guest() {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
        let mut found = 0;
        let folders = root.read_dir().unwrap().map(|entry| entry.unwrap().path());
        for package in folders.chain([root.to_owned()]) {
            let Ok(files) = package.join("tests").read_dir() else { continue };
            let Ok(name) = package_name(&package.join("Cargo.toml")) else { continue };
            for file in files.map(|entry| entry.unwrap().path()).filter(|path| path.is_file()) {
                let target = file.file_stem().unwrap().to_str().unwrap();
                let text = read_to_string(&file).unwrap();
                let marks = ["soft_rnic::Roce", "wired::", "\"roce:"];
                if marks.iter().any(|mark| text.contains(mark)) {
                    found += 1;
                    assert!(
                        elsewhere(&name, target).is_some(),
                        "{name}: {target} goes to ELSEWHERE"
                    );
                }
            }
        }
        assert!(found > 5, "{found} found");
    }
}
