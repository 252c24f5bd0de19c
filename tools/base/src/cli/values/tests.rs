use super::*;

#[test]
fn bytes_have_binary_suffixes() {
    for (text, bytes) in
        [("0", 0), ("4096", 4096), ("4k", 4096), ("64K", 65_536), ("1M", 1 << 20), ("2g", 2 << 30)]
    {
        assert_eq!(byte_count(text), Ok(bytes), "{text}");
    }
    for text in ["", "k", "4kk", "4 k", "-1", "4G", "1.5k", "many", "4096b", "µ"] {
        assert_eq!(byte_count(text).unwrap_err(), NOT_BYTES, "{text}");
    }
}

#[test]
fn a_host_has_a_name_or_an_address_and_perhaps_a_port() {
    for (text, address) in [
        ("10.0.0.1:4711", "10.0.0.1:4711"),
        ("10.0.0.1", "10.0.0.1:18515"),
        ("[::1]:4711", "[::1]:4711"),
        ("::1", "[::1]:18515"),
        ("localhost", "127.0.0.1:18515"),
        ("localhost:4711", "127.0.0.1:4711"),
    ] {
        assert_eq!(socket_address(text), Ok(address.parse().unwrap()), "{text}");
    }
    for text in ["4711", ":4711"] {
        assert!(socket_address(text).unwrap_err().contains(" 127.0.0.1:4711"), "{text}");
    }
    for text in ["10.0.0.1:port", "10.0.0.1:70000", "[::1", "10.0.0.1:"] {
        assert!(socket_address(text).unwrap_err().starts_with("ADDRESS[:PORT]"), "{text}");
    }
}
