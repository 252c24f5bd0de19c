//! One run of the guest: its input is a command, its result what the command prints and its status.

use std::collections::VecDeque;
use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitCode, Stdio};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow, bail};
use clap::Args;

use super::cache::GuestCache;
use crate::process::end_tree;

/// Set up by the guest before the command starts, see there.
const SCRIPT: &str = include_str!("guest.sh");

/// Shares the host's files once more, for the guest to mount with its own options.
const HOST_FILES: &str =
    "-virtfs local,path=/,mount_tag=host,security_model=none,readonly=on,multidevs=remap";

/// Time that the guest may take to boot: some 15 s of processor time.
const BOOT: Duration = Duration::from_secs(300);

/// An emulated machine that shares its host's processors with much else may fail on the
/// way up.
const BOOTS: u32 = 3;

/// Time after its limit at which the guest shuts itself down, if the host has not ended it.
const LEEWAY: Duration = Duration::from_secs(60);

/// The emulated processors' time stamp counters agree. Without this option the kernel does
/// not rely on it, and reading the clock is a system call of some microseconds.
const KERNEL_OPTION: &str = "tsc=reliable";

/// Lines that are kept for the report on a guest that hangs.
const LAST_LINES: usize = 15;

/// A copy of this program, in the guest: the host may build another one meanwhile.
pub(super) const XTASK: &str = "/tmp/xtask";

/// Parameters of the guest, as the command line gives them.
#[derive(Args)]
pub(super) struct GuestMachine {
    /// Seconds that the command may take, once the guest is up
    #[arg(long, default_value_t = 2700)]
    pub(super) limit: u64,
    /// Memory of the guest, in MiB
    #[arg(long, default_value_t = 4096)]
    pub(super) memory: u32,
    /// Show the guest's console while it boots
    #[arg(long)]
    pub(super) verbose: bool,
}

/// The words of a command, for bash.
pub(super) fn quoted(words: &[String]) -> String {
    words.iter().map(|word| quote(word)).collect::<Vec<_>>().join(" ")
}

fn quote(word: &str) -> String {
    format!("'{}'", word.replace('\'', r"'\''"))
}

impl GuestMachine {
    /// Boots, runs a command for bash, and shuts down; the status of the command. What it prints is
    /// passed on as it is printed; it finds `files` in the folder `$RDMA_CONN_VM_SHARED`.
    ///
    /// # Errors
    /// Fails if the guest does not boot, or does not end in time; one line that says what to do, and
    /// what was printed last.
    pub(super) fn run(&self, command: &str, files: &[(&str, Vec<u8>)]) -> Result<ExitCode> {
        let cache = GuestCache::filled()?;
        let shared = SharedFolder(cache.run_folder()?);
        self.write_script(command, &shared.0)?;
        for (name, bytes) in files {
            fs::write(shared.0.join(name), bytes)?;
        }
        let mut boots = 1;
        let (ended, told) = loop {
            let attempt = self.attempt(&cache, &shared.0)?;
            if boots == BOOTS || attempt.0.is_err() || shared.has_come_up() {
                break attempt;
            }
            eprintln!("vm: the guest ended before it was up; once more");
            boots += 1;
        };
        let status = ended.and_then(|()| shared.status()).map_err(|e| match told.is_empty() {
            true => e,
            false => anyhow!("{e}\nit printed last:\n{}", told.join("\n")),
        })?;
        Ok(ExitCode::from(status))
    }

    /// One boot, to its end; and what was printed last.
    fn attempt(&self, cache: &GuestCache, shared: &Path) -> Result<(Result<()>, Vec<String>)> {
        let mut child = self.start(cache, shared)?;
        let last = Arc::new(Mutex::new(VecDeque::new()));
        let out = pass_on(child.stdout.take().expect("piped"), std::io::stdout(), &last);
        let err = pass_on(child.stderr.take().expect("piped"), std::io::stderr(), &last);
        let ended = self.wait(&mut child, shared);
        if ended.is_err() {
            end_tree(&mut child);
        }
        for thread in [out, err] {
            thread.join().expect("passes lines on");
        }
        let told = last.lock().expect("no panic").drain(..).collect();
        Ok((ended, told))
    }

    /// Time that the command may take.
    fn limit(&self) -> Duration {
        Duration::from_secs(self.limit)
    }

