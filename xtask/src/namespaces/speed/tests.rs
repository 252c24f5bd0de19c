use super::*;

#[test]
fn the_last_document_has_the_figures() {
    let printed = "{\"bytes_per_s\": 1}\n{\"bytes_per_s\": 25000000.0, \"lost\": 0}\n";
    let of = |pointer, unit| shown(printed, &[(pointer, unit)]);
    assert_eq!(of("/bytes_per_s", FigureUnit::Bytes).unwrap(), "25 MB/s");
    assert_eq!(of("/bytes_per_s", FigureUnit::Bits).unwrap(), "3 MB/s");
    assert!(of("/latency_ns_p50", FigureUnit::Nanoseconds).is_err());
    assert!(of("/lost", FigureUnit::Bytes).is_err());
    let both = [("/bytes_per_s", FigureUnit::Bytes), ("/lost", FigureUnit::PercentLost)];
    assert_eq!(shown(printed, &both).unwrap(), "25 MB/s, 0.0 % lost");
    assert!(shown("", RATE).is_err());
}
