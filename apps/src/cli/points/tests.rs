use clap::CommandFactory;

use super::*;

fn points(line: &str) -> Result<Option<Vec<String>>, String> {
    let words: Vec<OsString> = line.split(' ').map(OsString::from).collect();
    let found = parse(&words, &crate::cli::Args::command())?;
    let line = |point: SweepPoint| {
        let words: Vec<_> = point.words.iter().map(|word| word.to_string_lossy()).collect();
        words.join(" ")
    };
    Ok(found.map(|found| found.points.into_iter().map(line).collect()))
}

#[test]
fn each_number_of_a_list_is_a_measurement() {
    for (line, all) in [
        (
            "p bench --unacked 1,2..8",
            &["1", "2", "4", "8"].map(|n| format!("p bench --unacked {n}"))[..],
        ),
        (
            "p bench --unacked=4,5 --json",
            &["4", "5"].map(|n| format!("p bench --unacked={n} --json")),
        ),
        (
            "p --device soft0 pingpong --size 16..64*4",
            &["16", "64"].map(|n| format!("p --device soft0 pingpong --size {n}")),
        ),
        (
            "p multicast --members 2,3 --size 1k,2k",
            &["2 --size 1024", "2 --size 2048", "3 --size 1024", "3 --size 2048"]
                .map(|rest| format!("p multicast --members {rest}")),
        ),
        ("p bench --seconds 1,2", &["1", "2"].map(|n| format!("p bench --seconds {n}"))),
        ("p bench --rate 1000,2000", &["1000", "2000"].map(|n| format!("p bench --rate {n}"))),
        (
            "p bench --size 16,64 --csv out.csv",
            &["16", "64"].map(|n| format!("p bench --size {n} --csv out.csv")),
        ),
    ] {
        assert_eq!(points(line).unwrap().unwrap_or_default(), all, "{line}");
    }
}

#[test]
fn a_command_line_without_lists_is_left_as_it_is() {
    for line in [
        "p",
        "p bench",
        "p bench --size 16,64 --unacked 8",
        "p multicast --members 2,3 --push every:1,every:25",
        "p bench --cpu 0,1",
        "p bench --input ../1,2..4",
        "p pipe --size 1..4",
        "p bench --unacked",
        "p bench --size 16,,32",
        "p bench --op send --srq-classes --size 64,4096",
        "p --device 1..2 devices",
    ] {
        assert_eq!(points(line).unwrap(), None, "{line}");
    }
}

#[test]
fn lists_of_parts_have_no_ranges() {
    let two = |flag: &str, values: [&str; 2]| {
        let line = format!("p bench {flag} {},{}", values[0], values[1]);
        let wanted = values.map(|value| format!("p bench {flag} {value}"));
        assert_eq!(points(&line).unwrap().unwrap(), wanted, "{line}");
    };
    two("--seconds", ["0.5", "1"]);
    two("--rate", ["1.5e6", "auto"]);
}

#[test]
fn a_list_that_cannot_be_is_refused_with_its_flag_and_place() {
    let error = points("p bench --unacked 8..4").unwrap_err();
    assert!(error.starts_with("--unacked: column 1: '8..4'"), "{error}");
    let error = points("p bench --rounds 1,3").unwrap_err();
    assert!(error.starts_with("--rounds: it is the same"), "{error}");
    let error = points("p bench --unacked 1,x").unwrap_err();
    assert!(error.starts_with("--unacked: column 3: 'x'"), "{error}");
    let error = points("p bench --unacked 1..200+1 --batch 1..200+1").unwrap_err();
    assert_eq!(error, "the lists make 40000 measurements: up to 4096 are done");
}
