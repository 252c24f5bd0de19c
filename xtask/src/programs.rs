//! Verbs programs that are not written for it, on soft0: Debian's, unmodified.

use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result, ensure};

use crate::namespaces;
use crate::pair::{self, CommandPair};
use crate::process::{self, WatchedProgram};
use crate::side_by_side;

/// A program and the Debian package that has it.
const NEEDED: &[(&str, &str)] = &[
    ("/usr/bin/ibv_devinfo", "ibverbs-utils"),
    ("/usr/bin/ib_send_bw", "perftest"),
    ("/usr/lib/python3/dist-packages/pyverbs", "python3-pyverbs"),
];

/// Programs that end without a peer, their checks, and what they print. The first opens no device:
/// a check would fail.
const ALONE: &[(&str, &[&str], &[&str])] = &[
    ("ibv_devices", &[], &["soft0", "02005afffe000000"]),
    (
        "ibv_devinfo -v",
        CHECKED,
        &["hca_id:\tsoft0", "PORT_ACTIVE (4)", "::ffff:127.", ", RoCE v2", "ODP_SUPPORT_IMPLICIT"],
    ),
];

/// Domains, queues and regions of pyverbs, which links with the providers' libraries, too.
const PYTHON: &str = "
from pyverbs.device import Context
from pyverbs.pd import PD
from pyverbs.mr import MR
from pyverbs.cq import CQ
import pyverbs.enums as e
context = Context(name='soft0')
with PD(context) as pd, CQ(context, 16) as cq:
    with MR(pd, 4096, e.IBV_ACCESS_LOCAL_WRITE) as mr:
        print('key', mr.lkey != 0, 'GID', str(context.query_gid(1, 0))[:32])
";
const PYTHON_PRINTS: &str = "key True GID 0000:0000:0000:0000:0000:ffff:7f";

/// A second context, by a duplicate of the first one's descriptor, and objects by their handles.
const PYTHON_IMPORT: &str = "
import os
from pyverbs.device import Context
from pyverbs.pd import PD
from pyverbs.mr import MR
import pyverbs.enums as e
context = Context(name='soft0')
pd = PD(context)
mr = MR(pd, 4096, e.IBV_ACCESS_LOCAL_WRITE)
other = Context(cmd_fd=os.dup(context.cmd_fd))
pd_again = PD(other, handle=pd.handle)
mr_again = MR(pd_again, handle=mr.handle)
print('imported', mr_again.lkey == mr.lkey, mr_again.length)
mr_again.unimport()
pd_again.unimport()
";
const PYTHON_IMPORT_PRINTS: &str = "imported True 4096";

/// An XRC domain that a file names, with a receive queue and both kinds of queue pairs.
const PYTHON_XRC: &str = "
import os, sys
from pyverbs.device import Context
from pyverbs.pd import PD
from pyverbs.cq import CQ
from pyverbs.xrcd import XRCD, XRCDInitAttr
from pyverbs.srq import SRQ, SrqInitAttrEx
from pyverbs.qp import QP, QPInitAttrEx, QPCap
import pyverbs.enums as e
context = Context(name='soft0')
pd, cq = PD(context), CQ(context, 16)
named = e.IBV_XRCD_INIT_ATTR_FD | e.IBV_XRCD_INIT_ATTR_OFLAGS
with open(sys.executable) as file:
    xrcd = XRCD(context, XRCDInitAttr(named, os.O_CREAT, file.fileno()))
attr = SrqInitAttrEx(max_wr=4)
attr.comp_mask = e.IBV_SRQ_INIT_ATTR_TYPE | e.IBV_SRQ_INIT_ATTR_PD
attr.comp_mask |= e.IBV_SRQ_INIT_ATTR_CQ | e.IBV_SRQ_INIT_ATTR_XRCD
attr.srq_type, attr.xrcd, attr.cq, attr.pd = e.IBV_SRQT_XRC, xrcd, cq, pd
srq = SRQ(context, attr)
in_domain, in_pd = e.IBV_QP_INIT_ATTR_XRCD, e.IBV_QP_INIT_ATTR_PD
recv = QP(context, QPInitAttrEx(qp_type=e.IBV_QPT_XRC_RECV, comp_mask=in_domain, xrcd=xrcd))
cap = QPCap(max_recv_wr=0, max_recv_sge=0)
send = QP(context, QPInitAttrEx(qp_type=e.IBV_QPT_XRC_SEND, comp_mask=in_pd, pd=pd, scq=cq, cap=cap))
print('queue', srq.get_srq_num() != 0, 'queue pairs', recv.qp_num != send.qp_num)
";
const PYTHON_XRC_PRINTS: &str = "queue True queue pairs True";

