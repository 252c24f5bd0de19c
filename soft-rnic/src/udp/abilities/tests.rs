use super::*;

#[test]
fn this_system_has_them() {
    for ip in ["127.0.0.1", "::1"] {
        let all = Abilities { cuts: true, merges: true, shares: true };
        assert_eq!(abilities(ip.parse().unwrap()), all, "{ip}");
    }
}
