use super::*;

fn line(json: &str) -> Line {
    serde_json::from_str(json).unwrap()
}

fn merged(rounds: &[&str]) -> Merged {
    let mut merged = Merged::new(&["4".into()]);
    rounds.iter().for_each(|json| merged.add_round(vec![line(json)]));
    merged
}

#[test]
fn comma_separated_values_have_the_columns_of_all_results() {
    let flags = ["--unacked".to_owned()];
    let all = [merged(&[r#"{"a":"one, \"two\"","unacked":4}"#]), merged(&[r#"{"b":7}"#])];
    let text = csv(&flags, &all).unwrap();
    assert_eq!(text, "unacked,a,b\n4,\"one, \"\"two\"\"\",\n4,,7\n");
}
