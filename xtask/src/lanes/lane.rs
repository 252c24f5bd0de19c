//! The lanes.

/// A device, and how tests get it.
pub(crate) struct Lane {
    pub(crate) name: &'static str,
    /// A reader's name for it.
    pub(super) about: &'static str,
    /// The name that a test which takes the device of its environment reports.
    pub(super) device: &'static str,
    pub(super) environment: &'static [(&'static str, &'static str)],
    /// Only programs that ask for it are in it.
    pub(super) is_opt_in: bool,
    /// Subjects that the gate leaves to other lanes.
    pub(super) not_in_gate: &'static [&'static str],
}

/// Subjects that a header may name: worlds show them for each device, or they need no other device than soft0. The
/// gate leaves them out of other lanes, and a full run has them in each.
pub(super) const SHOWN_BY_WORLDS: &[&str] = &[
    "one protocol",
    "waits",
    "closing",
    "death",
    "hostile peers",
    "load",
    "the command",
    "examples",
];

/// All of them.
pub(crate) const LANES: &[Lane] = &[
    Lane {
        name: "soft0",
        about: "plain `cargo test`",
        device: "soft0",
        environment: &[],
        is_opt_in: false,
        not_in_gate: &[],
    },
    Lane {
        name: "apart",
        about: "requests of a process to itself take the way to another one",
        device: "soft0",
        environment: &[("SOFT_RNIC_APART", "1")],
        is_opt_in: false,
        not_in_gate: SHOWN_BY_WORLDS,
    },
    Lane {
        name: "distant",
        about: "a network's round trip away: nothing is done when its post returns",
        device: "soft0@5us",
        environment: &[("RDMA_CONN_DEVICE", "soft0@5us")],
        is_opt_in: false,
        not_in_gate: SHOWN_BY_WORLDS,
    },
    Lane {
        name: "wired",
        about: "over UDP, to the same device, or to another where a test has two",
        device: "roce:127.0.0.2",
        environment: &[
            ("RDMA_CONN_DEVICE", "roce:127.0.0.2,loopback=wire"),
            ("RDMA_CONN_OTHER_DEVICE", "roce:127.0.0.3"),
        ],
        is_opt_in: false,
        not_in_gate: SHOWN_BY_WORLDS,
    },
    Lane {
        name: "roce",
        about: "a device over UDP, whose processes reach each other through memory",
        device: "roce:127.0.0.2",
        environment: &[("RDMA_CONN_DEVICE", "roce:127.0.0.2")],
        is_opt_in: true,
        not_in_gate: &[],
    },
    RXE0,
];

/// The kernel's device: the gate keeps what only a kernel and rdma-core can show.
pub(crate) const RXE0: Lane = Lane {
    name: "rxe0",
    about: "the kernel's device, in the virtual machine (`cargo xtask vm test`)",
    device: "rxe0",
    environment: &[("RDMA_CONN_DEVICE", "rxe0")],
    is_opt_in: false,
    not_in_gate: SHOWN_BY_WORLDS,
};
