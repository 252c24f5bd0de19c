//! Running the two ends of a command, one waiting for the other, with a limit.

use std::fs;
use std::io;
use std::net::TcpListener;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, Output, Stdio};
use std::sync::atomic::{AtomicU16, Ordering};
use std::sync::mpsc::{Receiver, channel};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use rustix::process::{Pid, Signal, kill_process_group};

/// One command in its two roles.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct CommandPair {
    pub(crate) listener: Vec<String>,
    pub(crate) connector: Vec<String>,
}

/// Longer than any run takes where it does not hang.
pub(crate) const LIMIT: Duration = Duration::from_secs(120);

/// The first port of a listener.
pub(crate) const FIRST_PORT: u16 = 20_000;
/// Ports for listeners: the system gives none of them to connections (from 32,768 on).
const PORTS: u16 = 12_000;

/// A port for a listener. Each pair has another one, because one that was closed may not be free at
/// once; it may be another program's until the listener has it, which then fails and says so.
pub(crate) fn free_port() -> Result<u16> {
    static TAKEN: AtomicU16 = AtomicU16::new(0);
    // Relaxed: nothing else is read.
    let mut ports = (0..PORTS).map(|_| FIRST_PORT + TAKEN.fetch_add(1, Ordering::Relaxed) % PORTS);
    let is_free = |port: &u16| TcpListener::bind(("127.0.0.1", *port)).is_ok();
    ports.find(is_free).context("no port is free")
}

/// Fails unless a text was printed, in which columns may be aligned by spaces.
pub(crate) fn ensure_printed(printed: &str, expected: &str) -> Result<()> {
    let words = |text: &str| text.split_whitespace().collect::<Vec<_>>().join(" ");
    let is_there = words(printed).contains(&words(expected));
    ensure!(is_there, "it printed no {expected:?}:\n{printed}");
    Ok(())
}

/// Runs both ends, and returns what the connecting end printed, when both have ended well.
///
/// # Errors
/// An end that failed or took too long, with the last that it printed. No process is
/// left.
pub(crate) fn run(pair: &CommandPair, port: u16) -> Result<String> {
    run_between(pair, port, Path::new("/proc/net"), LIMIT)
}

/// [`run`], with the listening end in the network namespace that has these `tables` of sockets.
pub(crate) fn run_between(
    pair: &CommandPair,
    port: u16,
    tables: &Path,
    limit: Duration,
) -> Result<String> {
    let deadline = Instant::now() + limit;
    let mut listener = RunningCommand::start(&pair.listener, limit)?;
    listener.wait_until_it_listens(port, tables, deadline)?;
    let connector = RunningCommand::start(&pair.connector, limit)?.finish(deadline);
    // An end that has failed leaves the other one waiting.
    let patience = if connector.is_ok() { deadline } else { Instant::now() };
    let listener = listener.finish(patience);
    let printed = connector.context("the connecting end")?;
    listener.context("the listening end")?;
    Ok(printed)
}

/// Lines of a program that failed, in the report: the reason may precede the last one.
const LAST: usize = 3;
/// Time that a process may take to end, once it was killed: others may hold its pipes open.
const LEEWAY: Duration = Duration::from_secs(1);

/// A running process, which does not outlive this; neither does what it has started.
struct RunningCommand {
    /// Time that it may take, for the report.
    limit: Duration,
    /// Its process group, until that was ended.
    group: Option<Pid>,
    /// Its status and all that it printed, once it has ended.
    ended: Receiver<io::Result<Output>>,
}

impl RunningCommand {
    fn start(words: &[String], limit: Duration) -> Result<RunningCommand> {
        let mut command = Command::new(&words[0]);
        command.args(&words[1..]).stdin(Stdio::null());
        command.stdout(Stdio::piped()).stderr(Stdio::piped()).process_group(0);
        let child = command.spawn().with_context(|| format!("starting {}", words[0]))?;
        let group = Some(Pid::from_child(&child));
        let (tell, ended) = channel();
        std::thread::spawn(move || {
            let _ = tell.send(child.wait_with_output()); // the report may be complete without it
        });
        Ok(RunningCommand { limit, group, ended })
    }

    /// Waits until it listens, which is seen from outside: perftest says it into a buffer.
    fn wait_until_it_listens(&mut self, port: u16, tables: &Path, deadline: Instant) -> Result<()> {
        while !is_listened_to(port, tables) {
            if let Ok(output) = self.ended.try_recv() {
                self.end_group();
                let output = output?;
                bail!("the listening end ended ({}): {}", output.status, last_words(&output));
            }
            let limit = self.limit;
            ensure!(Instant::now() < deadline, "the listening end did not listen within {limit:?}");
            std::thread::sleep(Duration::from_millis(5)); // until the next look
        }
        Ok(())
    }

    /// Waits until it has ended; what it printed on standard output.
    fn finish(mut self, deadline: Instant) -> Result<String> {
        let left = deadline.saturating_duration_since(Instant::now());
        let ended = self.ended.recv_timeout(left);
        self.end_group();
        let Ok(output) = ended else {
            let said = self.ended.recv_timeout(LEEWAY).ok().and_then(Result::ok);
            let said = said.as_ref().map_or_else(|| SILENT.to_owned(), last_words);
            bail!("it did not end within {:?}: {said}", self.limit);
        };
        let output = output?;
        ensure!(output.status.success(), "{}: {}", output.status, last_words(&output));
        Ok(String::from_utf8_lossy(&output.stdout).into_owned())
    }

    /// Once only: the number of a group that is gone may become another one's.
    fn end_group(&mut self) {
        if let Some(group) = self.group.take() {
            let _ = kill_process_group(group, Signal::KILL); // all of it may have ended
        }
    }
}

impl Drop for RunningCommand {
    fn drop(&mut self) {
        self.end_group();
        let _ = self.ended.recv_timeout(LEEWAY); // it may have been waited for
    }
}

const SILENT: &str = "it said nothing";

/// The last lines of what a process said, errors first.
fn last_words(output: &Output) -> String {
    let last = |bytes: &[u8]| {
        let text = String::from_utf8_lossy(bytes);
        // A line may be a rule, and no more.
        let told = text.lines().filter(|line| line.chars().any(char::is_alphanumeric));
        let told: Vec<&str> = told.map(str::trim).collect();
        told[told.len().saturating_sub(LAST)..].join("; ")
    };
    let mut said = [&output.stderr, &output.stdout].into_iter().map(|bytes| last(bytes));
    said.find(|said| !said.is_empty()).unwrap_or_else(|| SILENT.to_owned())
}

/// Reports whether a socket in these tables listens at `port`.
fn is_listened_to(port: u16, tables: &Path) -> bool {
    // Without IPv6 there is one.
    let text = |table| fs::read_to_string(tables.join(table)).unwrap_or_default();
    ["tcp", "tcp6"].iter().any(|table| text(table).lines().any(|line| is_listening(line, port)))
}

/// A line is `sl local_address rem_address st …`, an address `HEX:PORT`; 0A is LISTEN.
fn is_listening(line: &str, port: u16) -> bool {
    let mut words = line.split_whitespace().skip(1);
    let local = words.next().and_then(|address| address.rsplit_once(':'));
    let is_at = local.is_some_and(|(_, p)| u16::from_str_radix(p, 16) == Ok(port));
    is_at && words.nth(1) == Some("0A")
}

#[cfg(test)]
mod tests;
