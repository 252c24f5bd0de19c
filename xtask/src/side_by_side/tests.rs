use super::*;

#[test]
fn each_item_has_its_turn() {
    let seen = Mutex::new(Vec::new());
    for_each(&[3, 1, 2], 2, |n| {
        seen.lock().unwrap().push(*n);
        Ok(())
    })
    .unwrap();
    let mut seen = seen.into_inner().unwrap();
    seen.sort_unstable();
    assert_eq!(seen, [1, 2, 3]);
}

#[test]
fn a_failure_is_returned_and_ends_the_rest() {
    let seen = Mutex::new(0);
    let failed = for_each(&[1, 2, 3], 1, |n| {
        *seen.lock().unwrap() += 1;
        anyhow::ensure!(*n != 2, "two");
        Ok(())
    });
    assert_eq!((failed.unwrap_err().to_string(), seen.into_inner().unwrap()), ("two".into(), 2));
}
