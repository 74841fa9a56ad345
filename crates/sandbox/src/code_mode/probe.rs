//! Probes: attempts at forbidden operations, which verify the confinement.

use std::fs::{self, File};
use std::io::{self, Read};
use std::net::TcpStream;
use std::process::Command;
use std::str::FromStr;

/// Attempt of a confined process that runs no code.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Probe {
    /// Nothing: checks that the system can confine a process.
    Nothing,
    /// Reads a file.
    ReadFile,
    /// Lists a folder.
    ListFolder,
    /// Writes a file.
    WriteFile,
    /// Reads a descriptor that was open before.
    ReadDescriptor,
    /// Connects to a TCP port.
    Connect,
    /// Starts a thread.
    StartThread,
    /// Runs a program.
    RunProgram,
    /// Signals the parent.
    SignalParent,
    /// Uses more memory than the limits allow.
    UseMemory,
    /// Computes forever, outside the interpreter.
    UseCpu,
}

/// Error of an unknown probe name.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("unknown probe {name:?}")]
pub struct UnknownProbeError {
    name: String,
}

impl FromStr for Probe {
    type Err = UnknownProbeError;

    fn from_str(name: &str) -> Result<Self, UnknownProbeError> {
        let found = PROBE_NAMES.iter().find(|(known, _)| *known == name);
        found.map(|(_, probe)| *probe).ok_or_else(|| UnknownProbeError { name: name.to_owned() })
    }
}

/// A probe with its resources open.
pub(super) struct ReadyProbe {
    probe: Probe,
    descriptor: Option<File>,
}

impl Probe {
    /// Opens the resources of the probe. Called before the process is confined.
    pub(super) fn prepare(self) -> ReadyProbe {
        let descriptor =
            (self == Self::ReadDescriptor).then(|| File::open(READABLE_FILE).ok()).flatten();
        ReadyProbe { probe: self, descriptor }
    }
}

impl ReadyProbe {
    /// Makes the attempt. Returns the error that the confinement causes, unless it kills the
    /// process.
    pub(super) fn attempt(self) -> io::Result<()> {
        match self.probe {
            Probe::Nothing => Ok(()),
            Probe::ReadFile => fs::read(READABLE_FILE).map(drop),
            Probe::ListFolder => fs::read_dir("/").map(drop),
            Probe::WriteFile => fs::write("/tmp/trunkline-probe", "x"),
            Probe::ReadDescriptor => {
                let mut descriptor = self.descriptor.ok_or(io::ErrorKind::NotFound)?;
                let read = descriptor.read_exact(&mut [0]);
                // Closing it is forbidden too, and is not part of this probe.
                std::mem::forget(descriptor);
                read
            }
            Probe::Connect => TcpStream::connect(("127.0.0.1", 9)).map(drop),
            Probe::StartThread => std::thread::Builder::new().spawn(|| ()).map(drop),
            Probe::RunProgram => Command::new("/bin/true").status().map(drop),
            Probe::SignalParent => {
                let parent = rustix::process::getppid().ok_or(io::ErrorKind::NotFound)?;
                Ok(rustix::process::test_kill_process(parent)?)
            }
            Probe::UseMemory => {
                let mut memory = Vec::<u8>::new();
                memory.try_reserve_exact(EXCESSIVE_MEMORY).map_err(io::Error::other)
            }
            Probe::UseCpu => loop {
                std::hint::spin_loop();
            },
        }
    }
}

const PROBE_NAMES: [(&str, Probe); 11] = [
    ("nothing", Probe::Nothing),
    ("read-file", Probe::ReadFile),
    ("list-folder", Probe::ListFolder),
    ("write-file", Probe::WriteFile),
    ("read-descriptor", Probe::ReadDescriptor),
    ("connect", Probe::Connect),
    ("start-thread", Probe::StartThread),
    ("run-program", Probe::RunProgram),
    ("signal-parent", Probe::SignalParent),
    ("use-memory", Probe::UseMemory),
    ("use-cpu", Probe::UseCpu),
];
/// A world-readable file.
const READABLE_FILE: &str = "/etc/passwd";
/// More than the limits of any script, and less than the allocator may have reserved.
const EXCESSIVE_MEMORY: usize = 8 << 30;
