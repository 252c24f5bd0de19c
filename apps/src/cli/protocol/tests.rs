use super::*;

#[test]
fn names_and_numbers_are_each_ones_own() {
    for (at, one) in ProtocolKind::ALL.iter().enumerate() {
        assert_eq!(ProtocolKind::named(one.name()), Some(*one));
        let others = &ProtocolKind::ALL[at + 1..];
        assert!(others.iter().all(|other| other.number() != one.number()), "{one:?}");
    }
    assert_eq!(ProtocolKind::named("telepathy"), None);
}

#[test]
fn a_flag_of_another_connection_is_refused_with_that_ones_name() {
    ProtocolKind::SendRecv.check_flags(&["--unacked", "--srq"]).unwrap();
    let says = ProtocolKind::SendRecv.check_flags(&["--telepathy"]).unwrap_err().to_string();
    assert_eq!(says, "--telepathy means nothing to send-recv: leave it out");
}

#[test]
fn a_verb_is_no_connection() {
    assert_eq!(protocol("send-recv"), Ok(ProtocolKind::SendRecv));
    assert!(protocol("write").unwrap_err().contains("--op write"));
    assert!(protocol("telepathy").unwrap_err().contains("send-recv"));
}

#[test]
fn refusals_name_connections_as_the_command_line_does() {
    let ours = ProtocolKind::ALL.map(|protocol| (protocol.number(), protocol.name()));
    assert_eq!(ours, base::session::CONNECTIONS);
}
