//! The other process of a test: this very program, started again.
//!
//! Both ends do the same: they make a [`NearEnd`], tell each other of it by lines over the
//! child's standard streams, and connect.

use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdin, ChildStdout, Command, Output, Stdio};

use super::*;

pub const ROLE: &str = "SOFT_RNIC_TEST_ROLE";
/// In front of what is said: the test harness writes to the same stream.
const MARK: &str = "@@";

/// For a peer that lives, or whose death the device sees.
pub fn patient() -> ConnectConfig {
    ConnectConfig::PATIENT
}

/// Returns the role of this process, if it was started by a test.
pub fn role() -> Option<String> {
    std::env::var(ROLE).ok()
}

/// Has the test `entry` of this program, started again, play a role to its end, with these
/// variables in its environment.
pub fn play(entry: &str, role: &str, environment: &[(&str, &str)]) -> Output {
    Command::new(std::env::current_exe().unwrap())
        .args(["--exact", entry, "--nocapture", "--test-threads=1"])
        .env(ROLE, role)
        .envs(environment.iter().copied())
        .stdin(Stdio::null())
        .output()
        .unwrap()
}

/// A line from the test that started this process; none when it has gone.
pub fn hear() -> Option<String> {
    let mut line = String::new();
    let n = std::io::stdin().read_line(&mut line).ok()?;
    (n > 0).then(|| line.trim().to_owned())
}

/// A line to the test that started this process.
pub fn say(line: &str) {
    println!("\n{MARK}{line}");
    std::io::stdout().flush().unwrap();
}

/// A process that plays a role, and does not outlive the test.
pub struct Other {
    child: Child,
    to: ChildStdin,
    from: BufReader<ChildStdout>,
}

impl Drop for Other {
    fn drop(&mut self) {
        // It has ended mostly.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Other {
    /// Starts the test `entry` of this program again, to play a role.
    pub fn start(entry: &str, role: &str) -> Other {
        Other::start_on(entry, role, None)
    }

    /// [`start`](Self::start), on another device than this process's.
    pub fn start_on(entry: &str, role: &str, device: Option<&str>) -> Other {
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", entry, "--nocapture", "--test-threads=1"])
            .env(ROLE, role)
            .envs(device.map(|device| ("RDMA_CONN_DEVICE", device)))
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let to = child.stdin.take().unwrap();
        let from = BufReader::new(child.stdout.take().unwrap());
        Other { child, to, from }
    }

    pub fn say(&mut self, line: &str) {
        writeln!(self.to, "{line}").unwrap();
    }

    #[track_caller]
    pub fn hear(&mut self) -> String {
        loop {
            let mut line = String::new();
            assert!(self.from.read_line(&mut line).unwrap() > 0, "it has ended");
            if let Some(said) = line.trim().strip_prefix(MARK) {
                return said.to_owned();
            }
        }
    }

    pub fn pid(&self) -> i32 {
        self.child.id() as i32
    }

    pub fn signal(&self, signal: i32) {
        // SAFETY: a child of ours that was not waited for.
        assert_eq!(unsafe { libc::kill(self.pid(), signal) }, 0);
    }

    /// Stops it; it does nothing any more when this returns.
    pub fn stop(&self) {
        self.signal(libc::SIGSTOP);
        let mut status = 0;
        // SAFETY: a child of ours that was not waited for; it is left so.
        let seen = unsafe { libc::waitpid(self.pid(), &mut status, libc::WUNTRACED) };
        assert!(seen == self.pid() && libc::WIFSTOPPED(status));
    }

    pub fn wait(&mut self) -> Option<i32> {
        self.child.wait().unwrap().code()
    }
}

/// From now on the system refuses these calls to all threads of this process.
pub fn refuse(calls: &[libc::c_long]) {
    use libc::{BPF_ABS, BPF_JEQ, BPF_JMP, BPF_K, BPF_LD, BPF_RET, BPF_W};
    let step = |code: u32, k: u32, jt, jf| libc::sock_filter { code: code as u16, jt, jf, k };
    let refused = libc::SECCOMP_RET_ERRNO | libc::EPERM as u32;
    let mut filter = vec![step(BPF_LD | BPF_W | BPF_ABS, 0, 0, 0)];
    for call in calls {
        filter.push(step(BPF_JMP | BPF_JEQ | BPF_K, *call as u32, 0, 1));
        filter.push(step(BPF_RET | BPF_K, refused, 0, 0));
    }
    filter.push(step(BPF_RET | BPF_K, libc::SECCOMP_RET_ALLOW, 0, 0));
    let program = libc::sock_fprog { len: filter.len() as u16, filter: filter.as_mut_ptr() };
    // SAFETY: the program is alive; the calls change what this process may do, no more.
    unsafe {
        assert_eq!(libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0), 0);
        let (mode, flags) = (libc::SECCOMP_SET_MODE_FILTER, libc::SECCOMP_FILTER_FLAG_TSYNC);
        assert_eq!(libc::syscall(libc::SYS_seccomp, mode, flags, &raw const program), 0);
    }
}

/// Memory that lies in a sealed memory file, as the program's own regions do.
pub struct Shareable {
    pub bytes: &'static mut [u8],
    _file: std::os::fd::OwnedFd,
}

