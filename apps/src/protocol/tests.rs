use rdma_conn::conn_core::handshake::ProtocolId;

use super::*;

struct Number;

impl With for Number {
    type Out = ProtocolId;

    fn with<K: MeasuredProtocol>(self) -> ProtocolId {
        K::ID
    }
}

#[test]
fn a_name_leads_to_the_connection_of_its_number() {
    for one in ProtocolKind::ALL {
        assert_eq!(one.number(), one.with(Number));
    }
}
