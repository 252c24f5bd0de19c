use super::*;

#[test]
fn each_transport_has_the_operations_of_the_specification() {
    let has = |t: Transport, ops: &[ibv_wr_opcode]| ops.iter().all(|op| t.to_its_peer().has(*op));
    let none = |t: Transport, ops: &[ibv_wr_opcode]| !ops.iter().any(|op| t.to_its_peer().has(*op));
    assert!([SENDS, WRITES, READS].iter().all(|ops| has(Transport::Rc, ops)));
    assert!([SENDS, WRITES].iter().all(|ops| has(Transport::Uc, ops)));
    assert!(none(Transport::Uc, READS));
    let ud = Transport::Ud { qkey: 0 };
    assert!([SENDS, WRITES, READS].iter().all(|ops| none(ud, ops)));
    assert_eq!(OpSet::sends(), OpSet::from_opcodes(SENDS));
}
