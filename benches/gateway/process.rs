//! The processes under measurement.

use std::ffi::OsString;
use std::io::{BufRead, BufReader, Read};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::sync_channel;
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};
use url::Url;

/// A process that serves, told to end when it is dropped.
pub struct Process {
    child: Child,
    pub url: Url,
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
    /// The server that costs next to nothing.
    pub fn mock() -> Self {
        Self::start(&["example", "load", "--listen", "127.0.0.1:0"], &Wrapper::none())
    }

    /// The proxy that does nothing.
    pub fn proxy(server: &Url, wrapper: &Wrapper) -> Self {
        Self::start(&["example", "proxy", server.as_str(), "--listen", "127.0.0.1:0"], wrapper)
    }

    /// The gateway.
    pub fn gateway(config: &Path, wrapper: &Wrapper) -> Self {
        Self::start(&["serve", "--config", config.to_str().unwrap()], wrapper)
    }

    /// The program, which says its address. What else it says is read, as a
    /// supervisor would, and thrown away.
    fn start(args: &[&str], wrapper: &Wrapper) -> Self {
        let mut command = wrapper.command(Path::new(env!("CARGO_BIN_EXE_trunkline")));
        command.args(args).env("NO_COLOR", "1");
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
        let url = address.recv_timeout(Duration::from_mins(2)).expect("it says its address");
        Self { child, url }
    }

    pub fn id(&self) -> u32 {
        self.child.id()
    }

    /// Tells callgrind, under which it runs, to do something.
    pub fn callgrind(&self, what: &str) {
        let mut command = Command::new("callgrind_control");
        let told = command.arg(what).arg(self.child.id().to_string()).stdout(Stdio::null());
        assert!(told.status().unwrap().success(), "callgrind does not listen");
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

fn address_in(line: &str) -> Option<Url> {
    let (_, address) = line.split_once("clients connect to ")?;
    address.split_whitespace().next()?.parse().ok()
}
