use host::world::{self, Limits, Nature};

use super::*;

/// In a world, where a card's time is virtual and the same each time.
#[test]
fn a_cards_parameters_are_found_again() {
    let program = || {
        let card = soft_rnic::WorldDevice::new(soft_rnic::WorldKind::Card);
        let open = || rdma_conn::device::open(Some(card.name())).unwrap();
        measure(&open(), &open(), 3, true).unwrap()
    };
    let nature = Nature { own_processors: true, ..Nature::default() };
    let limits = Limits { steps: 50_000_000, ..Limits::default() };
    let (_, found) = world::run(1, nature, limits, program);
    let found = found.unwrap();
    // One thread posts and polls for all queue pairs, which takes as long as the card.
    assert!((18.0..30.0).contains(&found.o_nic_ns), "{found:?}");
    for (name, found, card) in [
        ("o_snd", found.o_snd_ns, 120.0),
        ("o_snd, batched", found.o_snd_batched_ns, 16.0),
        ("o_rcv", found.o_rcv_ns, 52.0),
        ("o_rcv, batched", found.o_rcv_batched_ns, 17.0),
        ("o_small", found.o_small_ns, 23.0),
        ("o_post", found.o_post_ns, 16.0),
        ("o_post, batched", found.o_post_batched_ns, 7.0),
        ("o_queue", found.o_queue_ns, 71.4),
        ("o_srq", found.o_srq_ns, 500.0),
        ("g", found.g_ns, 3400.0),
        ("g_read", found.g_read_ns, 3880.0),
        ("L", found.l_ns, 1940.0),
        ("G", found.gap_per_byte_ns, 0.084),
        ("G, alone", found.gap_per_byte_alone_ns, 0.084),
        ("reads", found.reads, 16.0),
    ] {
        // Looks at the clock take 2 ns.
        let is_near = (found - card).abs() < 0.1 * card + 2.1;
        assert!(is_near, "{name}: {found}, of the card {card}");
    }
}
