use super::*;

/// The errno of an advice about a region: a device advises about on-demand regions only.
fn advised(region: &SharedRegion) -> i32 {
    let (addr, lkey) = (region.base.as_ptr() as u64, region.registration.lkey());
    let mut piece = verbs_sys::ibv_sge { addr, length: 64, lkey };
    let advice = verbs_sys::ib_uverbs_advise_mr_advice::IB_UVERBS_ADVISE_MR_ADVICE_PREFETCH;
    // SAFETY: the region holds its domain; the list has one piece.
    unsafe {
        verbs_sys::ibv_advise_mr(region.registration.pd().raw.as_ptr(), advice, 0, &mut piece, 1)
    }
}

#[test]
fn all_memory_of_an_on_demand_domain_is_on_demand() {
    let context = crate::devices(soft_rnic::table()).unwrap()[0].open().unwrap();
    let region = |pd: ProtectionDomain| {
        let mapping = crate::Mapping::new(4096).unwrap();
        pd.register_shared(mapping, SharedRegionConfig::default()).unwrap()
    };
    assert_ne!(advised(&region(context.alloc_pd().unwrap())), 0);
    if context.attr().unwrap().odp.supported {
        assert_eq!(advised(&region(context.alloc_pd_on_demand().unwrap())), 0);
    } else {
        let refused = context.alloc_pd_on_demand().err();
        assert!(matches!(refused, Some(RegisterError::NoOnDemandPaging { .. })));
    }
}

#[test]
fn a_span_is_split_at_the_words() {
    assert_eq!(words_of(0, 16), (0..0, 0..16, 16..16));
    assert_eq!(words_of(3, 16), (3..8, 8..16, 16..19));
    assert_eq!(words_of(3, 2), (3..5, 5..5, 5..5));
    assert_eq!(words_of(7, 0), (7..7, 7..7, 7..7));
}

#[test]
fn paging_must_cover_what_peers_may_do() {
    let odp = OdpCaps { supported: true, read: true, ..OdpCaps::default() };
    let read = RemoteAccess { read: true, ..RemoteAccess::NONE };
    assert_eq!(missing_paging(odp, read), None);
    assert_eq!(missing_paging(odp, RemoteAccess::ALL), Some("writes"));
    assert_eq!(missing_paging(OdpCaps::default(), read), Some("anything"));
}
