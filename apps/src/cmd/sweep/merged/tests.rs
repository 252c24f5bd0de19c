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
fn rounds_have_a_median_and_how_far_they_lie_apart() {
    let of = |rate: f64, ok: bool| {
        format!(
            r#"{{"protocol":"x","unacked":4,"messages":10,"rounds":1,"messages_per_s":{rate:?},
                "messages_per_s_min":{rate:?},"messages_per_s_max":{rate:?},"verified":{ok}}}"#
        )
    };
    let rounds = [of(3.0, true), of(1.0, true), of(2.0, true)];
    let all = merged(&rounds.each_ref().map(String::as_str)).lines();
    let wanted = r#"{"protocol":"x","unacked":4,"messages":30,"rounds":3,"messages_per_s":2.0,
            "messages_per_s_min":1.0,"messages_per_s_max":3.0,"verified":true}"#;
    assert_eq!(all, [line(wanted)]);
    let rounds = [of(3.0, true), of(1.0, false)];
    let one = merged(&rounds.each_ref().map(String::as_str)).line(0);
    assert_eq!((&one["verified"], &one["rounds"]), (&Value::Bool(false), &2.into()));
}

#[test]
fn comma_separated_values_have_the_columns_of_all_results() {
    let flags = ["--unacked".to_owned()];
    let all = [merged(&[r#"{"a":"one, \"two\"","unacked":4}"#]), merged(&[r#"{"b":7}"#])];
    let text = csv(&flags, &all).unwrap();
    assert_eq!(text, "unacked,a,b\n4,\"one, \"\"two\"\"\",\n4,,7\n");
}
