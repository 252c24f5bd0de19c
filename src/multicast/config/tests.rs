use super::*;

#[test]
fn a_link_gives_up_before_its_peer_is_suspected() {
    let with = |timeout, retry_count, seconds| {
        let link = Link { timeout, retry_count, ..Link::default() };
        let suspect_after = Duration::from_secs(seconds);
        Config { link, suspect_after, ..Config::default() }.validate()
    };
    assert_eq!(Config::default().validate(), Ok(()));
    assert_eq!(with(18, 6, 5), Err(ConfigError::RetryTime), "7 times 1.07 s");
    assert_eq!(with(18, 3, 5), Ok(()));
    assert_eq!(with(0, 0, 3600), Err(ConfigError::RetryTime), "for ever");
}
