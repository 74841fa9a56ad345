//! Resource usage of processes, from `/proc`.

use std::time::Duration;

use crate::BenchFault;

/// A group of processes that are measured together.
#[derive(Debug, Clone)]
pub struct Meter {
    pids: Vec<u32>,
}

/// The resource usage of the processes under test.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Usage {
    /// CPU time during the counted part.
    pub cpu: Duration,
    /// Resident memory at the end, in bytes.
    pub memory: u64,
    /// The peak of resident memory, in bytes.
    pub peak: u64,
}

impl Meter {
    /// Measures these processes.
    ///
    /// # Errors
    /// [`BenchFault::Process`] for a process that does not exist or is not accessible.
    pub fn new(pids: Vec<u32>) -> Result<Self, BenchFault> {
        for pid in &pids {
            let fault = |why: String| BenchFault::Process { pid: *pid, why };
            if !cfg!(target_os = "linux") {
                return Err(fault("processes are measured on Linux only (/proc)".into()));
            }
            let stat = std::fs::read_to_string(format!("/proc/{pid}/stat"));
            stat.map_err(|_| fault("no such process".into()))?;
        }
        Ok(Self { pids })
    }

    /// Measures this process.
    pub fn own() -> Self {
        Self { pids: vec![std::process::id()] }
    }

    /// The CPU time of all threads so far.
    pub fn cpu(&self) -> Duration {
        self.pids.iter().map(|pid| threads(*pid).max(ticks(*pid))).sum()
    }

    /// The resource usage, with `cpu` as the CPU time of the counted part.
    pub fn usage(&self, cpu: Duration) -> Usage {
        let sum = |line: &str| self.pids.iter().filter_map(|pid| memory(*pid, line)).sum();
        Usage { cpu, memory: sum("VmRSS:"), peak: sum("VmHWM:") }
    }
}

/// CPU time in nanoseconds, without threads that have ended.
fn threads(pid: u32) -> Duration {
    let tasks = std::fs::read_dir(format!("/proc/{pid}/task")).into_iter().flatten();
    let nanoseconds = tasks.filter_map(|task| {
        // A thread may end between the two reads.
        let text = std::fs::read_to_string(task.ok()?.path().join("schedstat")).ok()?;
        text.split_ascii_whitespace().next()?.parse::<u64>().ok()
    });
    Duration::from_nanos(nanoseconds.sum())
}

/// CPU time in ticks of the kernel's accounting, including threads that have ended.
fn ticks(pid: u32) -> Duration {
    let read = || {
        let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
        // The name may contain any character, but ends with the last parenthesis.
        let (_, fields) = stat.rsplit_once(") ")?;
        let mut fields = fields.split(' ').skip(11).map(str::parse::<u64>);
        Some(fields.next()?.ok()? + fields.next()?.ok()?)
    };
    Duration::from_millis(read().unwrap_or(0).saturating_mul(MILLIS_PER_TICK))
}

fn memory(pid: u32, line: &str) -> Option<u64> {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
    let rest = status.lines().find_map(|other| other.strip_prefix(line))?;
    rest.trim().trim_end_matches(" kB").parse::<u64>().ok().map(|kib| kib * 1024)
}

/// Milliseconds per tick: Linux reports 100 ticks a second on every machine.
const MILLIS_PER_TICK: u64 = 10;

#[cfg(test)]
#[cfg(target_os = "linux")]
mod tests {
    use super::*;

    #[test]
    fn a_process_is_seen_to_take_cpu_and_memory() {
        let own = Meter::own();
        let before = own.cpu();
        let mut sum = 0_u64;
        while own.cpu() == before {
            sum = std::hint::black_box(sum.wrapping_mul(31) + 1);
        }
        let usage = own.usage(own.cpu().saturating_sub(before));
        assert!(usage.cpu > Duration::ZERO && usage.peak >= usage.memory && usage.memory > 1 << 20);
    }

    #[test]
    fn a_missing_process_is_reported() {
        assert!(Meter::new(vec![u32::MAX]).is_err());
    }
}
