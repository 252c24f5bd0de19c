//! Runs cases one after the other, and makes a table of their results.

use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use comfy_table::{CellAlignment, Table, presets};

use super::cases::{self, Conditions, NetworkCase};
use super::end::{BuiltPrograms, NamespaceEnd};
use super::network::JUMBO;
use crate::pair::{self, LIMIT};

/// Runs cases, and keeps the results of all.
pub(super) struct CaseRunner<'a> {
    built: &'a BuiltPrograms,
    /// Only cases with this in their names; several texts are separated by `|`.
    filter: Option<&'a str>,
    /// Time that one of them may take.
    limit: Duration,
    columns: Vec<String>,
    /// Names of cases, and the result of each by column.
    rows: Vec<(String, Vec<Option<String>>)>,
    failed: usize,
}

impl<'a> CaseRunner<'a> {
    pub(super) fn new(built: &'a BuiltPrograms, filter: Option<&'a str>) -> CaseRunner<'a> {
        let (columns, rows) = (Vec::new(), Vec::new());
        CaseRunner { built, filter, limit: LIMIT, columns, rows, failed: 0 }
    }

    /// Sets the time that one may take from now on.
    pub(super) fn limit_is(&mut self, limit: Duration) {
        self.limit = limit;
    }

    /// Runs all that runs between these ends.
    pub(super) fn all(
        &mut self,
        name: &str,
        ends: &[NamespaceEnd<'_>; 2],
        mtu: [u32; 2],
        is_lossy: bool,
    ) {
        let conditions = Conditions { is_lossy, is_wide: mtu == [JUMBO; 2] };
        let cases = cases::all([&ends[0].device, &ends[1].device], conditions);
        self.column(name, ends, &cases);
    }

    /// Begins a column of the table, for what runs from now on.
    pub(super) fn begin_column(&mut self, name: &str) {
        self.columns.push(name.to_owned());
    }

    /// Runs these cases, which are a column of the table.
    pub(super) fn column(
        &mut self,
        name: &str,
        ends: &[NamespaceEnd<'_>; 2],
        cases: &[NetworkCase],
    ) {
        self.begin_column(name);
        for case in cases {
            self.check(case, || Ok(()), ends);
        }
    }

    /// Runs a case, and then looks at what it has left behind.
    pub(super) fn check(
        &mut self,
        case: &NetworkCase,
        check: impl FnOnce() -> Result<()>,
        ends: &[NamespaceEnd<'_>; 2],
    ) {
        self.step_by(&case.name, |runner| runner.run(case, ends).and_then(|()| check()));
    }

    /// Runs a case, as a part of a step.
    pub(super) fn run(&mut self, case: &NetworkCase, ends: &[NamespaceEnd<'_>; 2]) -> Result<()> {
        let printed = case.lines.run(self.built, ends, self.limit);
        let printed = printed.with_context(|| case.lines.connector.clone())?;
        pair::ensure_printed(&printed, case.prints)
    }

    /// Reports whether a row of this name is asked for.
    pub(super) fn is_run(&self, name: &str) -> bool {
        is_chosen(self.filter, name)
    }

    /// Runs something that is a row of the table.
    pub(super) fn step(&mut self, name: &str, run: impl FnOnce() -> Result<()>) {
        self.step_by(name, |_| run());
    }

    /// As [`step`](Self::step), of cases.
    pub(super) fn step_by(&mut self, name: &str, run: impl FnOnce(&mut Self) -> Result<()>) {
        if !self.is_run(name) {
            return;
        }
        let start = Instant::now();
        let result = run(self);
        let seconds = start.elapsed().as_secs_f64();
        let column = self.columns.last().map_or("", |name| name);
        let cell = match result {
            Ok(()) => format!("{seconds:.1} s"),
            Err(error) => {
                println!("FAILED: {column}: {name}: {error:#}");
                self.failed += 1;
                "FAILED".to_owned()
            }
        };
        println!("{column}: {name}: {cell}");
        self.enter(name, cell);
    }

    fn enter(&mut self, name: &str, cell: String) {
        let at = self.rows.iter().position(|(row, _)| row == name).unwrap_or_else(|| {
            self.rows.push((name.to_owned(), Vec::new()));
            self.rows.len() - 1
        });
        let (_, cells) = &mut self.rows[at];
        cells.resize(self.columns.len(), None);
        cells[self.columns.len() - 1] = Some(cell);
    }

    /// Prints the table; fails if a case has failed, or none has run.
    pub(super) fn finish(self) -> Result<()> {
        let mut table = Table::new();
        table.load_style(presets::ASCII_MARKDOWN);
        table.set_header([&[String::new()], &self.columns[..]].concat());
        for (name, cells) in &self.rows {
            let cell = |at| cells.get(at).cloned().flatten().unwrap_or_default();
            let cells = (0..self.columns.len()).map(cell);
            table.add_row([format!("`{name}`")].into_iter().chain(cells));
        }
        table.column_iter_mut().skip(1).for_each(|c| c.set_cell_alignment(CellAlignment::Right));
        println!("\n{table}\n");
        ensure!(!self.rows.is_empty(), "no case has run");
        ensure!(self.failed == 0, "{} cells say FAILED", self.failed);
        Ok(())
    }
}

/// Reports whether a name holds the filter, or a part of it between `|`.
pub(super) fn is_chosen(filter: Option<&str>, name: &str) -> bool {
    filter.is_none_or(|filter| filter.split('|').any(|part| name.contains(part)))
}
