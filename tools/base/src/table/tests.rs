use super::*;

#[test]
fn a_title_is_as_wide_as_a_table() {
    assert_eq!(wrapped("one two three", 7), "one two\nthree");
    assert_eq!(wrapped("messages of µs", 11), "messages of\nµs");
    assert_eq!(wrapped("a longer-word b", 4), "a\nlonger-word\nb");
}

#[test]
fn no_cell_is_broken_however_narrow_the_output_is() {
    let mut table = ResultTable::new(2, &["mem-\nbers", "push", "msgs/s", "p50\n(µs)", "ratio"]);
    table.add_row(["3", "opportunistic-null", "399.2 k", "399245.3", "0.999"]);
    let widest = |text: &str| text.lines().map(|line| line.chars().count()).max();
    for width in [None, Some(1), Some(30), Some(40), Some(50), Some(200)] {
        let text = table.within(width);
        for cell in ["opportunistic-null", "399.2 k", "399245.3", "0.999"] {
            assert!(text.contains(cell), "{width:?}: {text}");
        }
        let parts = text.matches("opportunistic-null").count();
        match width {
            None | Some(200) => assert_eq!(parts, 1, "{text}"),
            Some(1) => assert_eq!(parts, 3, "{text}"),
            Some(40) => assert!(parts > 1 && widest(&text) <= width, "{text}"),
            _ => assert!(parts > 1, "{text}"),
        }
    }
}

#[test]
fn columns_is_a_number_or_nothing() {
    assert_eq!(
        [Some("200"), Some("0"), Some("x"), None].map(columns),
        [Some(200), None, None, None]
    );
}
