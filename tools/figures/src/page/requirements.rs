//! The table of what the thesis asks of a connection.

use maud::{Markup, html};

use crate::report::FiguresReport;
use crate::requirements::{CONNECTIONS, Requirement, all};

/// Anchor of the table in the page.
pub(super) const ID: &str = "requirements";

/// The table, with what this report has measured.
///
/// # Errors
/// None: a test reads the data.
pub(super) fn requirements(report: &FiguresReport) -> anyhow::Result<Markup> {
    let all = all()?;
    Ok(html! {
        section id=(ID) {
            h2 { "What the thesis asks of a connection" }
            p { "Values are medians of this report." }
            div.scroll tabindex="0" role="region" aria-label="Requirements" {
                table.requirements {
                    thead {
                        tr {
                            th scope="col" { "Requirement" }
                            @for connection in CONNECTIONS { th scope="col" { (connection) } }
                        }
                    }
                    tbody { @for requirement in &all { (row(requirement, report)) } }
                }
            }
        }
    })
}

/// A requirement, and below it what shows it.
fn row(requirement: &Requirement, report: &FiguresReport) -> Markup {
    html! {
        tr {
            th scope="row" { (requirement.name) br; small { (coded(&requirement.asks)) } }
            @for connection in CONNECTIONS {
                td { (coded(Some(requirement.does(connection)).filter(|d| !d.is_empty()).unwrap_or("–"))) }
            }
        }
        tr.shown {
            td colspan=(CONNECTIONS.len() + 1) {
                "Shown by " (coded(&requirement.shown)) "."
                @for (heading, facts) in requirement.measured(report) {
                    p {
                        @if let Some(fact) = facts.first() {
                            a href=(format!("#{}", fact.figure)) { (heading) } ": "
                        }
                        @for (at, fact) in facts.iter().enumerate() {
                            @if at > 0 { "; " }
                            (fact.case) " " b { (fact.values) }
                        }
                    }
                }
            }
        }
    }
}

/// Text with code between backticks.
fn coded(text: &str) -> Markup {
    html! {
        @for (at, part) in text.split('`').enumerate() {
            @if at % 2 == 1 { code { (part) } } @else { (part) }
        }
    }
}
