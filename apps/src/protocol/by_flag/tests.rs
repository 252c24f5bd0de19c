use super::*;

#[test]
fn a_configuration_that_cannot_be_names_flags() {
    let says = |config: Config| by_flag(&config.validate().unwrap_err(), &config).to_string();
    let base = Config { unacked: 8, batch: 8, recv_depth: 16, ..Config::default() };
    let batch = says(Config { batch: 512, ..base });
    assert_eq!(batch, "--batch 512: it may be 1 to --unacked (8)");
    let size = says(Config { message_bytes: u32::MAX, ..base });
    assert_eq!(size, "--size 4294967295: it may be up to 1073741824");
    let repost = says(Config { repost_batch: 17, ..base });
    assert_eq!(repost, "--repost-batch 17: it may be 0 (choose) to --recv-depth (16)");
    let long = says(Config { pack_bytes: 1 << 31, message_bytes: 1 << 31, ..base });
    assert_eq!(long, "--pack 2147483648: it may be 0 (off), or 8 to 1073741824");
    let pack = says(Config { pack_bytes: 7, ..base });
    assert_eq!(pack, "--pack 7: it may be 0 (off), or 8 to 1073741824");
}
