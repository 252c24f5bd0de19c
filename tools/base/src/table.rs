//! Tables of results, and their titles.
//!
//! A cell is never broken: where the output has room for fewer columns, a table is printed in
//! parts, each of which begins with the columns that say what a row is of.

use std::io::IsTerminal;

use comfy_table::{CellAlignment, ContentArrangement, presets};

/// Characters in a line of a title, where nothing says how wide the output is.
const TITLE: usize = 80;

/// Rows of figures, right aligned.
#[derive(Debug, Clone)]
pub struct ResultTable {
    header: Vec<String>,
    /// The first columns, which say what a row is of: each part of a table has them.
    keys: usize,
    rows: Vec<Vec<String>>,
}

impl ResultTable {
    /// A table without rows; the first `keys` columns say what a row is of.
    pub fn new(keys: usize, header: &[&str]) -> ResultTable {
        let header = header.iter().map(|name| (*name).to_owned()).collect();
        ResultTable { header, keys, rows: Vec::new() }
    }

    /// Adds a row: a cell for each column of the header.
    pub fn add_row<T: Into<String>>(&mut self, row: impl IntoIterator<Item = T>) {
        self.rows.push(row.into_iter().map(Into::into).collect());
    }

    /// Returns the number of rows.
    pub fn row_count(&self) -> usize {
        self.rows.len()
    }

    /// The table, or its parts, in `width` characters, as far as single columns go into that.
    fn within(&self, width: Option<usize>) -> String {
        let parts = self.parts(width.unwrap_or(usize::MAX));
        let shown = |columns: Vec<usize>| self.of_columns(&columns).to_string();
        parts.into_iter().map(shown).collect::<Vec<_>>().join("\n\n")
    }

    /// The columns of each part.
    fn parts(&self, width: usize) -> Vec<Vec<usize>> {
        let keys: Vec<usize> = (0..self.keys).collect();
        let mut parts = vec![keys.clone()];
        for column in self.keys..self.header.len() {
            let Some(part) = parts.last_mut() else { break };
            part.push(column);
            if part.len() > keys.len() + 1 && self.width_of(part) > width {
                part.pop();
                parts.push(keys.iter().copied().chain([column]).collect());
            }
        }
        parts
    }

    fn width_of(&self, columns: &[usize]) -> usize {
        let text = self.of_columns(columns).to_string();
        text.lines().map(|line| line.chars().count()).max().unwrap_or(0)
    }

    fn of_columns(&self, columns: &[usize]) -> comfy_table::Table {
        let pick = |row: &Vec<String>| -> Vec<String> {
            columns.iter().filter_map(|column| row.get(*column).cloned()).collect()
        };
        let mut table = comfy_table::Table::new();
        table.set_content_arrangement(ContentArrangement::Disabled);
        table.load_style(presets::UTF8_HORIZONTAL_ONLY);
        table.set_header(pick(&self.header));
        table.add_rows(self.rows.iter().map(pick));
        for column in table.column_iter_mut() {
            column.set_cell_alignment(CellAlignment::Right);
            // The preset has a space between columns besides.
            column.set_padding((1, 0));
        }
        table
    }
}

impl std::fmt::Display for ResultTable {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.within(output_width()))
    }
}

/// Returns the width of standard output: a terminal says it, for anything else `COLUMNS` does.
fn output_width() -> Option<usize> {
    if std::io::stdout().is_terminal() {
        return comfy_table::Table::new().width().map(usize::from);
    }
    columns(std::env::var("COLUMNS").ok().as_deref())
}

/// Parses `COLUMNS`, if it is a number of columns.
fn columns(variable: Option<&str>) -> Option<usize> {
    variable?.trim().parse().ok().filter(|columns| *columns > 0)
}

/// A title, in lines that fit the output.
pub fn titled(text: &str) -> String {
    wrapped(text, output_width().unwrap_or(TITLE).min(TITLE))
}

/// Wraps text into lines of at most `width` characters, unless a word is longer.
fn wrapped(text: &str, width: usize) -> String {
    let mut lines = vec![String::new()];
    for word in text.split(' ') {
        match lines.last_mut() {
            Some(line) if line.is_empty() => line.push_str(word),
            Some(line) if line.chars().count() + 1 + word.chars().count() <= width => {
                line.push(' ');
                line.push_str(word);
            }
            _ => lines.push(word.to_owned()),
        }
    }
    lines.join("\n")
}

#[cfg(test)]
mod tests;
