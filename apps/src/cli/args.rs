//! The command line as a whole.

use base::outcome::{CommandError, usage};
use clap::{Parser, Subcommand};
use copy::CopyArgs;
use figures::FiguresArgs;
use soft::{DoctorArgs, RocedArgs, SoftArgs, TraceArgs};
use tracing_subscriber::filter::{LevelFilter, Targets};

use super::{BenchArgs, CommonArgs, MulticastArgs, PingpongArgs, PipeArgs};

/// The variable that asks for a log, as of all programs with `tracing`.
const RUST_LOG: &str = "RUST_LOG";

/// Messages over RDMA: over a card where there is one, over the embedded software
/// device soft0 everywhere else.
#[derive(Parser, Debug, Clone)]
#[command(
    name = "rdma-conn",
    version = rdma_conn::build::VERSION,
    long_version = long_version(),
    after_help = "To install it: `cargo install --locked --path apps` in the repository, which takes 5 \
                  to 7 minutes on 2 cores.\n\
                  Start with `rdma-conn bench`: it needs no card and no set-up.\n\
                  BYTES may have a suffix: 64k, 1M and 1G are 65536, 1048576 and 1073741824.\n\
                  Of bench, pingpong and multicast every flag with a number may have a list: --unacked 1,2,4..256 \
                  continues by doubling, --size 16..1M*4 by 4 times, --batch 0..32+8 by adding 8.\n\
                  A table that is wider than the terminal, or than COLUMNS says of anything else, is printed in \
                  parts.\n\
                  Exit status: 0 done, 1 failed, 2 the command line asks for something that cannot be, 128 and \
                  the number of a signal that has ended it (130 for Ctrl-C)."
)]
pub(crate) struct Args {
    #[command(flatten)]
    pub(crate) common: CommonArgs,
    #[command(subcommand)]
    pub(crate) command: Command,
}

fn long_version() -> &'static str {
    static LINE: host::sync::OnceLock<String> = host::sync::OnceLock::new();
    LINE.get_or_init(rdma_conn::build::summary)
}

impl Args {
    /// The log that was asked for, by `-v` or else by `RUST_LOG`.
    ///
    /// # Errors
    /// `RUST_LOG` says something else.
    pub(crate) fn log_filter(&self) -> Result<Targets, CommandError> {
        let level = match self.common.verbose {
            0 => LevelFilter::WARN,
            1 => LevelFilter::INFO,
            2 => LevelFilter::DEBUG,
            _ => LevelFilter::TRACE,
        };
        let asked = std::env::var(RUST_LOG).unwrap_or_default();
        if self.common.verbose > 0 || asked.is_empty() {
            return Ok(Targets::new().with_default(level));
        }
        asked.parse().map_err(|_| {
            usage(format!(
                "{RUST_LOG}={asked}: it is a level (error, warn, info, debug, trace, off), or crates with levels \
                 (rdma_conn=debug,warn)"
            ))
        })
    }
}

