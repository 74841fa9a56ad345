//! The processes under measurement.

use std::ffi::OsString;
use std::fs::File;
use std::io::{BufRead, BufReader, Read};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::OnceLock;
use std::sync::mpsc::sync_channel;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process, kill_process_group};
use url::Url;

/// A server process, terminated when it is dropped.
pub struct Process {
    child: Child,
    group: bool,
    pub url: Url,
}

/// A program that runs the process, such as valgrind.
#[derive(Default)]
pub struct Wrapper {
    command: Vec<OsString>,
    env: Vec<(&'static str, &'static str)>,
}

impl Wrapper {
    pub fn none() -> Self {
        Self::default()
    }

    /// Counts the instructions of the process into `file`.
    ///
    /// Copies use vector instructions of any length. For longer copies, the C library would
    /// otherwise choose a string instruction by the cache and the kind of processor, which
    /// callgrind counts byte by byte, unlike any processor. So the count is independent of the
    /// machine.
    pub fn callgrind(file: &Path) -> Self {
        let mut out = OsString::from("--callgrind-out-file=");
        out.push(file);
        let options = ["--tool=callgrind", "--quiet", "--instr-atstart=no"];
        let mut command: Vec<OsString> = vec!["valgrind".into()];
        command.extend(options.map(OsString::from));
        command.push(out);
        Self { command, env: vec![("GLIBC_TUNABLES", PLAIN_COPIES)] }
    }

    /// Restricts the process to some of the machine's processors.
    pub fn on(processors: &str) -> Self {
        Self { command: vec!["taskset".into(), "-c".into(), processors.into()], env: Vec::new() }
    }

    fn command(&self, program: &Path) -> Command {
        let mut command = match self.command.split_first() {
            None => Command::new(program),
            Some((wrapper, args)) => {
                let mut command = Command::new(wrapper);
                command.args(args).arg(program);
                command
            }
        };
        command.envs(self.env.iter().copied());
        command
    }
}

impl Process {
    /// Starts the mock server with further options.
    pub fn mock(options: &[&str]) -> Self {
        Self::start(
            &[&["example", "load", "--listen", "127.0.0.1:0"], options].concat(),
            &Wrapper::none(),
        )
    }

    /// Starts the proxy on the pooled client.
    pub fn proxy(server: &Url, wrapper: &Wrapper) -> Self {
        Self::start(&["example", "proxy", server.as_str(), "--listen", "127.0.0.1:0"], wrapper)
    }

    /// Starts the proxy that drives its connections itself.
    pub fn inline_proxy(server: &Url, wrapper: &Wrapper) -> Self {
        let args = ["example", "proxy", "--inline", server.as_str(), "--listen", "127.0.0.1:0"];
        Self::start(&args, wrapper)
    }

    /// Starts the gateway.
    pub fn gateway(config: &Path, wrapper: &Wrapper) -> Self {
        Self::start(&["serve", "--config", config.to_str().unwrap()], wrapper)
    }

    /// Starts the program, which prints its address. Further output is read and discarded, as a
    /// supervisor would.
    fn start(args: &[&str], wrapper: &Wrapper) -> Self {
        let mut command = wrapper.command(binary());
        command.args(args);
        Self::saying(command)
    }

    /// Starts a command that prints its endpoint.
    pub fn saying(mut command: Command) -> Self {
        let mut child = command.env("NO_COLOR", "1").stderr(Stdio::piped()).spawn().unwrap();
        let mut log = BufReader::new(child.stderr.take().unwrap());
        let (found, address) = sync_channel(1);
        std::thread::spawn(move || {
            let mut line = String::new();
            while log.read_line(&mut line).unwrap_or(0) > 0 {
                if let Some(address) = address_in(&line) {
                    found.send(address).unwrap();
                    break;
                }
                line.clear();
            }
            let mut rest = vec![0; 1 << 16];
            while log.read(&mut rest).unwrap_or(0) > 0 {}
        });
        let url = address.recv_timeout(Duration::from_mins(2)).expect("it says its address");
        Self { child, group: false, url }
    }

