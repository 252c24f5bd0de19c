use super::*;

#[test]
fn something_else_is_done_until_the_work_is_over() {
    let (tell, told) = channel();
    let every = Duration::from_millis(1);
    // The test may have heard enough.
    let other = move || tell.send(()).unwrap_or(());
    let done = meanwhile(every, other, || (told.recv(), told.recv()));
    assert_eq!(done, (Ok(()), Ok(())));
    let panics = || meanwhile(Duration::from_secs(3600), || (), || panic!("it ends as well"));
    assert!(std::panic::catch_unwind(panics).is_err());
}