#[derive(Subcommand, Debug, Clone)]
pub(crate) enum Command {
    /// List the devices, those on the network that could be named, and what keeps others from being used
    #[command(
        after_help = "roce:ADDRESS is a software device that speaks RoCE v2 over UDP port 4791 of an address \
        of this machine, without a card, a kernel module or root; at the other end is another one, or the \
        kernel's soft-RoCE. Each address is listed with its interface, the interface's MTU and the path \
        MTU that it permits (over IPv4 4096 from an MTU of 4168 on, 1024 at 1500), and what has the port. No \
        device is opened for that. Packets carry a checksum of their addresses: there must be no address \
        translation between the ends.\n\n\
        Options follow the address, each after a comma: roce:10.0.0.1,loss=0.01,seed=7; docs/roce.md has \
        all of them.\n\n\
        Examples:\n  \
        rdma-conn devices\n  \
        rdma-conn devices --device roce:eth0   # opens it, and shows its limits\n  \
        rdma-conn bench --device roce --listen 10.0.0.1    # and at 10.0.0.2: rdma-conn bench --device roce --connect 10.0.0.1"
    )]
    Devices,
    /// Test what a device on the network needs: here, and on the path to a peer
    #[command(
        after_help = "Each line has a test, its result, and what to do. Without --connect: the address, UDP port 4791 and what has \
        it, the MTU and the path MTU that it permits, the buffers that the kernel grants sockets, and \
        offloads. With --connect PEER, where `rdma-conn doctor --device roce:PEER --listen` runs, also: whether the peer \
        answers, whether addresses are translated on the way (the peer reports the source addresses, and \
        whether their checksum fitted), the round trip of short packets, the longest packets that pass \
        unfragmented, the loss of 1,000 packets, and messages of a reliable connection between both devices. \
        The tests with PEER need UDP port 4791 only, and no other program on it.\n\n\
        Exit status: 1 if a test has failed. A warning is no failure.\n\n\
        Examples:\n  \
        rdma-conn doctor --device roce:eth0\n  \
        rdma-conn doctor --device roce:10.0.0.2 --listen                # one machine\n  \
        rdma-conn doctor --device roce:10.0.0.1 --connect 10.0.0.2      # the other"
    )]
    Doctor(DoctorArgs),
    /// Measure latency: half of a round trip, over message sizes
    #[command(
        allow_negative_numbers = true,
        after_help = "Latency is half of a round trip; of --op read, the whole operation. With \
        --unacked N, N round trips are under way at a time, and the messages per second are of \
        interest, too.\n\n\
        --op write polls the first and the last byte of a message, and resets them: that takes a \
        device which delivers the bytes of a write in order, or --assume-in-order. --op write-imm \
        does not: its immediate carries the length.\n\n\
        With --transport uc or ud a message without an answer in --answer-timeout is lost; lost, \
        reordered (overtaken) and late (or repeated) ones are counted by their numbers.\n\n\
        Examples:\n  \
        rdma-conn pingpong --size 16,4096\n  \
        rdma-conn pingpong --op write --size 64\n  \
        rdma-conn pingpong --op send --srq --qps 8 --unacked 8\n  \
        rdma-conn pingpong --op send --srq-classes --size 64,8192\n  \
        rdma-conn pingpong --op send --transport ud --peers 3 --size 64 --iterations 2000 --faults loss=0.01,seed=7\n  \
        rdma-conn pingpong --compat ibv_rc_pingpong --listen 0.0.0.0   # ibv_rc_pingpong -g 1 HOST"
    )]
    Pingpong(PingpongArgs),
    /// Measure throughput; without arguments, a demonstration of about 20 s
    #[command(
        allow_negative_numbers = true,
        after_help = "The head of a column says in brackets which end counts or times its \
        figures: (sender), (receiver), or (both), which is both ends together. In one process, \
        messages/s (both) is what both ends have brought from one to the other, not the sum of \
        two rates: each message counts once.\n\n\
        Examples:\n  \
        rdma-conn bench\n  \
        rdma-conn bench --preset batched --size 16\n  \
        rdma-conn bench --unacked 1,2,4..256 --size 16 --csv unacked.csv\n  \
        rdma-conn bench --senders 4 --single-receiver --srq --size 512 --json\n  \
        rdma-conn bench --protocol buffered-read --size 16,4096 --json\n  \
        rdma-conn bench --listen 127.0.0.1    # and in another terminal: rdma-conn bench --connect 127.0.0.1\n  \
        rdma-conn bench --input FILE\n  \
        rdma-conn bench --no-credits --rate auto --size 512\n  \
        rdma-conn bench --op write --batch 8 --signal-every 32 --size 16\n  \
        rdma-conn bench --op send --transport ud --size 1024\n  \
        rdma-conn bench --op send --transport ud --peers 3 --messages 5000 --recv-depth 16384 --faults loss=0.01,seed=7"
    )]
    Bench(BenchArgs),
    /// Send a stream of bytes to another process: standard input of the end that connects,
    /// standard output of the end that listens
    #[command(
        allow_negative_numbers = true,
        after_help = "Both ends compare the checksum at the end. Whatever ends the stream \
        early (a signal, an end that vanishes, a reader that leaves) is a failure at both: exit \
        status 1, or 128 and the signal's number at the end that received the signal.\n\n\
        With --json the listening end prints its result on standard error: its standard output \
        is the stream.\n\n\
        Examples:\n  \
        rdma-conn pipe --listen 0.0.0.0:4711 > FILE\n  \
        rdma-conn pipe --connect HOST:4711 < FILE\n  \
        tar c DIRECTORY | rdma-conn pipe --connect HOST"
    )]
    Pipe(PipeArgs),
    /// Send small messages to all members of a group, in one order
    #[command(
        allow_negative_numbers = true,
        after_help = "A message is delivered when all members have received it. With \
        --push every:1, that takes (n-1)(n+2) RDMA operations; with every:K, messages share \
        them, and the last ones wait for the deadline.\n\n\
        Examples:\n  \
        rdma-conn multicast\n  \
        rdma-conn multicast --members 2,3,5,8 --push every:1,every:25,every:250,opportunistic,opportunistic-null\n  \
        rdma-conn multicast --senders 3 --slow 1000 --push opportunistic,opportunistic-null\n  \
        rdma-conn multicast --rate 1000 --push every:1,every:250,opportunistic   # latency of a lone message"
    )]
    Multicast(MulticastArgs),
    /// Replicate files and directories to one or many receivers
    #[command(
        after_help = "PATH arrives as DIR/basename, as with cp -r. Each receiver reads the pieces of a file out of \
        the sender's memory to a file of another name, compares checksums, and then gives the file \
        its own. With a card, pieces land in the file itself where it can be registered (on file \
        systems in memory; on disks if the card pages on demand), else in buffers that are \
        written out; the software device reads into buffers, which is faster with it, unless \
        --mapped asks for files. Each end says which, and the receiver why. Nothing that exists is \
        replaced without --force; identical files are kept. A signal \
        ends either end: what has arrived is kept, and the other end is notified; the same command \
        resumes the copy. Exit status 0: every receiver has everything; of one that listens, a \
        signal arrived while no copy was under way (with --once: the copy has arrived); 128 and \
        the number of a signal that arrived earlier; 1: something is missing.\n\n\
        Examples:\n  \
        rdma-conn copy --listen 0.0.0.0:18600 --into /data   # on each receiver\n  \
        rdma-conn copy --to node1:18600 --to node2:18600 shard-7"
    )]
    Copy(CopyArgs),
    /// Measure the parameters of the performance model: what the calls and the network of a device cost
    #[command(
        after_help = "The model is LogGP with the costs of processor and card apart; `figures --model` \
        has what it predicts. On soft0@card=connectx5 the parameters are the card's, which the device \
        was given.\n\n\
        Examples:\n  \
        rdma-conn calibrate\n  \
        rdma-conn calibrate --device soft0@card=connectx5 --json"
    )]
    Calibrate,
    /// Measure the figures of the papers on a device, and show them on one page
    #[command(
        after_help = "An experiment is a file that says what is run, over which values, and what is expected of the \
        results. The command has those of the figures in the papers. To make one of your own, print \
        one, change it, and name the file instead.\n\n\
        A report is a folder with report.json, report.csv and index.html, a page that needs no other \
        file. It is written after each round of a figure; Ctrl-C leaves what was measured, and --resume \
        continues it. What a device cannot do is noted in the figure, and the other figures are still measured.\n\n\
        Examples:\n  \
        rdma-conn figures --quick --out DIR\n  \
        rdma-conn figures send-recv-rate-by-unacked --device mlx5_0 --out DIR --check\n  \
        rdma-conn figures --list\n  \
        rdma-conn figures --print send-recv-latency-by-size > mine.toml\n  \
        rdma-conn figures --list mine.toml    # checks it\n  \
        rdma-conn figures --render REPORT --out DIR --check\n  \
        rdma-conn figures --compare REPORT OTHER-REPORT --out DIR"
    )]
    Figures(FiguresArgs),
    /// Run a program that uses libibverbs on the software device soft0, unmodified
    #[command(
        after_help = "The program finds soft0 in place of the kernel's devices: a library that has the \
        symbols of libibverbs.so.1 is preloaded (LD_PRELOAD), and programs that it starts get it, too. \
        Its processes reach each other, and rdma-conn on soft0, if they are of one user. Name GID 0 where \
        a program asks for one. Out of reach is what opens /dev/infiniband itself: librdmacm \
        (perftest's -R), UCX. Static and setuid programs are refused.\n\n\
        The library is librdma_conn_soft.so beside rdma-conn, or the file that RDMA_CONN_SOFT_LIB names; \
        `cargo build --release --package soft-rnic-abi` builds it. Exit status: the program's, but for --check=fail and \
        --check=strict.\n\n\
        With --trace each process that opens the device keeps in a file what it has posted and what \
        became of it. The file is FILE.PID, or what FILE makes of %p, and can be read at any time, also \
        when the process was killed: `rdma-conn trace FILE` says what a program that hangs waits for. A \
        traced program runs slower. A trace has at most 256 MiB, and takes up what is in use: some 800 KB, \
        and 48 bytes for each place of a send queue and 96 for each of a receive queue.\n\n\
        With --faults requests fail, drawn from the seed, the order in which a process has created its queue \
        pairs, and the number of the request, so that the same program fails the same way again: rnr=P \
        (the receiver is not ready; tried again up to rnr_retry times), retry=P (lost, of RC and XRC; \
        tried again up to retry_cnt times), loss=P (lost, of UC and UD), flush=P (the queue pair goes to \
        the error state), delay=P:TIME or delay=TIME (held back), each P a probability. event=NAME@TIME \
        raises an event that time after a context was opened: device_fatal, port_active, port_err, \
        lid_change, pkey_change, sm_change, client_reregister, gid_change. A seed that is not given is \
        drawn and printed.\n\n\
        Examples:\n  \
        rdma-conn soft -- ibv_devinfo -v\n  \
        rdma-conn soft -- ibv_rc_pingpong -g 0 &\n  \
        rdma-conn soft -- ibv_rc_pingpong -g 0 127.0.0.1\n  \
        rdma-conn soft -- ib_write_bw -F &\n  \
        rdma-conn soft -- ib_write_bw -F 127.0.0.1\n  \
        rdma-conn soft --trace /tmp/hangs -- ./program; rdma-conn trace /tmp/hangs\n  \
        rdma-conn soft --faults rnr=0.01,retry=0.001,seed=7 -- ./program\n  \
        rdma-conn soft --check=fail -- make test\n  \
        rdma-conn soft --faults event=port_err@500ms -- ibv_asyncwatch\n\n\
        docs/soft-device.md has the reasons, findings and faults, and what does not run."
    )]
    Soft(SoftArgs),
    /// Say what a traced program has posted and never seen complete, and why
    #[command(
        after_help = "The traces are those of `rdma-conn soft --trace FILE -- COMMAND`. A process may still run, \
        or have been killed. For each queue pair there is each work request that the program has not \
        seen complete, oldest first: its wr_id, its operation, its bytes, how long before the last event it \
        was posted, and what it waits for. Name the traces of both ends, and each \
        says in which state the other one is.\n\n\
        A FILE that is not there stands for all of FILE.PID, or for all numbers in place of %p.\n\n\
        Examples:\n  \
        rdma-conn soft --trace /tmp/hangs -- ibv_rc_pingpong -g 0 & \n  \
        rdma-conn trace /tmp/hangs\n  \
        rdma-conn trace --events 20 /tmp/hangs.4711    # what it has done last\n  \
        rdma-conn trace --json server.4711 client.4712\n\n\
        docs/soft-device.md has the reasons that are met most often."
    )]
    Trace(TraceArgs),
    /// Keep an address bound for programs of this user that have --device roce:ADDRESS
    #[command(
        after_help = "Programs share an address without roced, as long as one of them runs. roced keeps it bound while none \
        runs, so that no other user, and not the kernel's soft-RoCE, gets UDP port 4791. SIGINT, SIGTERM or \
        SIGHUP ends it, with status 0.\n\n\
        Examples:\n  \
        rdma-conn roced 10.0.0.1 &\n  \
        rdma-conn bench --device roce:10.0.0.1 --listen 10.0.0.1:7600\n\n\
        docs/roce.md has how processes share an address."
    )]
    Roced(RocedArgs),
    /// Print a completion script for a shell
    #[command(after_help = "Examples:\n  \
        rdma-conn completions bash > ~/.local/share/bash-completion/completions/rdma-conn\n  \
        rdma-conn completions zsh > _rdma-conn    # in a directory of $fpath\n  \
        rdma-conn completions fish > ~/.config/fish/completions/rdma-conn.fish")]
    Completions {
        /// Shell to write the script for
        #[arg(value_enum, value_name = "SHELL")]
        shell: clap_complete::Shell,
    },
}
