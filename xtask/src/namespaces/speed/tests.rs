use super::*;

#[test]
fn the_last_document_has_the_figure() {
    let printed = "{\"bytes_per_s\": 1}\n{\"bytes_per_s\": 25000000.0}\n";
    assert_eq!(figure(printed, "/bytes_per_s", FigureUnit::Bytes).unwrap(), "25 MB/s");
    assert_eq!(figure(printed, "/bytes_per_s", FigureUnit::Bits).unwrap(), "3 MB/s");
    assert!(figure(printed, "/latency_ns_p50", FigureUnit::Nanoseconds).is_err());
    assert!(figure("", "/bytes_per_s", FigureUnit::Bytes).is_err());
}