/// Memory windows of both types, bound, written through and invalidated, here and by a message.
const PYTHON_MW: &str = "
from pyverbs.device import Context
from pyverbs.pd import PD
from pyverbs.mr import MR, MW, MWBind, MWBindInfo
from pyverbs.cq import CQ
from pyverbs.qp import QP, QPAttr, QPCap, QPInitAttr
from pyverbs.addr import AHAttr, GlobalRoute
from pyverbs.wr import SGE, RecvWR, SendWR
import pyverbs.enums as e
context = Context(name='soft0')
pd, cq = PD(context), CQ(context, 16)
init = QPInitAttr(qp_type=e.IBV_QPT_RC, scq=cq, rcq=cq, cap=QPCap())
owner, user = QP(pd, init), QP(pd, init)
for qp, to in (owner, user), (user, owner):
    attr = QPAttr(port_num=1)
    attr.dest_qp_num, attr.qp_access_flags = to.qp_num, e.IBV_ACCESS_REMOTE_WRITE
    route = GlobalRoute(dgid=context.query_gid(1, 0), sgid_index=0)
    attr.ah_attr = AHAttr(port_num=1, is_global=1, gr=route)
    qp.to_rts(attr)
mr = MR(pd, 64, e.IBV_ACCESS_LOCAL_WRITE | e.IBV_ACCESS_MW_BIND)
src = MR(pd, 64, e.IBV_ACCESS_LOCAL_WRITE)
info = MWBindInfo(mr, mr.buf, 64, e.IBV_ACCESS_REMOTE_WRITE)
def done():
    while True:
        n, wcs = cq.poll()
        if n:
            return wcs[0]
def post(qp, **wr):
    qp.post_send(SendWR(**wr))
    return done().status
def write(key, text):
    src.write(text, len(text))
    wr = SendWR(opcode=e.IBV_WR_RDMA_WRITE, num_sge=1, sg=[SGE(src.buf, len(text), src.lkey)])
    wr.set_wr_rdma(key, mr.buf)
    user.post_send(wr)
    return done().status, mr.read(len(text), 0).decode()
with MW(pd, e.IBV_MW_TYPE_1) as one, MW(pd, e.IBV_MW_TYPE_2) as two:
    owner.bind_mw(one, MWBind(info, e.IBV_SEND_SIGNALED))
    print('type 1', done().status, *write(one.rkey, 'first'))
    bind = SendWR(opcode=e.IBV_WR_BIND_MW)
    bind.set_bind_wr(two, info)
    owner.post_send(bind)
    print('type 2', done().status, *write(bind.rkey, 'other'))
    print('invalidated', post(owner, opcode=e.IBV_WR_LOCAL_INV, imm_data=bind.rkey))
    owner.post_send(bind)
    print('bound', done().status, *write(bind.rkey, 'again'))
    owner.post_recv(RecvWR(num_sge=1, sg=[SGE(src.buf, 64, src.lkey)]))
    user.post_send(SendWR(opcode=e.IBV_WR_SEND_WITH_INV, imm_data=bind.rkey))
    flags = [done().wc_flags & e.IBV_WC_WITH_INV for _ in range(2)]
    print('by a message', sorted(flags), *write(bind.rkey, 'never'))
";
const PYTHON_MW_PRINTS: &str = "type 1 0 0 first
type 2 0 0 other
invalidated 0
bound 0 0 again
by a message [0, 8] 10 again";

/// Ways in which a pair of programs runs besides on soft0, checked.
#[derive(Clone, Copy, PartialEq)]
enum PairWay {
    /// Not checked: it takes the fast paths.
    Unchecked,
    /// Over UDP between two devices, checked and not.
    Wired,
    /// On one address, where the processes reach each other by memory, or over UDP.
    Shared,
}

