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
}

/// A subject that a header may name.
#[derive(Debug)]
pub(super) struct TestSubject {
    pub(super) name: &'static str,
    /// Lanes that have it in the gate, beside those that programs ask for; a full run has it in all.
    pub(super) gate: &'static [&'static str],
    /// Reason why the others go without it.
    pub(super) reason: &'static str,
}

const fn once(name: &'static str, reason: &'static str) -> TestSubject {
    TestSubject { name, gate: &["soft0"], reason }
}

const IN_WORLDS: &str = "worlds show it on each device";
const ON_SOFT0: &str = "it needs no other device than soft0";

/// All of them.
pub(super) const SUBJECTS: &[TestSubject] = &[
    once("one protocol", IN_WORLDS),
    once("waits", IN_WORLDS),
    once("closing", IN_WORLDS),
    once("death", IN_WORLDS),
    // No world has one. On soft0 a request is done in its post, and apart it is not.
    TestSubject {
        name: "hostile peers",
        gate: &["soft0", "apart"],
        reason: "the same code checks the values of a peer on each device",
    },
    once("load", ON_SOFT0),
    once("the command", ON_SOFT0),
    once("examples", ON_SOFT0),
];

/// All of them.
pub(crate) const LANES: &[Lane] = &[
    Lane {
        name: "soft0",
        about: "plain `cargo test`",
        device: "soft0",
        environment: &[],
        is_opt_in: false,
    },
    Lane {
        name: "apart",
        about: "requests of a process to itself take the way to another one",
        device: "soft0",
        environment: &[("SOFT_RNIC_APART", "1")],
        is_opt_in: false,
    },
    Lane {
        name: "distant",
        about: "a network's round trip away: nothing is done when its post returns",
        device: "soft0@5us",
        environment: &[("RDMA_CONN_DEVICE", "soft0@5us")],
        is_opt_in: false,
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
    },
    Lane {
        name: "roce",
        about: "a device over UDP, whose processes reach each other through memory",
        device: "roce:127.0.0.2",
        environment: &[("RDMA_CONN_DEVICE", "roce:127.0.0.2")],
        is_opt_in: true,
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
};
