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
