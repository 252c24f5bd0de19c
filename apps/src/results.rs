//! Results: tables for people, or one JSON object a line.

use anyhow::Result;
use base::say;
use base::table::{Table, titled};
use serde::Serialize;

/// Gathers results, and prints them: a table under each title that there was.
#[derive(Clone)]
pub(crate) struct Results {
    json: bool,
    tables: Vec<(String, Table)>,
    /// Notes below the tables.
    notes: Vec<String>,
}

impl Results {
    pub(crate) fn new(json: bool) -> Results {
        Results { json, tables: Vec::new(), notes: Vec::new() }
    }

    /// The title of the last result, if there was one.
    pub(crate) fn title(&self) -> Option<String> {
        self.tables.last().map(|(title, _)| title.clone())
    }

    /// Adds a result: an object of the JSON, or a row of the table with this title, which is
    /// `empty` at first.
    pub(crate) fn add(
        &mut self,
        line: &impl Serialize,
        title: String,
        empty: Table,
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

    /// Says something below the tables.
    pub(crate) fn note(&mut self, note: String) {
        self.notes.push(note);
    }

    /// Returns the text that is still to be printed.
    pub(crate) fn text(&self) -> String {
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

    /// Returns the number of results for people.
    #[cfg(test)]
    pub(crate) fn rows(&self) -> usize {
        self.tables.iter().map(|(_, table)| table.row_count()).sum()
    }
}
