//! The circumstances of a run: without them its figures cannot be compared with others.

use std::fmt::Write as _;

use serde_json::{Value, json};

use super::bytes;

/// Date, command and machine of a run.
#[derive(Debug, Clone)]
pub struct BenchSetting {
    /// Date and time in UTC, as in RFC 3339.
    pub at: String,
    /// Command line, with its secrets masked.
    pub command: String,
    /// The machine that generates the load.
    pub machine: BenchMachine,
}

/// A machine, as far as its system describes it.
#[derive(Debug, Clone)]
pub struct BenchMachine {
    /// Name and release of the operating system.
    pub system: String,
    /// Model of the processors.
    pub processor: Option<String>,
    /// Number of processors that this process may use.
    pub cores: usize,
    /// Bytes of memory.
    pub memory: Option<u64>,
}

impl BenchSetting {
    /// Returns the date, the version and the machine, on one line.
    pub(super) fn describe(&self) -> String {
        let BenchMachine { system, processor, cores, memory } = &self.machine;
        let mut text = format!("{}, trunkline {}, {cores} ×", self.at, env!("CARGO_PKG_VERSION"));
        let _ = write!(text, " {}", processor.as_deref().unwrap_or("unknown processor"));
        if let Some(memory) = memory {
            let _ = write!(text, ", {}", bytes(*memory));
        }
        let _ = write!(text, ", {system}");
        text
    }

    pub(super) fn json(&self) -> Value {
        let BenchMachine { system, processor, cores, memory } = &self.machine;
        json!({
            "at": self.at,
            "command": self.command,
            "machine": {
                "system": system,
                "processor": processor,
                "cores": cores,
                "memory_bytes": memory,
            },
        })
    }
}

impl BenchMachine {
    /// Describes this machine.
    pub fn observe() -> Self {
        let read = |path: &str| std::fs::read_to_string(path).unwrap_or_default();
        let value = |text: &str, key: &str| {
            let line = text.lines().find_map(|line| line.strip_prefix(key))?;
            Some(line.split_once(':')?.1.trim().to_owned())
        };
        let memory = value(&read("/proc/meminfo"), "MemTotal");
        let kibibytes = memory.and_then(|text| text.split(' ').next()?.parse::<u64>().ok());
        let release = read("/proc/sys/kernel/osrelease");
        Self {
            system: format!("{} {}", std::env::consts::OS, release.trim()).trim().to_owned(),
            processor: value(&read("/proc/cpuinfo"), "model name"),
            cores: std::thread::available_parallelism().map_or(1, usize::from),
            memory: kibibytes.map(|kibibytes| kibibytes.saturating_mul(1024)),
        }
    }
}