use PairWay::{Shared, Unchecked, Wired};

/// Two processes each, what the one that connects prints, and how they run besides. A multicast
/// group is named by the port, so that it is no other run's.
const PAIRS: &[(&str, &str, &[PairWay])] = &[
    ("ibv_rc_pingpong -g 0 -c", "1000 iters in", &[Unchecked, Wired, Shared]),
    ("ibv_rc_pingpong -g 0 -e", "1000 iters in", &[]),
    ("ibv_rc_pingpong -g 0 -N", "1000 iters in", &[Unchecked]),
    ("ibv_rc_pingpong -g 0 -t", "1000 iters in", &[]),
    ("ibv_rc_pingpong -g 0 -j", "1000 iters in", &[]),
    ("ibv_rc_pingpong -g 0 -o -c", "1000 iters in", &[]),
    ("ibv_rc_pingpong -g 0 -o -P", "1000 iters in", &[]),
    ("ibv_rc_pingpong -g 0 -O -P -N", "1000 iters in", &[]),
    ("ibv_uc_pingpong -g 0", "1000 iters in", &[Wired]),
    ("ibv_ud_pingpong -g 0", "1000 iters in", &[Unchecked, Wired, Shared]),
    ("ibv_srq_pingpong -g 0", "iters in", &[]),
    ("ibv_xsrq_pingpong -g 0", "success", &[]),
    ("ib_send_bw -F -n 1000", "65536      1000", &[Wired, Shared]),
    ("ib_send_bw -F -n 1000 -b -q 4 -l 8", "65536      4000", &[Unchecked]),
    ("ib_send_lat -F -n 1000 -e", "2       1000", &[Unchecked, Wired]),
    ("ib_send_lat -F -n 1000 -c UD", "2       1000", &[]),
    (
        "ib_send_bw -F -n 1000 -c UD -g -M 0:0:0:0:0:0:0:0:0:0:255:255:239:1:{port}",
        "4096       1000",
        &[],
    ),
    ("ib_send_bw -F -n 1000 -c UC", "65536      1000", &[]),
    ("ib_write_bw -F -n 1000", "65536      1000", &[Wired]),
    ("ib_write_bw -F -n 1000 --odp", "65536      1000", &[Wired]),
    ("ib_read_bw -F -n 1000 --odp", "65536      1000", &[Wired]),
    ("ib_send_bw -F -n 1000 --odp", "65536      1000", &[Wired]),
    ("ib_write_lat -F -n 1000 -I 64", "2       1000", &[Unchecked]),
    ("ib_read_bw -F -n 1000", "65536      1000", &[Unchecked, Wired]),
    ("ib_read_lat -F -n 1000", "2       1000", &[]),
    ("ib_atomic_bw -F -n 200", "8          200", &[Wired]),
    ("ib_atomic_lat -F -n 200", "8       200", &[Unchecked]),
    ("ib_send_bw -F -n 10 -a", "8388608    10", &[]),
    ("ib_write_bw -F -n 10 -a --use_old_post_send", "8388608    10", &[]),
    ("ib_read_bw -F -n 10 -a", "8388608    10", &[]),
    ("ib_send_lat -F -n 10 -a --use_old_post_send", "8388608 10", &[]),
    ("ib_write_lat -F -n 10 -a", "8388608 10", &[]),
    ("ib_read_lat -F -n 10 -a -c RC", "8388608 10", &[]),
    ("ib_send_bw -F -n 1000 --use-srq -q 4", "65536      4000", &[]),
    ("ib_send_bw -F -n 10 -c UC -a", "8388608    10", &[]),
    ("ib_write_bw -F -n 1000 -c UC", "65536      1000", &[]),
    ("ib_send_bw -F -n 1000 -c XRC", "65536      1000", &[Unchecked]),
    ("ib_send_bw -F -n 1000 -c XRC -b -q 4 --use_old_post_send", "65536      4000", &[]),
    ("ib_send_lat -F -n 1000 -c XRC", "2       1000", &[]),
    ("ib_send_lat -F -n 1000 -c XRC --use_old_post_send", "2       1000", &[]),
    ("ib_write_bw -F -n 1000 -c XRC", "65536      1000", &[]),
    ("ib_write_bw -F -n 1000 -c XRC --use_old_post_send", "65536      1000", &[]),
    ("ib_read_bw -F -n 1000 -c XRC", "65536      1000", &[]),
    ("ib_read_bw -F -n 1000 -c XRC --use_old_post_send", "65536      1000", &[]),
    ("ib_atomic_bw -F -n 200 -c XRC", "8          200", &[]),
    ("ib_atomic_bw -F -n 200 -c XRC --use_old_post_send", "8          200", &[]),
];