    /// Starts a foreign command that listens on the given address. Its output
    /// goes into a file.
    ///
    /// # Errors
    /// The end of its output, if it does not listen in time.
    pub async fn foreign(mut command: Command, url: Url, log: &Path) -> Result<Self, String> {
        use std::os::unix::process::CommandExt as _;
        let file = File::create(log).unwrap();
        // A separate process group, so that its children end with it.
        command.process_group(0).stdin(Stdio::null());
        command.stdout(file.try_clone().unwrap()).stderr(file);
        let child = command.spawn().map_err(|error| error.to_string())?;
        let mut process = Self { child, group: true, url };
        let port = process.url.port().unwrap();
        let begun = Instant::now();
        while TcpStream::connect((Ipv4Addr::LOCALHOST, port)).is_err() {
            let ended = process.child.try_wait().unwrap().is_some();
            if ended || begun.elapsed() > Duration::from_mins(1) {
                return Err(last_words(log));
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        Ok(process)
    }

    pub fn id(&self) -> u32 {
        self.child.id()
    }

    /// Returns the process and its children, since some programs have workers; but not this program
    /// as a server behind it.
    pub fn family(&self) -> Vec<u32> {
        let mut family = vec![self.id()];
        let mut place = 0;
        while let Some(parent) = family.get(place) {
            let children =
                std::fs::read_to_string(format!("/proc/{parent}/task/{parent}/children"))
                    .unwrap_or_default();
            let children = children.split_whitespace().filter_map(|id| id.parse::<u32>().ok());
            family.extend(children.filter(|id| !is_ours(*id)));
            place += 1;
        }
        family
    }

    /// Returns the resident memory in bytes.
    pub fn memory(&self) -> u64 {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.id())).unwrap();
        let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap();
        line.trim().trim_end_matches(" kB").parse::<u64>().unwrap() * 1024
    }

    /// Sends a command to callgrind, under which the process runs.
    pub fn callgrind(&self, what: &str) {
        let mut command = Command::new("callgrind_control");
        command.arg(what).arg(self.child.id().to_string());
        let told = command.stdout(Stdio::null()).stderr(Stdio::null()).status().unwrap();
        assert!(told.success(), "callgrind does not listen");
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let Some(pid) = i32::try_from(self.child.id()).ok().and_then(Pid::from_raw) else { return };
        let tell = |signal| {
            if self.group { kill_process_group(pid, signal) } else { kill_process(pid, signal) }
        };
        let _ = tell(Signal::TERM);
        let begun = Instant::now();
        while matches!(self.child.try_wait(), Ok(None)) && begun.elapsed() < FAREWELL {
            std::thread::park_timeout(Duration::from_millis(5));
        }
        // The group may outlive its leader.
        if self.group || matches!(self.child.try_wait(), Ok(None)) {
            let _ = tell(Signal::KILL);
        }
        let _ = self.child.wait();
    }
}

/// Returns the program under measurement: the one that cargo built for this bench, unless
/// [`measure`] selected another.
pub fn binary() -> &'static Path {
    BINARY.get_or_init(|| PathBuf::from(env!("CARGO_BIN_EXE_trunkline")))
}

/// The build of the program under measurement.
#[derive(Clone, Copy)]
pub enum Profile {
    /// The build of the README's first command.
    Release,
    /// The distribution build, with link-time optimization.
    Dist,
}

/// Builds the program in a profile, and selects that build.
pub fn measure(profile: Profile) {
    let (profile, features) = match profile {
        Profile::Release => ("release", ""),
        Profile::Dist => ("dist", "full"),
    };
    let mut build = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    build.args(["build", "--profile", profile, "--locked", "--bin", "trunkline"]);
    build.args(["--features", features]);
    build.current_dir(env!("CARGO_MANIFEST_DIR"));
    assert!(build.status().unwrap().success(), "the {profile} build failed");
    let target = Path::new(env!("CARGO_TARGET_TMPDIR")).parent().unwrap();
    BINARY.set(target.join(profile).join("trunkline")).expect("named once");
}

/// Returns a free port of this machine.
pub fn free_port() -> u16 {
    let any = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
    TcpListener::bind(any).unwrap().local_addr().unwrap().port()
}

/// Returns true if a program can be started.
pub fn has(program: &str) -> bool {
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path).any(|folder| folder.join(program).is_file())
}

/// Returns the path for a report or profile of a run.
pub fn scratch(name: &str) -> PathBuf {
    Path::new(env!("CARGO_TARGET_TMPDIR")).join(name)
}

fn is_ours(id: u32) -> bool {
    let program = std::fs::read_link(format!("/proc/{id}/exe"));
    program.is_ok_and(|program| Some(program) == binary().canonicalize().ok())
}

fn address_in(line: &str) -> Option<Url> {
    let (_, address) = line.split_once("clients connect to ")?;
    address.split_whitespace().next()?.parse().ok()
}

fn last_words(log: &Path) -> String {
    let said = std::fs::read(log).unwrap_or_default();
    let said = String::from_utf8_lossy(&said);
    let last = said.lines().rev().map(str::trim).find(|line| !line.is_empty());
    last.unwrap_or("it said nothing").chars().take(200).collect()
}

static BINARY: OnceLock<PathBuf> = OnceLock::new();
const PLAIN_COPIES: &str = "glibc.cpu.x86_rep_movsb_threshold=1073741824:\
    glibc.cpu.x86_rep_stosb_threshold=1073741824:\
    glibc.cpu.x86_non_temporal_threshold=1073741824";
/// Time limit for the exit of a process after the request.
const FAREWELL: Duration = Duration::from_secs(15);
