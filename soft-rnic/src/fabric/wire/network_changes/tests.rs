use super::*;

#[test]
fn a_child_of_fork_does_not_read_the_socket_of_its_parent() {
    let (namespace, process) = (network_namespace(), std::process::id());
    let mut known = None;
    let parent = watch_of(&mut known, process, namespace).unwrap();
    let again = watch_of(&mut known, process, namespace).unwrap();
    assert!(Arc::ptr_eq(&parent, &again));
    let child = watch_of(&mut known, process + 1, namespace).unwrap();
    assert!(!Arc::ptr_eq(&parent, &child));
    assert_eq!(child.process, process + 1);
    assert!(child.devices.lock().is_empty());
}
