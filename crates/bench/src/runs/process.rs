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

    /// Returns the CPU time so far, including threads that have ended. A process that is gone counts
    /// nothing.
    pub fn cpu(&self) -> Duration {
        self.pids.iter().map(|pid| cpu_time(*pid).unwrap_or_default()).sum()
    }

    /// The resource usage, with `cpu` as the CPU time of the counted part.
    pub fn usage(&self, cpu: Duration) -> Usage {
        let mut usage = Usage { cpu, memory: 0, peak: 0 };
        for pid in &self.pids {
            let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
            usage.memory += bytes_of(&status, "VmRSS:").unwrap_or(0);
            usage.peak += bytes_of(&status, "VmHWM:").unwrap_or(0);
        }
        usage
    }
}

/// Reads the CPU-time clock of a process: nanoseconds of user and system time of all its threads.
#[cfg(target_os = "linux")]
fn cpu_time(pid: u32) -> Option<Duration> {
    let pid = nix::unistd::Pid::from_raw(i32::try_from(pid).ok()?);
    let clock = nix::time::ClockId::pid_cpu_clock_id(pid).ok()?;
    clock.now().ok().map(Duration::from)
}

/// [`Meter::new`] has failed before.
#[cfg(not(target_os = "linux"))]
fn cpu_time(_: u32) -> Option<Duration> {
    None
}

/// Returns a size from the text of `/proc/PID/status`.
fn bytes_of(status: &str, line: &str) -> Option<u64> {
    let rest = status.lines().find_map(|other| other.strip_prefix(line))?;
    rest.trim().trim_end_matches(" kB").parse::<u64>().ok().map(|kib| kib * 1024)
}

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
        let usage = own.usage(own.cpu().checked_sub(before).expect("CPU time never decreases"));
        assert!(usage.cpu > Duration::ZERO && usage.peak >= usage.memory && usage.memory > 1 << 20);
    }

    #[test]
    fn the_cpu_time_of_a_thread_that_has_ended_still_counts() {
        let own = Meter::own();
        let before = own.cpu();
        let spun = std::thread::spawn(|| {
            let start = trunkline_core::clock::thread_cpu_time();
            while trunkline_core::clock::thread_cpu_time().saturating_sub(start)
                < Duration::from_millis(5)
            {}
        });
        spun.join().unwrap();
        assert!(own.cpu().saturating_sub(before) >= Duration::from_millis(5));
    }

    #[test]
    fn a_missing_process_is_reported() {
        assert!(Meter::new(vec![u32::MAX]).is_err());
    }
}
