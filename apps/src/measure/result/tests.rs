use super::*;

fn line(json: &str) -> ResultLine {
    serde_json::from_str(json).unwrap()
}

#[test]
fn rounds_have_a_median_and_how_far_they_lie_apart() {
    let of = |rate: f64, ok: bool| {
        line(&format!(
            r#"{{"protocol":"x","unacked":4,"messages":10,"rounds":1,"messages_per_s":{rate:?},
                "messages_per_s_min":{rate:?},"messages_per_s_max":{rate:?},"verified":{ok}}}"#
        ))
    };
    let wanted = r#"{"protocol":"x","unacked":4,"messages":30,"rounds":3,"messages_per_s":2.0,
            "messages_per_s_min":1.0,"messages_per_s_max":3.0,"verified":true}"#;
    let rounds = [of(3.0, true), of(1.0, true), of(2.0, true)];
    assert_eq!(ResultLine::of_rounds(&rounds), line(wanted));
    let one = ResultLine::of_rounds(&[of(3.0, true), of(1.0, false)]);
    assert_eq!((one.is_true("verified"), one.count("rounds")), (false, Some(2)));
}

#[test]
fn a_mean_per_message_is_that_of_all_messages() {
    let of = |messages: u64, mean: f64, lost: Option<u64>| {
        let line = ResultLine::default().with_rates(messages, 1.0);
        line.with("rdma_ops_per_message", mean).with("sender_fairness", mean).with("lost", lost)
    };
    let all = ResultLine::of_rounds(&[of(10, 2.0, None), of(30, 1.0, Some(3))]);
    assert_eq!((all.figure("rdma_ops_per_message"), all.figure("sender_fairness")), (1.25, 1.0));
    assert_eq!(all.count("lost"), Some(3), "of a round that has it");
}

#[test]
fn quantiles_of_rounds_stay_in_order() {
    let round = |values: [u64; 4]| {
        let mut histogram = Histogram::<u64>::new(3).unwrap();
        values.iter().for_each(|value| histogram.record(*value).unwrap());
        ResultLine::default().with_latency(&histogram)
    };
    let all = ResultLine::of_rounds(&[[3, 5, 5, 9], [1, 4, 4, 9], [2, 7, 7, 8]].map(round));
    let of = |name: &str| all.count(&format!("latency_ns_{name}")).unwrap();
    assert_eq!((of("p50"), of("p50_min"), of("p50_max")), (5, 4, 7));
    assert_eq!((of("min"), of("max")), (1, 9));
    assert!(["min", "p50", "p90", "p99", "p999", "max"].map(of).is_sorted());
}

#[test]
fn what_the_other_end_reads_is_what_was_written() {
    let line = ResultLine::new("send-recv", "soft0", "rc", 16)
        .with("unacked", 8)
        .with("mean_transfer_bytes", None::<f64>)
        .with("rdma_ops_per_message", 1.0 / 3.0)
        .with("rnr_events", Some(0));
    let json = serde_json::to_string(&line).unwrap();
    assert!(!json.contains("mean_transfer_bytes"), "{json}");
    assert_eq!(line, serde_json::from_str(&json).unwrap());
}

#[test]
fn a_count_that_a_round_lacks_is_no_sum() {
    let of = |rnr: Option<u64>| ResultLine::default().with("messages", 1).with("rnr_events", rnr);
    let all = ResultLine::of_rounds(&[of(Some(2)), of(None)]);
    assert_eq!((all.count("messages"), all.count("rnr_events")), (Some(2), None));
}

#[test]
fn a_peer_tells_results_and_nothing_else() {
    let right = r#"{"size_bytes":16,"messages":2,"device":"x","verified":true}"#;
    assert!(line(right).validated().is_ok());
    for wrong in [
        r#"{}"#,
        r#"{"messages":2}"#,
        r#"{"size_bytes":"16","messages":2}"#,
        r#"{"size_bytes":16,"messages":2,"more":[1]}"#,
        r#"{"size_bytes":16,"messages":2,"more":{}}"#,
    ] {
        assert!(line(wrong).validated().is_err(), "{wrong}");
    }
}
