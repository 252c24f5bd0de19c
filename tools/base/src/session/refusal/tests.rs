use super::*;

fn said(theirs: ProtocolId, ours: ProtocolId) -> String {
    HandshakeError::OtherProtocol { theirs: theirs.0, ours: ours.0 }.to_string()
}

#[test]
fn each_end_reads_what_it_has_and_what_the_other_has() {
    let why = said(ProtocolId::BUFFERED_READ, ProtocolId::SEND_RECV);
    assert_eq!(
        read_by(SessionEnd::Connecting, &why),
        "this end has the command pipe or --protocol buffered-read, the listening end the \
             command bench, pingpong or --protocol send-recv: run the same command at both ends, \
             with the same --protocol"
    );
    assert_eq!(
        read_by(SessionEnd::Listening, &why),
        "the connecting end has the command pipe or --protocol buffered-read, this end the \
             command bench, pingpong or --protocol send-recv: run the same command at both ends, \
             with the same --protocol"
    );
    let why = differs("--size", "16", "64", "give both ends the same");
    let says = "this end has --size 16, the listening end 64: give both ends the same";
    assert_eq!(read_by(SessionEnd::Connecting, &why), says);
}

#[test]
fn every_pair_of_protocols_has_words_and_a_remedy() {
    for theirs in PROTOCOLS {
        for ours in PROTOCOLS.into_iter().filter(|ours| *ours != theirs) {
            let says = read_by(SessionEnd::Connecting, &said(theirs, ours));
            assert!(says.starts_with("this end has "), "{says}");
            assert!(says.contains(" both ends"), "{says}");
            assert!(!says.contains("it wants"), "{says}");
        }
    }
    let unknown = said(ProtocolId(9), ProtocolId::RAW);
    assert!(read_by(SessionEnd::Listening, &unknown).contains("protocol 9"));
}
