//! The processes under measurement.

use std::ffi::OsString;
use std::io::{BufRead, BufReader, Read};
use std::net::SocketAddr;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::sync_channel;
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};

/// A process that serves, told to end when it is dropped.
pub struct Process {
    child: Child,
    pub address: SocketAddr,
}

/// A program that runs the process in its place, such as valgrind.
pub struct Wrapper(Vec<OsString>);

impl Wrapper {
    pub fn none() -> Self {
        Self(Vec::new())
    }

    /// Counts the instructions of the process into `file`.
    pub fn callgrind(file: &Path) -> Self {
        let mut out = OsString::from("--callgrind-out-file=");
        out.push(file);
        Self(vec!["valgrind".into(), "--tool=callgrind".into(), "--quiet".into(), out])
    }

    fn command(&self, program: &Path) -> Command {
        match self.0.split_first() {
            None => Command::new(program),
            Some((wrapper, args)) => {
                let mut command = Command::new(wrapper);
                command.args(args).arg(program);
                command
            }
        }
    }
}

impl Process {
    /// This program again, in another role. It says its address first.
    pub fn role(args: &[&str], wrapper: &Wrapper) -> Self {
        let mut command = wrapper.command(&std::env::current_exe().unwrap());
        let mut child = command.args(args).stdout(Stdio::piped()).spawn().unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
        let address = line.trim().parse().expect("the role says its address");
        Self { child, address }
    }

    /// The gateway. Its log is read, as a supervisor would, and thrown away.
    pub fn gateway(config: &Path, wrapper: &Wrapper) -> Self {
        let mut command = wrapper.command(Path::new(env!("CARGO_BIN_EXE_trunkline")));
        command.arg("serve").arg("--config").arg(config).env("NO_COLOR", "1");
        let mut child = command.stderr(Stdio::piped()).spawn().unwrap();
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
        let address = address.recv_timeout(Duration::from_mins(2)).expect("the gateway starts");
        Self { child, address }
    }

    /// The CPU that all its threads have taken so far.
    pub fn cpu(&self) -> Duration {
        let tasks = std::fs::read_dir(format!("/proc/{}/task", self.child.id())).unwrap();
        let nanoseconds = tasks.filter_map(|task| {
            // A thread may end between the two looks.
            let text = std::fs::read_to_string(task.ok()?.path().join("schedstat")).ok()?;
            text.split_ascii_whitespace().next()?.parse::<u64>().ok()
        });
        Duration::from_nanos(nanoseconds.sum())
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        if let Some(pid) = i32::try_from(self.child.id()).ok().and_then(Pid::from_raw) {
            let _ = kill_process(pid, Signal::TERM);
        }
        let _ = self.child.wait();
    }
}

fn address_in(line: &str) -> Option<SocketAddr> {
    let (_, rest) = line.split_once("clients connect to http://")?;
    rest.split('/').next()?.parse().ok()
}
