//! Results: tables for people, or one JSON object a line.

use anyhow::Result;
use base::say;
use base::table::{ResultTable, titled};

use crate::measure::ResultLine;

/// Form that the results of a command have for people.
pub(crate) struct ResultStyle {
    /// The table, without rows.
    pub(crate) empty: ResultTable,
    pub(crate) title: fn(&ResultLine) -> String,
    pub(crate) row: fn(&ResultLine) -> Vec<String>,
    /// The note on a result below the tables; an empty text is left out.
    pub(crate) note: fn(&ResultLine) -> String,
    /// True if all results are in one table, under the title of the first.
    pub(crate) is_one: bool,
}

/// Gathers the results of a command, and prints them.
pub(crate) struct ResultReport {
    results: Results,
    style: ResultStyle,
}

impl ResultReport {
    pub(crate) fn new(json: bool, style: ResultStyle) -> ResultReport {
        ResultReport { results: Results::new(json), style }
    }

    /// Adds what each of several rounds has brought, a line for each class of messages.
    pub(crate) fn add_rounds(&mut self, rounds: &[Vec<ResultLine>]) -> Result<()> {
        ResultLine::merged(rounds).iter().try_for_each(|line| self.add(line))
    }

    /// Adds a result.
    pub(crate) fn add(&mut self, line: &ResultLine) -> Result<()> {
        let ResultStyle { empty, title, row, note, is_one } = &self.style;
        let first = self.results.title().filter(|_| *is_one);
        let title = first.unwrap_or_else(|| title(line));
        self.results.notes.extend(Some(note(line)).filter(|note| !note.is_empty()));
        self.results.add(line, title, empty.clone(), row(line))
    }

    /// Returns the text that is still to be printed.
    pub(crate) fn text(&self) -> String {
        self.results.text()
    }

    pub(crate) fn finish(self) {
        self.results.finish();
    }

    /// Returns the number of results for people.
    #[cfg(test)]
    pub(crate) fn rows(&self) -> usize {
        self.results.tables.iter().map(|(_, table)| table.row_count()).sum()
    }
}

/// Results in any tables: one under each title that there was.
pub(crate) struct Results {
    json: bool,
    tables: Vec<(String, ResultTable)>,
    /// Notes below the tables.
    notes: Vec<String>,
}

impl Results {
    pub(crate) fn new(json: bool) -> Results {
        Results { json, tables: Vec::new(), notes: Vec::new() }
    }

    /// The title of the last result, if there was one.
    fn title(&self) -> Option<String> {
        self.tables.last().map(|(title, _)| title.clone())
    }

    /// Adds a result: an object of the JSON, or a row of the table with this title, which is
    /// `empty` at first.
    pub(crate) fn add(
        &mut self,
        line: &ResultLine,
        title: String,
        empty: ResultTable,
        row: Vec<String>,
    ) -> Result<()> {
        if self.json {
            say!("{}", serde_json::to_string(line)?);
            return Ok(());
        }
        if self.title().as_ref() != Some(&title) {
            self.tables.push((title, empty));
        }
        if let Some((_, table)) = self.tables.last_mut() {
            table.add_row(row);
        }
        Ok(())
    }

    fn text(&self) -> String {
        let tables = self.tables.iter().map(|(title, table)| format!("{}\n{table}", titled(title)));
        let notes = self.notes.iter().map(|note| titled(note)).filter(|_| !self.json);
        tables.chain(notes).collect::<Vec<_>>().join("\n")
    }

    pub(crate) fn finish(self) {
        let text = self.text();
        if !text.is_empty() {
            say!("{text}");
        }
    }
}