    fn write_script(&self, command: &str, shared: &Path) -> Result<()> {
        let lifetime = BOOT + self.limit() + LEEWAY;
        let directory = std::env::current_dir()?.display().to_string();
        let own = [
            ("RDMA_CONN_VM_LIFETIME", lifetime.as_secs().to_string()),
            ("RDMA_CONN_VM_DIRECTORY", directory),
            ("RDMA_CONN_VM_SHARED", shared.display().to_string()),
        ];
        let exports: String = environment()
            .chain(own.map(|(name, value)| (name.to_owned(), value)))
            .map(|(name, value)| format!("export {name}={}\n", quote(&value)))
            .collect();
        fs::write(shared.join("environment"), exports)?;
        fs::write(shared.join("command"), format!("{command}\n"))?;
        Ok(fs::write(shared.join("guest.sh"), SCRIPT)?)
    }

    /// Software emulation: where hardware virtualisation is nested, the guest may hang.
    fn start(&self, cache: &GuestCache, shared: &Path) -> Result<Child> {
        let mut vng = Command::new(cache.bin.join("vng"));
        vng.args(["--disable-kvm", "--cpus", "2", "--user", "root"]);
        vng.arg("--memory").arg(format!("{}M", self.memory));
        vng.arg("--run").arg(&cache.kernel).args(["--append", KERNEL_OPTION]);
        vng.arg(format!("--rwdir={}", shared.display()));
        vng.arg(format!("--qemu-opts={HOST_FILES}"));
        if self.verbose {
            vng.arg("--verbose");
        }
        vng.arg("--").arg("bash").arg(shared.join("guest.sh")).arg(shared);
        let path = std::env::var("PATH").unwrap_or_default();
        vng.env("PATH", format!("{}:{path}:/usr/sbin:/sbin", cache.bin.display()));
        vng.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        vng.spawn().context("starting vng")
    }

    fn wait(&self, child: &mut Child, shared: &Path) -> Result<()> {
        let mut deadline = Instant::now() + BOOT;
        let mut is_up = false;
        while child.try_wait()?.is_none() {
            if !is_up && shared.join("ready").exists() {
                (is_up, deadline) = (true, Instant::now() + self.limit());
            }
            if Instant::now() > deadline {
                match is_up {
                    true => {
                        bail!("the command took longer than {:?}: ended (--limit)", self.limit())
                    }
                    false => bail!("the guest did not boot within {BOOT:?}: see --verbose"),
                }
            }
            std::thread::sleep(Duration::from_millis(50));
        }
        Ok(())
    }
}

/// Returns the host's environment, but for what cargo has set for this program alone.
fn environment() -> impl Iterator<Item = (String, String)> {
    let device = std::env::var("RDMA_CONN_DEVICE").unwrap_or_else(|_| "rxe0".to_owned());
    let is_name = |name: &str| name.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_');
    let of_cargo = ["CARGO_PKG_", "CARGO_MANIFEST_", "LD_LIBRARY_PATH"];
    let is_ours = move |name: &str| of_cargo.iter().any(|prefix| name.starts_with(prefix));
    std::env::vars_os()
        .filter_map(|(name, value)| Some((name.into_string().ok()?, value.into_string().ok()?)))
        .filter(move |(name, _)| is_name(name) && !is_ours(name))
        .chain([("RDMA_CONN_DEVICE".to_owned(), device)])
}

/// The folder that both see; gone with the run.
struct SharedFolder(PathBuf);

impl SharedFolder {
    /// Reports whether the guest has got as far as to say something.
    fn has_come_up(&self) -> bool {
        ["ready", "unready"].iter().any(|name| self.0.join(name).exists())
    }

    /// Returns the exit status that the guest has left behind.
    fn status(&self) -> Result<u8> {
        let read = |name: &str| fs::read_to_string(self.0.join(name)).ok();
        if let Some(reason) = read("unready") {
            bail!("{}", reason.trim());
        }
        if read("ready").is_none() {
            bail!("the guest ended before it was up: `cargo xtask vm --verbose -- true` shows why");
        }
        let status = read("status").and_then(|s| s.trim().parse().ok());
        status.context("the guest ended before the command: see --verbose")
    }
}

impl Drop for SharedFolder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0); // the cache can be emptied by hand
    }
}

/// Copies lines as they are printed, and keeps the last of them.
fn pass_on(
    from: impl Read + Send + 'static,
    mut to: impl Write + Send + 'static,
    last: &Arc<Mutex<VecDeque<String>>>,
) -> JoinHandle<()> {
    let last = Arc::clone(last);
    std::thread::spawn(move || {
        let mut from = BufReader::new(from);
        let mut line = Vec::new();
        while from.read_until(b'\n', &mut line).is_ok_and(|n| n > 0) {
            let _ = to.write_all(&line).and_then(|()| to.flush()); // the reader may be gone
            let mut last = last.lock().expect("no panic");
            last.push_back(String::from_utf8_lossy(&line).trim_end().to_owned());
            if last.len() > LAST_LINES {
                last.pop_front();
            }
            line.clear();
        }
    })
}
