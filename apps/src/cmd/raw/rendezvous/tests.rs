use super::*;

fn rendezvous(language: Language) -> (ClientListener, SocketAddr) {
    let tcp = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = tcp.local_addr().unwrap();
    (ClientListener::new(tcp, language).unwrap(), address)
}

fn dial(address: SocketAddr, says: &[u8]) -> TcpStream {
    let mut stream = TcpStream::connect(address).unwrap();
    stream.write_all(says).unwrap();
    stream
}

#[test]
fn a_whole_beginning_is_served_before_silence_or_half_of_one() {
    let (mut rendezvous, address) = rendezvous(Language::RcPingpong);
    let whole = b"0000:000011:7c5a01:00000000000000000000ffff0a090001\0";
    let _silent = dial(address, b"");
    let mut slow = dial(address, &whole[..20]);
    let told = dial(address, whole);
    assert_eq!(rendezvous.next().unwrap().1, told.local_addr().unwrap());
    let gone = dial(address, b"");
    let left = gone.local_addr().unwrap();
    drop(gone);
    assert_eq!(rendezvous.next().unwrap().1, left);
    slow.write_all(&whole[20..]).unwrap();
    let (mut stream, from) = rendezvous.next().unwrap();
    assert_eq!(from, slow.local_addr().unwrap());
    let mut said = [0; rc_pingpong::MESSAGE_LEN];
    std::io::Read::read_exact(&mut stream, &mut said).unwrap();
    assert_eq!(said, *whole, "nothing was taken from it");
    assert_eq!(rendezvous.pending.len(), 1);
}

#[test]
fn the_oldest_connection_is_refused_for_one_too_many() {
    let (mut rendezvous, address) = rendezvous(Language::Handshake);
    let silent: Vec<_> = (0..=PLACES).map(|_| dial(address, b"")).collect();
    let junk = dial(address, b"GET / HTTP/1.1\r\n\r\n");
    assert_eq!(rendezvous.next().unwrap().1, junk.local_addr().unwrap());
    assert_eq!(rendezvous.pending.len(), PLACES);
    let mut told = Vec::new();
    std::io::Read::read_to_end(&mut &silent[0], &mut told).unwrap();
    assert!(matches!(decode(&told).unwrap().frame, Frame::Refuse(_)));
}

#[test]
fn a_connection_whose_time_is_over_gets_a_refusal() {
    let (mut rendezvous, address) = rendezvous(Language::Handshake);
    let silent = dial(address, b"");
    while rendezvous.pending.is_empty() {
        rendezvous.let_in().unwrap();
    }
    let now = Instant::now();
    rendezvous.see_off(now);
    assert_eq!(rendezvous.pending.len(), 1);
    rendezvous.see_off(now + HELLO_LIMIT);
    assert!(rendezvous.pending.is_empty());
    let mut told = Vec::new();
    std::io::Read::read_to_end(&mut &silent, &mut told).unwrap();
    assert!(matches!(decode(&told).unwrap().frame, Frame::Refuse(_)));
}
