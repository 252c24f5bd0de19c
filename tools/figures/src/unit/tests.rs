use super::*;

#[test]
fn a_gbit_is_a_billion_bits() {
    let bytes_per_s = 12.5e9;
    assert_eq!(bytes_per_s / divisor("bytes_per_s", "Gbit/s").unwrap(), 100.0);
    assert_eq!(divisor("latency_ns_p50_max", "µs"), Ok(1e3));
    assert_eq!(divisor("mean_transfer_bytes", "KiB"), Ok(1024.0));
    assert_eq!(divisor("rdma_ops_per_message", "operations"), Ok(1.0));
}

#[test]
fn a_unit_of_something_else_is_refused_with_those_that_fit() {
    let says = divisor("bytes_per_s", "µs").unwrap_err();
    assert_eq!(says, "the unit of bytes_per_s may be B/s, MB/s, GB/s, Gbit/s");
    assert!(divisor("messages_per_s_min", "Gbit/s").unwrap_err().contains("M msg/s"));
}