/// Flags that have a program checked: it fails if there are findings. (Notes there are: the
/// pingpong programs receive into the bytes that they send, and perftest destroys less than it
/// creates.)
const CHECKED: &[&str] = &["--check=fail"];

/// Faults that two processes meet, and end well.
const FAULTY: &[(Runs, &str, &str)] = &[
    (
        &[&["--faults=rnr=0.05,retry=0.001,delay=0.05:20us,seed=7"]],
        "ibv_rc_pingpong -g 0 -c",
        "1000 iters in",
    ),
    (
        &[&["--faults=rnr=0.01,delay=0.01:20us,seed=7"]],
        "ib_send_bw -F -n 1000 -c XRC",
        "65536      1000",
    ),
];

/// Devices of pairs over UDP: the addresses, and what the network does to packets.
const WIRES: [&str; 2] = ["127.0.0.2", "127.0.0.3"];
const LOSSES: [&str; 2] = ["127.0.0.2,loss=0.01,seed=1", "127.0.0.3,loss=0.01,seed=2"];

/// Devices of those that share an address.
const SHARES: [[&str; 2]; 2] = [["127.0.0.2"; 2], ["127.0.0.2,loopback=wire"; 2]];

/// A program that does not end, and what it prints of a fault.
const WATCH: (&str, &str, &str) =
    ("event=port_err@500ms,seed=7", "ibv_asyncwatch", "event_type IBV_EVENT_PORT_ERR (10), port 1");
/// Ends it after longer than it takes until it has printed that.
const LIMIT: [&str; 3] = ["timeout", "--kill-after=5", "60"];

pub(crate) fn run() -> Result<()> {
    process::needs(NEEDED)?;
    let built = namespaces::build(false)?;
    for (line, checks, expected) in ALONE {
        let words: Vec<&str> = line.split(' ').collect();
        let output = process::printed(&mut process::command_of(&soft(&built, checks, &words)))?;
        for text in *expected {
            ensure!(output.contains(text), "{line} printed no {text:?}:\n{output}");
        }
        println!("{line}");
    }
    let scripts = [
        (PYTHON, PYTHON_PRINTS),
        (PYTHON_IMPORT, PYTHON_IMPORT_PRINTS),
        (PYTHON_XRC, PYTHON_XRC_PRINTS),
        (PYTHON_MW, PYTHON_MW_PRINTS),
    ];
    for (script, prints) in scripts {
        let words = soft(&built, CHECKED, &["/usr/bin/python3", "-c", script]);
        let output = process::printed(&mut process::command_of(&words))?;
        ensure!(output.trim() == prints, "pyverbs printed: {output}");
    }
    println!("pyverbs");
    as_the_library(&built)?;
    let jobs = jobs();
    side_by_side::for_each(&jobs, AT_A_TIME, |job| {
        job.run(&built).with_context(|| job.name.clone())?;
        println!("{}", job.name);
        Ok(())
    })?;
    let (faults, program, expected) = WATCH;
    let name = format!("{program}, with {faults}");
    let flags = [&*format!("--faults={faults}")];
    until(&soft(&built, &flags, &[program]), expected).with_context(|| name.clone())?;
    println!("{name}");
    let pairs = jobs.len();
    println!(
        "programs: all ran on soft0, checked, without findings, {pairs} of them in two processes"
    );
    Ok(())
}

