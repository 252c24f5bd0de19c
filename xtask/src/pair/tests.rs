use super::*;

fn shell(listener: &str, connector: &str) -> CommandPair {
    let words = |script: &str| vec!["sh".to_owned(), "-c".to_owned(), script.to_owned()];
    CommandPair { listener: words(listener), connector: words(connector) }
}

#[test]
fn the_connecting_ends_output_comes_back() {
    let socket = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = socket.local_addr().unwrap().port();
    assert_eq!(run(&shell("echo first", "echo second"), port).unwrap(), "second\n");
}

#[test]
fn an_end_that_fails_says_why() {
    let socket = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = socket.local_addr().unwrap().port();
    // The listening end would wait for ever.
    let failed = run(&shell("exec tail -f /dev/null", "echo broken >&2; exit 3"), port);
    let told = format!("{:#}", failed.unwrap_err());
    assert!(told.contains("connecting end") && told.contains("broken"), "{told}");
    let failed = run(&shell("echo lost; exit 1", "true"), port);
    let told = format!("{:#}", failed.unwrap_err());
    assert!(told.contains("listening end") && told.contains("lost"), "{told}");
}

#[test]
fn what_an_end_has_started_ends_with_it() {
    let words = ["sh", "-c", "tail -f /dev/null & wait"].map(str::to_owned);
    let mut end = RunningCommand::start(&words, LIMIT).unwrap();
    let pid = end.group.unwrap().as_raw_nonzero();
    let children = format!("/proc/{pid}/task/{pid}/children");
    while fs::read_to_string(&children).unwrap().is_empty() {
        std::thread::yield_now();
    }
    end.end_group();
    // Its pipes are closed when the last one that holds them has gone.
    assert!(end.ended.recv_timeout(Duration::from_secs(30)).is_ok());
}

#[test]
fn a_listener_is_seen() {
    let socket = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = socket.local_addr().unwrap().port();
    assert!(is_listened_to(port, Path::new("/proc/net")));
    assert!(!is_listening("0: 0100007F:1388 00000000:0000 01 0 0 0", 5000), "established");
    assert!(is_listening("0: 0100007F:1388 00000000:0000 0A 0 0 0", 5000));
}
