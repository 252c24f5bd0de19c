//! Running the two ends of a command, one waiting for the other, with a limit.

use std::fs;
use std::io::Read;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use rustix::process::{Pid, Signal, kill_process_group};

use super::commands::CommandPair;

/// Longer than any run takes where it does not hang.
const LIMIT: Duration = Duration::from_secs(120);

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

/// A running process, which does not outlive this; neither does what it has started.
struct RunningCommand {
    child: Child,
    /// Time that it may take, for the report.
    limit: Duration,
    /// Its process group, until that was ended.
    group: Option<Pid>,
    /// Texts that it prints on standard output and on standard error, each once it prints no more.
    gathered: Receiver<(OutputStream, String)>,
    printed: [String; 2],
}

#[derive(Debug, Clone, Copy)]
enum OutputStream {
    Out,
    Err,
}

impl RunningCommand {
    fn start(words: &[String], limit: Duration) -> Result<RunningCommand> {
        let mut command = Command::new(&words[0]);
        command.args(&words[1..]).stdin(Stdio::null());
        command.stdout(Stdio::piped()).stderr(Stdio::piped()).process_group(0);
        let mut child = command.spawn().with_context(|| format!("starting {}", words[0]))?;
        let group = Some(Pid::from_child(&child));
        let (tell, gathered) = channel();
        if let Some(out) = child.stdout.take() {
            gather(out, OutputStream::Out, tell.clone());
        }
        if let Some(err) = child.stderr.take() {
            gather(err, OutputStream::Err, tell);
        }
        Ok(RunningCommand { child, limit, group, gathered, printed: Default::default() })
    }

    /// Waits until it listens, which is seen from outside: perftest says it into a buffer.
    fn wait_until_it_listens(&mut self, port: u16, tables: &Path, deadline: Instant) -> Result<()> {
        while !is_listened_to(port, tables) {
            if let Some(status) = self.child.try_wait()? {
                self.end_group();
                bail!("the listening end ended ({status}): {}", self.last_words());
            }
            if Instant::now() > deadline {
                bail!("the listening end did not listen within {:?}", self.limit);
            }
            std::thread::sleep(Duration::from_millis(5)); // until the next look
        }
        Ok(())
    }

    /// Waits until it has ended; what it printed on standard output.
    fn finish(mut self, deadline: Instant) -> Result<String> {
        if !self.gather_until(deadline) {
            self.kill();
            let limit = self.limit;
            bail!("it did not end within {limit:?}: {}", self.last_words());
        }
        let status = self.child.wait()?;
        self.end_group();
        if !status.success() {
            bail!("{status}: {}", self.last_words());
        }
        Ok(std::mem::take(&mut self.printed[OutputStream::Out as usize]))
    }

    /// Takes what it has printed; returns true if that is all.
    fn gather_until(&mut self, deadline: Instant) -> bool {
        loop {
            let left = deadline.saturating_duration_since(Instant::now());
            match self.gathered.recv_timeout(left) {
                Ok((stream, text)) => self.printed[stream as usize] = text,
                Err(RecvTimeoutError::Disconnected) => return true,
                Err(RecvTimeoutError::Timeout) => return false,
            }
        }
    }

    /// The last lines of what it said, errors first, when it has ended.
    fn last_words(&mut self) -> String {
        // Other processes may hold its pipes open: wait for a bounded time.
        self.gather_until(Instant::now() + Duration::from_secs(1));
        let [out, err] = &self.printed;
        let told = |text: &str| text.lines().filter(|line| is_told(line)).count() > 0;
        let Some(text) = [err, out].into_iter().find(|text| told(text)) else {
            return "it said nothing".to_owned();
        };
        let mut last: Vec<&str> = text.lines().rev().filter(|l| is_told(l)).take(LAST).collect();
        last.reverse();
        last.iter().map(|line| line.trim()).collect::<Vec<_>>().join("; ")
    }

    fn kill(&mut self) {
        self.end_group();
        let _ = self.child.wait(); // it may have been waited for
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
        self.kill();
    }
}

/// Reports whether a line has more than a rule.
fn is_told(line: &str) -> bool {
    line.chars().any(char::is_alphanumeric)
}

fn gather(
    from: impl Read + Send + 'static,
    stream: OutputStream,
    tell: Sender<(OutputStream, String)>,
) {
    std::thread::spawn(move || {
        let (mut from, mut bytes) = (from, Vec::new());
        let _ = from.read_to_end(&mut bytes); // what was read before an error counts
        let _ = tell.send((stream, String::from_utf8_lossy(&bytes).into_owned())); // or not
    });
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
