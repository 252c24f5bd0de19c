use super::*;

#[test]
fn a_place_is_a_line_and_a_column_of_characters() {
    assert_eq!(line_and_column("", 0), (1, 1));
    assert_eq!(line_and_column("ab\nµx", 0), (1, 1));
    assert_eq!(line_and_column("ab\nµx", 5), (2, 2));
    assert_eq!(line_and_column("ab\n", 99), (2, 1));
}

#[test]
fn a_path_leads_to_its_value_or_as_far_as_there_is_one() {
    let text = "[[y]]\nkey = 'a'\n[[y]]\nkey = 'b'\n";
    let at = |path: &[PathStep]| &text[find(text, path)];
    assert_eq!(at(&["y".into(), 1.into(), "key".into()]), "'b'");
    assert_eq!(at(&["y".into(), 1.into(), "unit".into()]), "[[y]]");
    assert_eq!(find("no = = toml", &["no".into()]), 0..0);
}
