use super::*;

#[test]
fn a_line_tells_what_is_there_and_of_how_much() {
    let tally = CopyTally::default();
    let mut receiver = Onlooker::new("there".into(), &tally, None);
    assert_eq!(receiver.line(), "there: 0 B, 0 entries, 0 B/s");
    tally.moves(5);
    tally.add_present(20_000);
    tally.done();
    assert!(receiver.line().starts_with("there: 20.0 kB, 1 entry, "));
    let mut sender = Onlooker::new("here".into(), &tally, Some((30_000, 3)));
    let line = sender.line();
    assert!(line.starts_with("here: 20.0 kB of 30.0 kB, 1 of 3 entries, "), "{line}");
    assert!(sender.line().ends_with(", 0 B/s"), "nothing has arrived since");
}

#[test]
fn a_bar_counts_done_and_failed_entries_of_all_receivers() {
    let tallies = [CopyTally::default(), CopyTally::default()];
    assert_eq!(ended(tallies.iter(), 1), "0 of 1 entry");
    tallies[0].done();
    tallies[1].fails();
    tallies[1].moves(5);
    assert_eq!(ended(tallies.iter(), 6), "2 of 6 entries");
}
