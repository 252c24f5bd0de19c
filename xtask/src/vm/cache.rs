//! Files that the lane fetches, and the folder that keeps them: Debian packages on the host, a
//! kernel that is unpacked and not installed, virtme-ng in an environment of its own.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, ensure};

use crate::process;

/// Names the folder of the cache; else it lies in `XDG_CACHE_HOME` or `~/.cache`.
const CACHE: &str = "RDMA_CONN_VM_CACHE";

/// `python3-venv` brings pip; virtme-ng asks `file` for a kernel's version.
const PACKAGES: &[&str] = &[
    "qemu-system-x86",
    "kmod",
    "busybox-static",
    "cpio",
    "file",
    "iproute2",
    "rdma-core",
    "ibverbs-utils",
    "ibverbs-providers",
    "perftest",
    "rdmacm-utils",
    "python3",
    "python3-venv",
];

/// The package that depends on the newest kernel.
const KERNEL: &str = "linux-image-amd64";

const VIRTME: &str = "virtme-ng==1.42";

/// The cache, with everything in it.
pub(super) struct GuestCache {
    dir: PathBuf,
    /// The kernel's image, with its modules in `lib/modules` two folders up.
    pub(super) kernel: PathBuf,
    /// The folder that holds the command `vng`.
    pub(super) bin: PathBuf,
}

impl GuestCache {
    /// Fetches what is missing. One process at a time; the others wait.
    pub(super) fn filled() -> Result<GuestCache> {
        let dir = folder()?;
        fs::create_dir_all(&dir).with_context(|| format!("making {}", dir.display()))?;
        let lock = File::create(dir.join("lock"))?;
        lock.lock()?;
        install_packages()?;
        Ok(GuestCache {
            kernel: kernel(&dir.join("kernel"))?,
            bin: virtme(&dir.join("venv"))?,
            dir,
        })
    }

    /// A folder for one run of the guest, for files in both directions.
    pub(super) fn run_folder(&self) -> Result<PathBuf> {
        let dir = self.dir.join(format!("run-{}", std::process::id()));
        fs::create_dir_all(&dir)?;
        Ok(dir)
    }
}

fn folder() -> Result<PathBuf> {
    let of = |name| std::env::var_os(name).filter(|v| !v.is_empty()).map(PathBuf::from);
    let home = || of("HOME").map(|home| home.join(".cache"));
    let dir = of(CACHE)
        .or_else(|| of("XDG_CACHE_HOME").or_else(home).map(|dir| dir.join("rdma-conn-vm")))
        .with_context(|| format!("no place for the cache: set {CACHE} to a folder"))?;
    Ok(std::path::absolute(dir)?)
}

fn install_packages() -> Result<()> {
    let missing: Vec<&str> = PACKAGES.iter().copied().filter(|p| !is_installed(p)).collect();
    if missing.is_empty() {
        return Ok(());
    }
    eprintln!("vm: installing {}", missing.join(" "));
    as_root(&["apt-get", "update", "-qq"])?;
    let mut install = vec!["env", "DEBIAN_FRONTEND=noninteractive", "apt-get", "install", "-y"];
    install.extend(["-qq", "--no-install-recommends"]);
    install.extend(missing);
    as_root(&install)
}

fn is_installed(package: &str) -> bool {
    let query = ["-W", "-f", "${db:Status-Status}", package];
    let answer = Command::new("dpkg-query").args(query).output();
    answer.is_ok_and(|out| out.stdout == b"installed")
}

fn as_root(command: &[&str]) -> Result<()> {
    let sudo: &[&str] = if rustix::process::geteuid().is_root() { &[] } else { &["sudo"] };
    let words: Vec<&str> = sudo.iter().chain(command).copied().collect();
    process::printed(Command::new(words[0]).args(&words[1..])).map(drop)
}

/// The image of the kernel in `dir`, fetched if it is not there.
fn kernel(dir: &Path) -> Result<PathBuf> {
    let image = |name: &str| dir.join("boot").join(name.replacen("linux-image-", "vmlinuz-", 1));
    if let Ok(name) = fs::read_to_string(dir.join("complete")) {
        return Ok(image(&name));
    }
    let name = kernel_package()?;
    eprintln!("vm: fetching {name}");
    if dir.exists() {
        fs::remove_dir_all(dir)?; // a part of one
    }
    fs::create_dir_all(dir)?;
    process::printed(Command::new("apt-get").args(["download", "-qq", &name]).current_dir(dir))?;
    unpack(dir)?;
    let version = name.trim_start_matches("linux-image-");
    process::printed(Command::new("/sbin/depmod").arg("-b").arg(dir).arg(version))?;
    ensure!(image(&name).exists(), "the package {name} holds no {}", image(&name).display());
    fs::write(dir.join("complete"), &name)?;
    Ok(image(&name))
}

fn kernel_package() -> Result<String> {
    if let Ok(name) = kernel_dependency() {
        return Ok(name);
    }
    as_root(&["apt-get", "update", "-qq"])?;
    kernel_dependency()
}

fn kernel_dependency() -> Result<String> {
    let out = Command::new("apt-cache").args(["depends", KERNEL]).output();
    let out = out.context("apt-cache: this lane fetches its kernel from Debian")?;
    let text = String::from_utf8_lossy(&out.stdout).into_owned();
    let depends = text.lines().find_map(|line| line.trim().strip_prefix("Depends: "));
    Ok(depends.with_context(|| format!("apt knows no package {KERNEL}"))?.to_owned())
}

/// Unpacks the package that lies in `dir` there, and removes it.
fn unpack(dir: &Path) -> Result<()> {
    for entry in fs::read_dir(dir)? {
        let package = entry?.path();
        if package.extension().is_some_and(|e| e == "deb") {
            process::printed(Command::new("dpkg").arg("-x").arg(&package).arg(dir))?;
            fs::remove_file(package)?;
        }
    }
    Ok(())
}

/// The folder of `vng`, in the Python environment `dir`.
fn virtme(dir: &Path) -> Result<PathBuf> {
    let (bin, complete) = (dir.join("bin"), dir.join("complete"));
    if fs::read_to_string(&complete).is_ok_and(|version| version == VIRTME) {
        return Ok(bin);
    }
    eprintln!("vm: fetching {VIRTME}");
    process::printed(Command::new("/usr/bin/python3").args(["-m", "venv", "--clear"]).arg(dir))?;
    let install = ["install", "--quiet", "--disable-pip-version-check", VIRTME];
    process::printed(Command::new(bin.join("pip")).args(install))?;
    fs::write(complete, VIRTME)?;
    Ok(bin)
}
