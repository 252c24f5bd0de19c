//! The sending end: everything to every receiver.

use std::collections::{BTreeMap, HashSet};
use std::sync::Arc;
use std::time::Duration;

use anyhow::Result;
use base::cli::CommonArgs;
use base::outcome::{self, CommandError, CommandResult, usage};
use base::readable::{bytes, counted_as};
use base::signals::Interrupted;
use base::table::ResultTable;
use base::{progress, remark, say, signals};
use indicatif::ProgressBar;
use rdma_conn::device::Device;
use rdma_conn::direct_read::Config;

use super::ending::{Ongoing, Outcomes, SentCopies};
use super::piece_cache::Pieces;
use super::report::{CopySummary, GOES_ON, NamedFailures, TABLE, complain, complain_of_each, line};
use super::send::{self, CopySource, ReceiverResult, Stopped};
use super::source;
use super::tally::{self, Onlooker};
use crate::cli::CopyArgs;

pub(super) fn send(
    common: &CommonArgs,
    options: &CopyArgs,
    device: &Device,
    config: &Config,
) -> CommandResult {
    if options.to.is_empty() || options.paths.is_empty() {
        return Err(usage(
            "copy --to ADDRESS PATH… sends, copy --listen ADDRESS --into DIR receives",
        ));
    }
    let mut seen = HashSet::new();
    if let Some(twice) = options.to.iter().find(|to| !seen.insert(**to)) {
        return Err(usage(format!("--to {twice} is given twice")));
    }
    let source::SourceTree { entries, left_out } = source::tree(&options.paths)?;
    for (path, why) in &left_out {
        complain(format_args!("{}: left out: {why:#}", path.display()));
    }
    let (total, left_out) = (entries.iter().map(|entry| entry.len).sum(), left_out.len() as u64);
    if !common.json {
        let count = counted_as(entries.len() as u64, "entry", "entries");
        remark!("sending {count}, {}", bytes(total));
    }
    let copies = options.to.iter().map(|to| Arc::new(Ongoing::new(to.to_string())));
    let copies: Vec<_> = copies.collect();
    let (of, all) = (copies.clone(), (entries.len() * copies.len()) as u64);
    let count = move || tally::ended(of.iter().map(|copy| &copy.tally), all);
    let bar = progress::counted(total * options.to.len() as u64, common.json, count);
    let told = ReportData {
        common: common.clone(),
        device: device.clone(),
        entries: entries.into(),
        left_out,
    };
    let sending = Arc::new(SentCopies::new(copies.iter().cloned()));
    report_at_a_signal(&told, &sending, &bar)?;
    let pieces = Pieces::new(device);
    let source = CopySource { device, entries: &told.entries, pieces: &pieces, config: *config };
    send_to_all(common, options, source, (total, &bar), (&copies, &sending));
    bar.finish_and_clear();
    let Some(reported) = sending.report(|sent| told.report(&ToOne::all(sent, None))) else {
        // A signal arrived first, and ends the process.
        return Ok(());
    };
    match (reported?, left_out) {
        (0, 0) => Ok(()),
        (0, n) => Err(anyhow::anyhow!("left out: {n}; all else is there")),
        (n, _) => {
            let all = counted_as(options.to.len() as u64, "receiver", "receivers");
            Err(anyhow::anyhow!("something is missing or differs at {n} of {all}"))
        }
    }
}

/// Has a signal end the process: it reports what was sent so far.
fn report_at_a_signal(
    told: &ReportData,
    sending: &Arc<SentCopies<CopyEnd>>,
    bar: &ProgressBar,
) -> Result<()> {
    let (told, sending, bar) = (told.clone(), sending.clone(), bar.clone());
    signals::watch(move |signal| {
        let why = Interrupted::from_name(signal);
        let end = |sent| {
            bar.finish_and_clear();
            let reported = told.report(&ToOne::all(sent, Some(why)));
            if let Err(e) = reported {
                complain(format_args!("{e:#}"));
            }
            outcome::exit(why.exit_status(), format_args!("rdma-conn: {why}: {GOES_ON}"));
        };
        // Where all was reported, the process ends normally.
        let _: Option<Result<()>> = sending.interrupt(why, end);
    })
}

/// End of the copy to one receiver, and the time that it took.
type CopyEnd = ((ReceiverResult, Result<(), Stopped>), Duration);

/// Copy to one receiver, with its end.
struct ToOne {
    ongoing: Arc<Ongoing>,
    end: (ReceiverResult, Result<(), Stopped>),
    time: Duration,
}