impl Shareable {
    pub fn new(len: usize) -> Shareable {
        use rustix::fs::{MemfdFlags, SealFlags, fcntl_add_seals, ftruncate, memfd_create};
        use rustix::mm::{MapFlags, ProtFlags, mmap};
        let file = memfd_create("test", MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING).unwrap();
        ftruncate(&file, len as u64).unwrap();
        fcntl_add_seals(&file, SealFlags::SHRINK).unwrap();
        let prot = ProtFlags::READ | ProtFlags::WRITE;
        // SAFETY: a new mapping, which stays as long as the process.
        let bytes = unsafe {
            let at = mmap(null_mut(), len, prot, MapFlags::SHARED, &file, 0).unwrap();
            core::slice::from_raw_parts_mut(at.cast::<u8>(), len)
        };
        Shareable { bytes, _file: file }
    }
}

/// One end: a queue pair, and two kinds of memory.
pub struct NearEnd {
    pub net: Net,
    pub cq: *mut ibv_cq,
    pub qp: *mut ibv_qp,
    pub shared: Shareable,
    pub heap: Vec<u8>,
    /// Regions of the shareable memory, then of the heap.
    pub mr: [*mut ibv_mr; 2],
}

/// Numbers and addresses of an end, for the other one.
#[derive(Debug, Clone, Copy)]
pub struct Far {
    pub num: u32,
    /// Address and key, of the shareable memory and of the heap.
    pub memory: [(u64, u32); 2],
}

pub const BYTES: usize = 1 << 20;

impl NearEnd {
    pub fn new(kind: ibv_qp_type) -> NearEnd {
        let net = Net::new();
        let cq = net.cq(1024);
        NearEnd::on(kind, net, cq)
    }

    pub fn on(kind: ibv_qp_type, net: Net, cq: *mut ibv_cq) -> NearEnd {
        let qp = net.qp_of(kind, cq);
        // Receives can be posted from now on.
        let ((attr, mask), _, _) = net.steps_of(kind, 0, ConnectConfig::default());
        assert_eq!(net.modify(qp, attr, mask), 0);
        let shared = Shareable::new(BYTES);
        let mut heap = vec![0; BYTES];
        let mr = [net.mr(shared.bytes, RW), net.mr(&mut heap, RW)];
        NearEnd { net, cq, qp, shared, heap, mr }
    }

    pub fn say(&self) -> String {
        // SAFETY: all of it is alive.
        unsafe {
            let [a, b] = self.mr.map(|mr| ((*mr).addr as u64, (*mr).rkey));
            format!("{} {} {} {} {}", (*self.qp).qp_num, a.0, a.1, b.0, b.1)
        }
    }

    pub fn connect(&self, far: Far, config: ConnectConfig) {
        self.net.connect(self.qp, far.num, config);
    }

    pub fn local(&self, memory: usize, offset: usize, len: u32) -> ibv_sge {
        sge(self.mr[memory], offset, len)
    }

    /// Posts an operation on the other end's memory.
    pub fn post_rdma(&self, opcode: ibv_wr_opcode, local: ibv_sge, remote: (u64, u32)) {
        let mut sges = [local];
        let mut wr = send_wr(1, opcode, &mut sges, SIGNALED);
        let (remote_addr, rkey) = remote;
        if opcode == ibv_wr_opcode::IBV_WR_ATOMIC_FETCH_AND_ADD {
            let (compare_add, swap) = (5, 0);
            wr.wr.atomic =
                ibv_send_wr__bindgen_ty_2__bindgen_ty_2 { remote_addr, compare_add, swap, rkey };
        } else {
            wr.wr.rdma = ibv_send_wr__bindgen_ty_2__bindgen_ty_1 { remote_addr, rkey };
        }
        assert_eq!(post_send(self.qp, &mut wr), 0);
    }

    pub fn send(&self, local: ibv_sge) {
        let mut sges = [local];
        let mut wr = send_wr(2, ibv_wr_opcode::IBV_WR_SEND, &mut sges, SIGNALED);
        assert_eq!(post_send(self.qp, &mut wr), 0);
    }

    pub fn close(self) {
        self.net.destroy_qp(self.qp);
        self.net.destroy_cq(self.cq);
        for mr in self.mr {
            self.net.dereg(mr);
        }
        self.net.close();
    }
}

/// The soft device does not answer for a process that has died. Kernel drivers take the objects of
/// a process down one after the other: its memory may be gone while its queue pair still
/// answers, which then refuses with a status that says so.
pub fn is_end_of_process(status: &str) -> bool {
    status == "RETRY_EXC" || (!is_soft() && ["REM_ACCESS", "REM_OP"].contains(&status))
}

impl Far {
    pub fn parse(said: &str) -> Far {
        let all: Vec<u64> = said.split_whitespace().map(|n| n.parse().unwrap()).collect();
        let memory = [(all[1], all[2] as u32), (all[3], all[4] as u32)];
        Far { num: all[0] as u32, memory }
    }
}

/// Meets the other process: both ends are connected. This one is before the other one can send,
/// which has 3 ms for that if its peer is to die.
pub fn join(end: &NearEnd, other: &mut Other, config: ConnectConfig) -> Far {
    let far = Far::parse(&other.hear());
    end.connect(far, config);
    other.say(&end.say());
    assert_eq!(other.hear(), "connected");
    far
}

/// The same, in the other process.
pub fn join_as_other(end: &NearEnd, config: ConnectConfig) -> Far {
    say(&end.say());
    let far = Far::parse(&hear().unwrap());
    end.connect(far, config);
    say("connected");
    far
}
