use super::super::cases::chosen;
use super::*;

#[test]
fn our_figure_is_that_of_the_run_that_was_asked_for() {
    let of =
        |name: &str, output| our_figure(&chosen(&[name.to_owned()], &[16]).unwrap()[0], output);
    let rate = r#"{"size_bytes":16,"inline":false,"messages_per_s":9174.5}"#;
    assert_eq!(of("send-bw", rate).unwrap(), 9174.5);
    assert!(of("send-bw-inline", rate).is_err(), "it was not inline");
    assert!(of("send-lat", rate).is_err(), "it has no latency");
    assert!(of("send-bw", r#"{"size_bytes":17,"inline":false,"messages_per_s":1}"#).is_err());
    let latency = r#"{"size_bytes":16,"inline":false,"latency_ns_p50":12767}"#;
    assert_eq!(of("write-lat", latency).unwrap(), 12_767.0);
    assert!(of("write-lat", "").is_err());
    assert!(positive(0.0).is_err() && positive(f64::NAN).is_err());
}

#[test]
fn a_run_without_a_figure_is_made_again_once() {
    let mut figures = [0.0, 7.0].into_iter();
    assert_eq!(twice("it", || positive(figures.next().unwrap())).unwrap(), 7.0);
    let mut runs = 0;
    let failed = twice("it", || {
        runs += 1;
        positive(0.0)
    });
    assert_eq!((format!("{:#}", failed.unwrap_err()), runs), ("it: it measured 0".into(), 2));
}
