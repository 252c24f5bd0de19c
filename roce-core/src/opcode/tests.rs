use super::*;

#[test]
fn a_packet_has_one_place_in_its_message_and_one_purpose() {
    for opcode in ALL {
        let count = |flags: u32| (FLAGS[usize::from(opcode.to_u8())] & flags).count_ones();
        assert_eq!(count(FIRST | MIDDLE | LAST | ONLY), 1, "{opcode}");
        assert!(count(REQUEST) <= 1, "{opcode}");
        assert!(!(opcode.is_request() && opcode.is_response()), "{opcode}");
        let is_neither = !opcode.is_request() && !opcode.is_response();
        assert_eq!(is_neither, *opcode == Opcode::Cnp);
        assert_eq!(opcode.transport().is_none(), *opcode == Opcode::Cnp);
    }
}

/// The names of the enum say the same as the flags.
#[test]
fn names_and_flags_agree() {
    for &opcode in ALL {
        let name = std::format!("{opcode:?}");
        let named = |part: &str| name.contains(part);
        assert_eq!(opcode.is_first(), named("First"), "{name}");
        assert_eq!(opcode.is_middle(), named("Middle"), "{name}");
        assert_eq!(opcode.is_last(), named("Last"), "{name}");
        assert_eq!(opcode.is_send(), named("Send"), "{name}");
        assert_eq!(opcode.is_write(), named("Write") && !named("Atomic"), "{name}");
        assert_eq!(opcode.is_read_response(), named("ReadResponse"), "{name}");
        assert_eq!(opcode.is_read_request(), named("ReadRequest"), "{name}");
        assert_eq!(opcode.is_atomic(), named("CmpSwap") || named("FetchAdd"), "{name}");
        assert_eq!(opcode.is_atomic_write(), named("AtomicWrite"), "{name}");
        assert_eq!(opcode.has_imm(), named("Imm"), "{name}");
        assert_eq!(opcode.has_ieth(), named("Inv"), "{name}");
        assert_eq!(opcode.starts_message(), !named("Middle") && !named("Last"), "{name}");
        assert_eq!(opcode.ends_message(), !named("Middle") && !named("First"), "{name}");
        let transport = match &name[..2] {
            "Rc" => Some(Transport::Rc),
            "Uc" => Some(Transport::Uc),
            "Ud" => Some(Transport::Ud),
            _ => None,
        };
        assert_eq!(opcode.transport(), transport, "{name}");
    }
}
