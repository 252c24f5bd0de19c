use super::*;

fn port(link_layer: LinkLayer, grh_required: bool) -> PortAttr {
    let raw = verbs_sys::ibv_port_attr::default();
    PortAttr { link_layer, grh_required, ..PortAttr::new(1, &raw) }
}

#[test]
fn a_global_route_is_used_where_it_is_needed() {
    let mut gid = [0; 16];
    gid[..2].copy_from_slice(&[0xfe, 0x80]);
    let near = Endpoint { qp_num: 1, psn: 0, lid: 7, gid };
    let far = Endpoint { gid: [9; 16], ..near };
    let ib = port(LinkLayer::InfiniBand, false);
    assert!(is_global(&port(LinkLayer::Ethernet, false), Some(gid), &near));
    assert!(is_global(&port(LinkLayer::InfiniBand, true), Some(gid), &near));
    assert!(!is_global(&ib, Some(gid), &near));
    assert!(is_global(&ib, Some(gid), &far), "another subnet");
    assert!(is_global(&ib, Some(gid), &Endpoint { lid: 0, ..near }), "no LID");
    assert!(!is_global(&ib, Some(gid), &Endpoint { gid: [0; 16], ..near }), "LID only");
}

#[test]
fn a_reply_leaves_from_the_gid_that_was_sent_to() {
    let entry = |index, first, kind| {
        let mut gid = [0; 16];
        gid[0] = first;
        GidEntry { index, gid, kind, interface: 0 }
    };
    let table =
        [entry(0, 1, GidKind::RoceV1), entry(1, 1, GidKind::RoceV2), entry(2, 2, GidKind::Ib)];
    let to = |first| {
        let mut bytes = [0; 40];
        (bytes[0], bytes[24]) = (0x60, first);
        Grh::parse(&bytes).unwrap()
    };
    assert_eq!(own_gid(&table, &to(1)), Some(1));
    assert_eq!(own_gid(&table, &to(2)), Some(2));
    assert_eq!(own_gid(&table, &to(3)), None);
}
