use super::*;

#[test]
fn a_peers_text_cannot_drive_a_terminal() {
    let text = "\x1b[2J\nroot# \u{9b}1m\u{7f}";
    assert_eq!(printable(text), r"\u001b[2J\nroot# \u009b1m\u007f");
    assert_eq!(printable("5 µs · 3 × 2 B │"), "5 µs · 3 × 2 B │");
}