/// Flags of the command, for each run of a program.
type Runs = &'static [&'static [&'static str]];

/// A line that runs between two processes to their end.
struct PairJob {
    name: String,
    runs: Runs,
    /// Without devices over UDP it is on soft0. Both may be on one address.
    devices: Option<[&'static str; 2]>,
    line: &'static str,
    /// Text that the end which connects has to print.
    expected: &'static str,
}

/// All pairs of programs.
fn jobs() -> Vec<PairJob> {
    let mut jobs = Vec::new();
    let mut add = |line: &'static str, expected: &'static str, how: &str, devices, runs: Runs| {
        jobs.push(PairJob { name: format!("{line}{how}"), runs, devices, line, expected });
    };
    for (line, expected, ways) in PAIRS {
        let not_checked = ways.contains(&Unchecked);
        add(line, expected, "", None, if not_checked { &[CHECKED, &[]] } else { &[CHECKED] });
        if ways.contains(&Wired) {
            add(line, expected, ", over UDP", Some(WIRES), &[CHECKED, &[]]);
        }
        for devices in SHARES.iter().filter(|_| ways.contains(&Shared)) {
            let how = format!(", twice on {}", devices[0]);
            add(line, expected, &how, Some(*devices), &[&[]]);
        }
    }
    let (line, expected, _) = PAIRS[0];
    add(line, expected, ", over UDP, with lost packets", Some(LOSSES), &[CHECKED]);
    for (runs, line, expected) in FAULTY {
        add(line, expected, &format!(", with {}", runs[0][0]), None, runs);
    }
    jobs
}

/// Pairs at a time: they wait for each other more than they use a processor.
const AT_A_TIME: usize = 4;

/// The words that run a program on soft0, with these flags of the command.
fn soft(built: &Path, flags: &[&str], program: &[&str]) -> Vec<String> {
    let command = built.join("rdma-conn").display().to_string();
    let words = [&[&*command, "soft"], flags, &["--"], program].concat();
    words.into_iter().map(str::to_owned).collect()
}

/// Runs a program until it has printed a line, and ends it.
fn until(words: &[String], expected: &str) -> Result<()> {
    let words = [&LIMIT.map(str::to_owned)[..], words].concat();
    let mut watch = WatchedProgram::start(&words)?;
    while watch.line().with_context(|| format!("it printed no {expected:?}"))?.trim() != expected {}
    Ok(())
}

/// Found by its name in a folder of LD_LIBRARY_PATH, not preloaded.
fn as_the_library(built: &Path) -> Result<()> {
    let folder = built.join("soft-library-path");
    std::fs::create_dir_all(&folder)?;
    let link = folder.join("libibverbs.so.1");
    let _ = std::fs::remove_file(&link); // of an earlier run
    std::os::unix::fs::symlink(built.join("librdma_conn_soft.so"), &link)?;
    let output = process::printed(Command::new("ibv_devices").env("LD_LIBRARY_PATH", &folder))?;
    ensure!(output.contains("soft0"), "with LD_LIBRARY_PATH, ibv_devices printed: {output}");
    println!("ibv_devices, with LD_LIBRARY_PATH");
    Ok(())
}

impl PairJob {
    fn run(&self, built: &Path) -> Result<()> {
        self.runs.iter().try_for_each(|flags| self.run_once(built, flags))
    }

    fn run_once(&self, built: &Path, flags: &[&str]) -> Result<()> {
        let port = pair::free_port()?;
        let number = port.to_string();
        let [high, low] = port.to_be_bytes();
        let line = self.line.replace("{port}", &format!("{high}:{low}"));
        let words: Vec<&str> = line.split(' ').chain(["-p", &number]).collect();
        let end = |at: usize| {
            let Some(devices) = self.devices else { return soft(built, flags, &words) };
            let device = devices[at];
            let name = format!("roce:{}", device.split(',').next().unwrap_or(device));
            let environment = ["env".to_owned(), format!("RDMA_CONN_ROCE={device}")];
            [&environment[..], &soft(built, flags, &[&words[..], &["-d", &name]].concat())].concat()
        };
        let (listener, mut connector) = (end(0), end(1));
        connector.push("127.0.0.1".to_owned());
        let printed = pair::run(&CommandPair { listener, connector }, port)?;
        pair::ensure_printed(&printed, self.expected)
    }
}
