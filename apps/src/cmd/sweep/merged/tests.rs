use super::*;

fn merged(json: &str) -> MergedPoint {
    MergedPoint::new(&["4".into()], &[vec![serde_json::from_str(json).unwrap()]])
}

#[test]
fn comma_separated_values_have_the_columns_of_all_results() {
    let flags = ["--unacked".to_owned()];
    let all = [merged(r#"{"a":"one, \"two\"","unacked":4}"#), merged(r#"{"b":7}"#)];
    let text = csv(&flags, &all).unwrap();
    assert_eq!(text, "unacked,a,b\n4,\"one, \"\"two\"\"\",\n4,,7\n");
}
