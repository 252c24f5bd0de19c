use super::*;

#[test]
fn contexts_of_one_file_share_them_while_one_is_open() {
    // No file has such a number.
    let file = (u64::MAX, 7);
    let first = Handles::for_file(file);
    first.pds.room().unwrap().insert(1, Arc::default());
    let second = Handles::for_file(file);
    assert!(Arc::ptr_eq(&first, &second));
    assert!(!Arc::ptr_eq(&first, &Handles::for_file((u64::MAX, 8))));
    drop((first, second));
    assert!(Handles::for_file(file).pds.get(1).is_none(), "the number is another file's");
}

#[test]
fn a_region_is_changed_once_at_a_time_and_not_after_its_end() {
    let domains = [(); 2].map(|()| Arc::new(Users::default()));
    domains.iter().for_each(|users| users.join().unwrap().keep());
    let region = MrRegistration::new((7, 7), 64, &domains[0], None);
    let first = region.change().unwrap();
    assert_eq!(region.change().err(), Some(errno::EBUSY));
    drop(first);
    region.change().unwrap().registered(128, Some(&domains[1]));
    assert_eq!((region.length(), domains[0].end()), (128, Ok(())));
    assert_eq!(domains[1].end(), Err(errno::EBUSY));
    region.change().unwrap().end();
    assert_eq!((region.change().err(), domains[1].end()), (Some(errno::ENOENT), Ok(())));
}
