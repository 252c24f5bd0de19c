//! Sends and receives, as programs use them.

mod common;

use common::*;
use verbs_sys::*;

#[test]
fn a_message_arrives_whole_and_both_ends_complete() {
    let mut p = QpPair::new();
    p.buf[0][..16].copy_from_slice(b"a message of 16!");
    assert_eq!(post_recv(p.qp[1], 11, &mut [sge(p.mr[1], 64, 100)]), 0);
    let mut sges = [sge(p.mr[0], 0, 16)];
    let mut wr = send_wr(22, ibv_wr_opcode::IBV_WR_SEND, &mut sges, SIGNALED);
    assert_eq!(post_send(p.qp[0], &mut wr), 0);
    let sent = p.net.poll(p.cq[0], 1)[0];
    let received = p.net.poll(p.cq[1], 1)[0];
    assert_eq!((sent.id, sent.status, sent.opcode, sent.qp), (22, "SUCCESS", "SEND", p.num(0)));
    assert_eq!((received.id, received.status, received.opcode), (11, "SUCCESS", "RECV"));
    assert_eq!((received.len, received.imm, received.qp), (16, None, p.num(1)));
    assert_eq!(&p.buf[1][64..80], b"a message of 16!");
    assert_eq!(&p.buf[1][80..100], &[0; 20]);
    p.close();
}

#[test]
fn an_immediate_alone_needs_no_buffer() {
    let p = QpPair::new();
    assert_eq!(post_recv(p.qp[1], 1, &mut []), 0);
    let mut wr = send_wr(2, ibv_wr_opcode::IBV_WR_SEND_WITH_IMM, &mut [], SIGNALED);
    wr.__bindgen_anon_1.imm_data = 0x1234_5678_u32.to_be();
    assert_eq!(post_send(p.qp[0], &mut wr), 0);
    let received = p.net.poll(p.cq[1], 1)[0];
    assert_eq!((received.len, received.imm), (0, Some(0x1234_5678)));
    assert_eq!(p.net.poll(p.cq[0], 1)[0].status, "SUCCESS");
    p.close();
}

#[test]
fn lists_are_gathered_and_scattered() {
    let mut p = QpPair::new();
    for (i, byte) in p.buf[0].iter_mut().enumerate() {
        *byte = i as u8;
    }
    let mut to = [sge(p.mr[1], 0, 5), sge(p.mr[1], 100, 0), sge(p.mr[1], 200, 30)];
    assert_eq!(post_recv(p.qp[1], 1, &mut to), 0);
    let mut from = [sge(p.mr[0], 10, 3), sge(p.mr[0], 20, 9), sge(p.mr[0], 40, 8)];
    let mut wr = send_wr(2, ibv_wr_opcode::IBV_WR_SEND, &mut from, SIGNALED);
    assert_eq!(post_send(p.qp[0], &mut wr), 0);
    assert_eq!(p.net.poll(p.cq[1], 1)[0].len, 20);
    let sent: Vec<u8> = (10..13).chain(20..29).chain(40..48).collect();
    assert_eq!(p.buf[1][..5], sent[..5]);
    assert_eq!(p.buf[1][200..215], sent[5..]);
    assert_eq!(p.net.poll(p.cq[0], 1)[0].status, "SUCCESS");
    p.close();
}

#[test]
fn inline_data_may_change_after_the_post() {
    // The responder is not ready at first: the request waits, with its data.
    let forgiving = ConnectConfig::PATIENT;
    let p = QpPair::with(Net::new(), forgiving, forgiving);
    let mut data = *b"inline";
    let mut sges = [ibv_sge { addr: data.as_mut_ptr() as u64, length: 6, lkey: 0xdead_beef }];
    let flags = SIGNALED | ibv_send_flags::IBV_SEND_INLINE;
    let mut wr = send_wr(2, ibv_wr_opcode::IBV_WR_SEND, &mut sges, flags);
    assert_eq!(post_send(p.qp[0], &mut wr), 0);
    data.fill(b'x');
    assert_eq!(post_recv(p.qp[1], 1, &mut [sge(p.mr[1], 0, 64)]), 0);
    assert_eq!(p.net.poll(p.cq[1], 1)[0].len, 6);
    assert_eq!(&p.buf[1][..6], b"inline");
    assert_eq!(p.net.poll(p.cq[0], 1)[0].status, "SUCCESS");
    assert_eq!(&data, b"xxxxxx");
    p.close();
}

#[test]
fn messages_stay_in_order_across_a_receiver_that_is_late() {
    let forgiving = ConnectConfig::PATIENT;
    let mut p = QpPair::with(Net::new(), forgiving, forgiving);
    for i in 0..40_u8 {
        p.buf[0][usize::from(i)] = i;
        let mut sges = [sge(p.mr[0], usize::from(i), 1)];
        let flags = if i % 8 == 7 { SIGNALED } else { UNSIGNALED };
        let mut wr = send_wr(u64::from(i), ibv_wr_opcode::IBV_WR_SEND, &mut sges, flags);
        assert_eq!(post_send(p.qp[0], &mut wr), 0);
    }
    for i in 0..40 {
        assert_eq!(post_recv(p.qp[1], i as u64, &mut [sge(p.mr[1], i, 1)]), 0);
    }
    let received: Vec<u64> = p.net.poll(p.cq[1], 40).iter().map(|wc| wc.id).collect();
    assert_eq!(received, (0..40).collect::<Vec<u64>>());
    let sent: Vec<u64> = p.net.poll(p.cq[0], 5).iter().map(|wc| wc.id).collect();
    assert_eq!(sent, [7, 15, 23, 31, 39]);
    assert_eq!(p.buf[1][..40], p.buf[0][..40]);
    p.close();
}
