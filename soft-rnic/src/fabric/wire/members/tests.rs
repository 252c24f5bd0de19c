use super::*;

#[test]
fn an_error_that_may_pass_leaves_the_address_to_others() {
    let addr = "127.0.0.42:0".parse().unwrap();
    let after = |errno| alone_after(addr, "event descriptors", errno);
    for errno in [Errno::SRCH, Errno::CONNREFUSED, Errno::MFILE, Errno::NFILE, Errno::NOMEM] {
        let error = after(errno).err().unwrap();
        assert_eq!(error.errno, errno);
        assert!(error.to_string().ends_with("(it takes event descriptors)"), "{error}");
    }
    for errno in LACKING {
        assert!(after(errno).is_ok_and(|joined| joined.peers.is_none()), "{errno}");
    }
}
