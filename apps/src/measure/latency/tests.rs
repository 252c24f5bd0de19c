use super::*;

#[test]
fn a_device_at_a_distance_has_a_plan() {
    assert_eq!(planned_ns("soft0@5us", Some(1)), Some(2500));
    assert_eq!(planned_ns("soft0@1500ns", Some(3)), Some(2250));
    for (device, hops) in [("soft0@5us", None), ("soft0", Some(1)), ("mlx5_0", Some(1))] {
        assert_eq!(planned_ns(device, hops), None, "{device}");
    }
    assert_eq!(planned_ns("soft0@card=connectx5,slow=8", Some(1)), None);
}

#[test]
fn what_the_other_end_reads_is_what_was_written() {
    let settings = [("unacked".to_owned(), 8.into())].into_iter().collect();
    let line = Latency {
        protocol: "send-recv".into(),
        device: "soft0".into(),
        transport: "rc".into(),
        size_bytes: 16,
        messages: 2,
        rounds: 1,
        latency: Quantiles::of(&hdrhistogram::Histogram::new(3).unwrap()),
        latency_ns_planned: None,
        rdma_ops_per_message: 1.0,
        mean_transfer_bytes: None,
        rnr_events: Some(0),
        verified: true,
        machine: Machine::here(),
        settings,
    };
    let json = serde_json::to_string(&line).unwrap();
    let read: Latency = serde_json::from_str(&json).unwrap();
    assert_eq!(serde_json::to_string(&read).unwrap(), json, "each key once");
}
