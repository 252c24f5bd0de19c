use clap::CommandFactory;

use super::*;

/// The command line of the first round of the first measurement, of three rounds.
fn first_round(line: &str) -> String {
    let given: Vec<OsString> = line.split(' ').map(OsString::from).collect();
    let points = crate::cli::points::parse(&given, &Args::command()).unwrap().expect("a list");
    let args = parse(&points).unwrap();
    let words = words(&points.points[0], &args[0], 0, 3);
    words.iter().map(|word| word.to_string_lossy()).collect::<Vec<_>>().join(" ")
}

#[test]
fn rounds_share_the_time_or_the_messages_of_a_measurement() {
    for (line, round) in [
        ("p pingpong --seconds 3 --unacked 4,8", "pingpong --unacked 4 --rounds 1 --seconds 1"),
        (
            "p pingpong --iterations 31 --unacked 4,8",
            "pingpong --unacked 4 --rounds 1 --iterations 11",
        ),
        ("p bench --seconds=3 --unacked 4,8", "bench --unacked 4 --rounds 1 --seconds 1"),
        ("p bench --messages 30 --unacked 4,8", "bench --unacked 4 --rounds 1 --messages 10"),
        ("p multicast --seconds 3 --window 4,8", "multicast --window 4 --rounds 1 --seconds 1"),
    ] {
        assert_eq!(first_round(line), round);
    }
}