impl ToOne {
    /// Returns the copies to all receivers; those that have no end were interrupted.
    fn all(sent: Outcomes<CopyEnd>, by: Option<Interrupted>) -> Vec<ToOne> {
        let one = |(ongoing, ended): (Arc<Ongoing>, Option<CopyEnd>)| {
            let (end, time) = ended.unwrap_or_else(|| {
                let why = by.map_or_else(|| anyhow::anyhow!("it has not ended"), Into::into);
                (
                    (ReceiverResult::default(), Err(Stopped::During(why))),
                    host::time::since(ongoing.start),
                )
            });
            ToOne { ongoing, end, time }
        };
        sent.into_iter().map(one).collect()
    }
}

/// Sends everything to every receiver, on a thread for each.
fn send_to_all(
    common: &CommonArgs,
    options: &CopyArgs,
    source: CopySource<'_>,
    (total, bar): (u64, &ProgressBar),
    (copies, sending): (&[Arc<Ongoing>], &SentCopies<CopyEnd>),
) {
    let whole = (total, source.entries.len() as u64);
    let send = |at: usize, runner| {
        let ongoing = &copies[at];
        let mut onlooker = Onlooker::new(ongoing.peer.clone(), &ongoing.tally, Some(whole));
        let is_seen = common.json || progress::has_bar();
        let work = || send::copy(source, options.to[at], runner, ongoing, bar);
        let end = progress::told(is_seen, || onlooker.line(), work);
        sending.ended(at, (end, host::time::since(ongoing.start)));
    };
    host::thread::scope(|scope| {
        // They are together before one of them begins.
        let runners: Vec<_> = options.to.iter().map(|_| source.pieces.join()).collect();
        for (at, runner) in runners.into_iter().enumerate() {
            let send = &send;
            if let Err(e) = scope.spawn(move || send(at, runner)) {
                let why = format!("no thread for the copy to {}", copies[at].peer);
                let why = Stopped::Before(CommandError::from(e).context(why));
                sending.ended(at, ((ReceiverResult::default(), Err(why)), Duration::ZERO));
            }
        }
    });
}

/// Data for the report of a sender's copies.
#[derive(Clone)]
struct ReportData {
    common: CommonArgs,
    device: Device,
    entries: Arc<[source::TreeEntry]>,
    left_out: u64,
}

impl ReportData {
    /// Reports what each receiver has; returns how many of them lack something.
    fn report(&self, sent: &[ToOne]) -> Result<u32> {
        let ReportData { common, device, entries, left_out } = self;
        let named = NamedFailures::from_args(common);
        // What cannot be read is reported once, not for each receiver that lacks it.
        let unreadable: BTreeMap<usize, &str> = sent
            .iter()
            .flat_map(|one| one.end.0.unreadable.iter().map(|(at, why)| (*at, &**why)))
            .collect();
        let path = |at: usize| entries[at].path.display().to_string();
        let name = |at: usize| String::from_utf8_lossy(&entries[at].name).into_owned();
        let unreadable = unreadable.into_iter().map(|(at, why)| (path(at), why));
        complain_of_each("", unreadable, named, 0);
        let mut bad = 0;
        let mut table = ResultTable::new(1, &TABLE);
        for ToOne { ongoing, end: (done, end), time } in sent {
            let Ongoing { peer: to, tally, .. } = &**ongoing;
            let failed = done.failed.iter().map(|(at, why)| (name(*at), &**why));
            complain_of_each(&format!("{to}: "), failed, named, 0);
            // Entries of a directory are listed before it: each is named.
            let differing = done.differing.iter().rev().map(|(at, why)| (name(*at), &**why));
            complain_of_each(&format!("{to}: "), differing, named, 0);
            match end {
                Ok(()) => {}
                // It is said of all together.
                Err(Stopped::During(error)) if error.is::<Interrupted>() => {}
                Err(Stopped::Before(error)) => complain(format_args!("{error:#}")),
                Err(Stopped::During(error)) => complain(format_args!("{to}: {error:#}; {GOES_ON}")),
            }
            let error = match end {
                Ok(()) => None,
                Err(Stopped::Before(error) | Stopped::During(error)) => Some(format!("{error:#}")),
            };
            let is_whole = error.is_none() && tally.failed() + tally.differing() == 0;
            bad += u32::from(!is_whole);
            let counts = CopySummary { tally, how: done.finished };
            let mut line = line(device, to.clone(), counts, *time, error);
            line.count_at_sender(entries.len() as u64, *left_out);
            let failures = done.failed.iter().chain(&done.unreadable);
            line.failures = named.list(failures.map(|(at, why)| (path(*at), &**why)));
            let differences = done.differing.iter().map(|(at, why)| (path(*at), &**why));
            line.differences = named.list(differences);
            match common.json {
                true => say!("{}", serde_json::to_string(&line)?),
                false => table.add_row(line.row(entries.len() as u64)),
            }
        }
        if !common.json {
            say!("{table}");
        }
        Ok(bad)
    }
}
