use std::path::Path;

use super::*;
use crate::{builtin, sample};

/// The table as Markdown.
fn markdown() -> String {
    let head = ["", "asks for"].iter().chain(&CONNECTIONS).chain(&["shown by"]);
    let row = |cells: Vec<&str>| format!("| {} |\n", cells.join(" | ")).replace("|  |", "| |");
    let mut text = row(head.copied().collect());
    text += &format!("|{}\n", "---|".repeat(CONNECTIONS.len() + 3));
    for requirement in all().unwrap() {
        let does = CONNECTIONS.map(|connection| requirement.does(connection).to_owned());
        let does = does.each_ref().map(|text| if text.is_empty() { "–" } else { text });
        let ends = [&*requirement.name, &requirement.asks];
        text += &row(ends.into_iter().chain(does).chain([&*requirement.shown]).collect());
    }
    text
}

#[test]
fn the_documentation_has_the_table() {
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/protocols/README.md");
    let documentation = std::fs::read_to_string(file).unwrap();
    let table = markdown();
    assert!(documentation.contains(&table), "it should have this table:\n{table}");
}

#[test]
fn every_row_is_of_connections_and_figures_that_there_are() {
    for requirement in all().unwrap() {
        let known: Vec<&str> = requirement.does.keys().map(String::as_str).collect();
        let mut all = CONNECTIONS;
        all.sort_unstable();
        assert_eq!(known, all, "{}", requirement.name);
        for measured in &requirement.measured {
            let experiment = builtin::named(&measured.figure).unwrap().experiment().unwrap();
            assert!(experiment.y.iter().any(|y| y.key == measured.y), "{measured:?}");
        }
    }
}

#[test]
fn a_fact_is_a_case_at_both_ends_of_x() {
    let report = sample::report(1.0);
    let all = all().unwrap();
    let memory = all.iter().find(|requirement| requirement.name == "Memory by N").unwrap();
    let measured = memory.measured(&report);
    assert_eq!(measured.len(), 2);
    let (heading, facts) = &measured[1];
    assert_eq!(
        heading,
        "Memory and rate by senders, with a shared receive queue and without: Memory registered to receive (KiB)"
    );
    // The made-up value is the root of x, times the number of the case.
    let srq = &facts[1];
    assert_eq!((&*srq.figure, &*srq.case), ("send-recv-memory-by-senders", "shared receive queue"));
    assert_eq!(srq.values, "2.97 (Senders 2), 33.6 (Senders 256)");
    // What was not measured is left out.
    let mut few = report;
    few.figures.retain(|figure| figure.name != "send-recv-memory-by-senders");
    assert_eq!(memory.measured(&few).len(), 1);
    few.figures.clear();
    assert!(memory.measured(&few).is_empty());
}
