use super::*;

#[test]
fn queue_pairs_that_follow_each_other_use_all_ports() {
    let ports = SendPorts::bind("127.0.0.1".parse().unwrap(), 4).unwrap();
    let mut used = [0; 4];
    for number in 64..128 {
        used[usize::from(ports.choose(number, number + 1))] += 1;
    }
    assert!(used.iter().all(|n| *n >= 4), "{used:?}");
    assert_eq!((ports.local(0), ports.local(4)), (None, None));
    assert!((1..4).all(|chosen| ports.local(chosen).is_some()));
    let one = SendPorts::bind("127.0.0.1".parse().unwrap(), 1).unwrap();
    assert_eq!((one.choose(5, 9), one.others().len()), (0, 0));
}
