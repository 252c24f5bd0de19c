//! Programs of others: what they need, and how they are run.

use std::fs::{self, File};
use std::io::{BufRead, BufReader, Lines};
use std::path::Path;
use std::process::{Child, ChildStdout, Command, ExitStatus, Stdio};
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use rustix::process::{Pid, Signal, kill_process};

/// Fails if one of these files is missing, and names the Debian package that has it.
pub(crate) fn needs(files: &[(&str, &str)]) -> Result<()> {
    for (file, package) in files {
        ensure!(Path::new(file).exists(), "{file} is missing: `apt-get install {package}`");
    }
    Ok(())
}

/// A command line, as people would type it.
fn line_of(command: &Command) -> String {
    format!("{command:?}").replace('"', "")
}

/// Runs a program that has to succeed.
pub(crate) fn run(command: &mut Command) -> Result<()> {
    let status = command.status().with_context(|| format!("starting {}", line_of(command)))?;
    ensure!(status.success(), "{} failed ({status})", line_of(command));
    Ok(())
}

/// Runs a program that has to succeed; what it prints on standard output. The rest is seen only when it
/// fails.
pub(crate) fn printed(command: &mut Command) -> Result<String> {
    let out = command.output().with_context(|| format!("starting {}", line_of(command)))?;
    if !out.status.success() {
        let said = [out.stdout, out.stderr].concat();
        let said = String::from_utf8_lossy(&said);
        bail!("{} failed ({}):\n{said}", line_of(command), out.status);
    }
    Ok(String::from_utf8_lossy(&out.stdout).into_owned())
}

/// The program that these words run.
pub(crate) fn command_of(words: &[String]) -> Command {
    let mut command = Command::new(&words[0]);
    command.args(&words[1..]);
    command
}

/// Runs a program with its output in a file of this name, until it ends: its status, and what it has
/// printed. Without a status, `is_over`, which is given the length of that now and then, has ended it.
pub(crate) fn run_logged(
    command: &mut Command,
    name: &str,
    mut is_over: impl FnMut(u64) -> bool,
) -> Result<(Option<ExitStatus>, String)> {
    let log = std::env::temp_dir().join(name);
    let file = File::create(&log)?;
    command.stdin(Stdio::null()).stdout(file.try_clone()?).stderr(file);
    let mut child = command.spawn().with_context(|| format!("starting {}", line_of(command)))?;
    let status = loop {
        if let Some(status) = child.try_wait()? {
            break Some(status);
        }
        if is_over(fs::metadata(&log)?.len()) {
            child.kill()?;
            child.wait()?;
            break None;
        }
        std::thread::sleep(Duration::from_millis(5)); // until the next look
    };
    let text = String::from_utf8_lossy(&fs::read(&log)?).into_owned();
    fs::remove_file(&log)?;
    Ok((status, text))
}

/// A program with lines to be waited for. It ends with this.
pub(crate) struct WatchedProgram {
    program: Child,
    lines: Lines<BufReader<ChildStdout>>,
}

impl WatchedProgram {
    /// Starts one; the first of the words is `timeout` with its arguments, so that no wait is for ever.
    pub(crate) fn start(words: &[String]) -> Result<WatchedProgram> {
        let mut command = command_of(words);
        command.stdin(Stdio::null()).stdout(Stdio::piped());
        let mut program = command.spawn().with_context(|| format!("starting {}", words[0]))?;
        let out = program.stdout.take().context("its output")?;
        Ok(WatchedProgram { program, lines: BufReader::new(out).lines() })
    }

    /// Its next line.
    pub(crate) fn line(&mut self) -> Result<String> {
        Ok(self.lines.next().context("it has ended")??)
    }
}

impl Drop for WatchedProgram {
    fn drop(&mut self) {
        // `timeout` ends what it runs.
        let _ = kill_process(Pid::from_child(&self.program), Signal::TERM); // it may have ended
        let _ = self.program.wait();
    }
}

/// Ends the processes that `child` has started, then `child` itself: an emulator that has
/// lost its parent is no longer found among its descendants.
pub(crate) fn end_tree(child: &mut Child) {
    for id in descendants(child.id()) {
        if let Some(pid) = Pid::from_raw(id as i32) {
            let _ = kill_process(pid, Signal::KILL);
        }
    }
    let _ = child.kill();
    let _ = child.wait();
}

/// The processes below `root`, from /proc.
fn descendants(root: u32) -> Vec<u32> {
    let of = |pid: u32| -> Vec<u32> {
        let threads = fs::read_dir(format!("/proc/{pid}/task")).into_iter().flatten().flatten();
        threads
            .filter_map(|thread| fs::read_to_string(thread.path().join("children")).ok())
            .flat_map(|list| {
                list.split_whitespace().filter_map(|id| id.parse().ok()).collect::<Vec<_>>()
            })
            .collect()
    };
    let mut all = of(root);
    let mut next = 0;
    while next < all.len() {
        all.extend(of(all[next]));
        next += 1;
    }
    all
}
