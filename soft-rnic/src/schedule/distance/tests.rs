use super::*;

#[test]
fn the_same_distance_is_the_same_device() {
    let name = distant(Duration::from_micros(77));
    let count = || DEVICES.lock().iter().filter(|d| d.distance().is_some()).count();
    let before = count();
    assert_eq!((distant(Duration::from_micros(77)), count()), (name, before));
}
