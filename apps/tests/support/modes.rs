//! Every mode of the connections between processes.

/// The arguments of the ends.
#[derive(Debug)]
pub struct Mode {
    pub command: &'static str,
    /// Arguments of both ends.
    pub protocol: &'static [&'static str],
    /// More arguments, of the listening end only.
    pub listening: &'static [&'static str],
    pub connecting: &'static [&'static str],
    /// Processes that connect, with the same arguments.
    pub processes: usize,
    /// Senders of each of them.
    pub senders: u64,
    /// Fields that both ends' results have for it, as JSON.
    pub says: &'static [(&'static str, &'static str)],
}

const BENCH: Mode = Mode {
    command: "bench",
    protocol: &[],
    listening: &[],
    connecting: &[],
    processes: 1,
    senders: 1,
    says: &[],
};
const PINGPONG: Mode = Mode { command: "pingpong", ..BENCH };

/// `bench` of one process.
const fn bench(
    connecting: &'static [&'static str],
    senders: u64,
    says: &'static [(&'static str, &'static str)],
) -> Mode {
    Mode { connecting, senders, says, ..BENCH }
}

const READ: &[&str] = &["--protocol", "buffered-read"];

/// `bench` over Buffered Read.
const fn read(
    connecting: &'static [&'static str],
    senders: u64,
    says: &'static [(&'static str, &'static str)],
) -> Mode {
    Mode { protocol: READ, ..bench(connecting, senders, says) }
}

const WRITE: &[&str] = &["--protocol", "buffered-write"];

/// `bench` over Buffered Write.
const fn write(
    connecting: &'static [&'static str],
    senders: u64,
    says: &'static [(&'static str, &'static str)],
) -> Mode {
    Mode { protocol: WRITE, ..bench(connecting, senders, says) }
}

const SHARED: &[&str] = &["--protocol", "shared-write"];

/// `bench` over Shared Write.
const fn shared(
    connecting: &'static [&'static str],
    senders: u64,
    says: &'static [(&'static str, &'static str)],
) -> Mode {
    Mode { protocol: SHARED, ..bench(connecting, senders, says) }
}

/// `bench` of three processes that send to one.
const fn gathered(listening: &'static [&'static str], connecting: &'static [&'static str]) -> Mode {
    Mode { listening, connecting, processes: 3, ..BENCH }
}

const fn pingpong(listening: &'static [&'static str], connecting: &'static [&'static str]) -> Mode {
    Mode { listening, connecting, ..PINGPONG }
}

/// Those with flow control.
pub const MODES: &[Mode] = &[
    bench(&["--preset", "sequential"], 1, &[("unacked", "1"), ("batch", "1")]),
    bench(&["--preset", "unbatched"], 1, &[("unacked", "64"), ("batch", "1")]),
    bench(&["--preset", "batched"], 1, &[("unacked", "256"), ("batch", "8")]),
    bench(&["--pack", "512"], 1, &[("pack_bytes", "512")]),
    bench(&["--recv-depth", "2", "--unacked", "2", "--batch", "1"], 1, &[("recv_depth", "2")]),
    bench(&["--wait", "spin", "--inline", "0"], 1, &[]),
    bench(&["--no-verify"], 1, &[("verified", "false")]),
    Mode { listening: &["--wait", "block"], ..bench(&["--wait", "block"], 1, &[]) },
    bench(&["--senders", "3"], 3, &[("senders", "3"), ("threads", "1")]),
    bench(&["--senders", "3", "--single-receiver"], 3, &[("single_receiver", "true")]),
    bench(&["--threads", "2"], 2, &[("threads", "2")]),
    bench(&["--srq", "lock", "--threads", "2"], 2, &[("srq", "\"lock\"")]),
    bench(&["--srq", "thread", "--senders", "2"], 2, &[("srq", "\"thread\"")]),
    bench(
        &["--srq", "combining", "--senders", "2", "--single-receiver"],
        2,
        &[("srq", "\"combining\""), ("single_receiver", "true")],
    ),
    read(&[], 1, &[("prefetch", "true")]),
    read(&["--reads", "1", "--no-prefetch"], 1, &[("reads", "1"), ("prefetch", "false")]),
    read(&["--ring-bytes", "4096", "--max-read-bytes", "512"], 1, &[("ring_bytes", "4096")]),
    read(&["--head-threshold", "8", "--wait", "spin"], 1, &[("head_threshold", "8")]),
    read(&["--no-verify"], 1, &[("verified", "false")]),
    read(&["--senders", "3"], 3, &[("senders", "3"), ("threads", "1")]),
    read(&["--senders", "3", "--single-receiver"], 3, &[("single_receiver", "true")]),
    read(&["--threads", "2"], 2, &[("threads", "2")]),
    Mode { protocol: READ, ..gathered(&["--senders", "3", "--wait", "block"], &[]) },
    Mode { protocol: READ, ..pingpong(&[], &[]) },
    Mode { protocol: READ, ..pingpong(&["--wait", "block"], &["--wait", "block"]) },
    Mode { protocol: READ, ..pingpong(&["--wait", "spin"], &["--wait", "spin"]) },
    write(&[], 1, &[("tail", "\"immediate\"")]),
    write(&["--tail", "written"], 1, &[("tail", "\"written\"")]),
    write(&["--batch-bytes", "0", "--inline", "0"], 1, &[("batch_bytes", "0")]),
    write(&["--ring-bytes", "4096", "--recv-depth", "2"], 1, &[("ring_bytes", "4096")]),
    write(&["--head-threshold", "8", "--wait", "spin"], 1, &[("head_threshold", "8")]),
    write(&["--no-verify"], 1, &[("verified", "false")]),
    write(&["--senders", "3"], 3, &[("senders", "3"), ("threads", "1")]),
    write(&["--senders", "3", "--single-receiver"], 3, &[("single_receiver", "true")]),
    write(&["--senders", "2", "--single-receiver", "--tail", "written"], 2, &[]),
    write(&["--threads", "2"], 2, &[("threads", "2")]),
    Mode { protocol: WRITE, ..gathered(&["--senders", "3", "--wait", "block"], &[]) },
    Mode { protocol: WRITE, ..pingpong(&[], &[]) },
    Mode { protocol: WRITE, ..pingpong(&["--wait", "block"], &["--wait", "block"]) },
    Mode { protocol: WRITE, ..pingpong(&["--wait", "spin"], &["--wait", "spin"]) },
    shared(&[], 1, &[("extents", "256"), ("single_receiver", "false")]),
    shared(&["--extents", "2", "--extent-bytes", "1024"], 1, &[("extent_bytes", "1024")]),
    shared(&["--senders", "3"], 3, &[("single_receiver", "true"), ("threads", "1")]),
    shared(&["--senders", "3", "--extents", "6", "--inline", "0"], 3, &[("extents", "6")]),
    shared(&["--threads", "2"], 2, &[("single_receiver", "false"), ("threads", "2")]),
    Mode { protocol: SHARED, ..gathered(&["--senders", "3", "--wait", "block"], &[]) },
    Mode { protocol: SHARED, ..pingpong(&[], &[]) },
    Mode { protocol: SHARED, ..pingpong(&["--wait", "spin"], &["--wait", "spin"]) },
    gathered(&["--senders", "3"], &[]),
    gathered(&["--threads", "3"], &[]),
    gathered(&["--senders", "3", "--single-receiver", "--wait", "block"], &["--wait", "block"]),
    gathered(&["--senders", "3", "--single-receiver"], &["--srq", "thread"]),
    pingpong(&[], &[]),
    pingpong(&[], &["--preset", "batched"]),
    pingpong(&[], &["--pack", "64"]),
    pingpong(&["--wait", "block"], &["--wait", "block"]),
    pingpong(&["--wait", "spin"], &["--wait", "spin", "--no-verify"]),
];

/// Those without flow control: what is sent has to be little, or to be sent slowly.
pub const UNCONTROLLED: &[Mode] = &[
    bench(
        &["--no-credits", "--preset", "unbatched", "--rate", "100"],
        1,
        &[("credits", "false"), ("rate_per_sender", "100.0")],
    ),
    pingpong(&[], &["--no-credits"]),
];

impl Mode {
    /// The arguments of the listening end, with these besides.
    pub fn listener<'a>(&self, more: &[&'a str]) -> Vec<&'a str> {
        [&[self.command], self.protocol, self.listening, more].concat()
    }

    /// The arguments of a connecting end.
    pub fn connector<'a>(&self, address: &'a str, more: &[&'a str]) -> Vec<&'a str> {
        [&[self.command, "--connect", address], self.protocol, self.connecting, more].concat()
    }

    /// Reports whether a receiver that is slow costs the sender nothing but time.
    pub fn has_credits(&self) -> bool {
        !self.connecting.contains(&"--no-credits")
    }
}
