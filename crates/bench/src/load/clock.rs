//! The schedule of a run: when the next operation is due, and the wait for it.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};

use tokio_util::sync::CancellationToken;

use trunkline_core::clock;

use crate::session::plan::{Load, LoadPace};

/// The clock of a run, shared by all connections.
#[derive(Debug)]
pub struct RunClock {
    /// Start of the run.
    pub begun: Instant,
    /// End of the warm-up and start of counting.
    pub counted: Instant,
    /// End of the run, if its duration is known.
    pub end: Option<Instant>,
    pace: LoadPace,
    /// Maximum number of counted operations.
    most: u64,
    tickets: AtomicU64,
    stopped: AtomicBool,
    stop: CancellationToken,
    /// Number of successful operations so far, for the progress line.
    pub done: AtomicU64,
    /// Number of failed operations so far.
    pub failed: AtomicU64,
}

/// The right to begin an operation.
#[derive(Debug, Clone, Copy)]
pub struct ScheduledStart {
    /// Due time; `None` in a closed loop.
    pub due: Option<Instant>,
}

impl RunClock {
    /// Starts a run now.
    pub fn start(load: &Load, now: Instant) -> Self {
        let counted = now + load.warmup;
        Self {
            begun: now,
            counted,
            end: load.duration.map(|duration| counted + duration),
            pace: load.pace,
            most: load.requests.unwrap_or(u64::MAX),
            tickets: AtomicU64::new(0),
            stopped: AtomicBool::new(false),
            stop: CancellationToken::new(),
            done: AtomicU64::new(0),
            failed: AtomicU64::new(0),
        }
    }

    /// Waits until the next operation is due; `None` at the end of the run.
    pub async fn next(&self, alarm: &mut PreciseTimer) -> Option<ScheduledStart> {
        if self.stopped.load(Relaxed) {
            return None;
        }
        let now = clock::real_now();
        let LoadPace::Open { per_second } = self.pace else {
            if self.end.is_some_and(|end| now >= end) || (now >= self.counted && !self.take()) {
                return None;
            }
            return Some(ScheduledStart { due: None });
        };
        let ticket = self.tickets.fetch_add(1, Relaxed);
        let due = self.begun + at(ticket, per_second);
        let beyond = self.end.is_some_and(|end| due >= end || now >= end);
        if beyond || ticket >= self.open_tickets(per_second) {
            self.tickets.fetch_sub(1, Relaxed);
            return None;
        }
        if due > now {
            tokio::select! {
                () = alarm.until(due) => {}
                () = self.stop.cancelled() => {
                    self.tickets.fetch_sub(1, Relaxed);
                    return None;
                }
            }
        }
        Some(ScheduledStart { due: Some(due) })
    }

    /// The number of operations that were due by `end` but never began.
    pub fn unsent(&self, end: Instant) -> u64 {
        let LoadPace::Open { per_second } = self.pace else { return 0 };
        let passed = end.saturating_duration_since(self.begun).as_secs_f64();
        let due = whole((passed * per_second).floor()).min(self.open_tickets(per_second));
        due.saturating_sub(self.tickets.load(Relaxed))
    }

    /// Ends the run early.
    pub fn stop(&self) {
        self.stopped.store(true, Relaxed);
        self.stop.cancel();
    }

    /// Returns true if the run was ended early.
    pub fn is_stopped(&self) -> bool {
        self.stopped.load(Relaxed)
    }

    /// Completes when the run is ended early.
    pub async fn stopped(&self) {
        self.stop.cancelled().await;
    }

    /// Takes the ticket of a counted operation. Returns false if there are none left.
    fn take(&self) -> bool {
        self.most == u64::MAX || self.tickets.fetch_add(1, Relaxed) < self.most
    }

    /// Returns the maximum number of operations in an open loop, including the warm-up.
    fn open_tickets(&self, per_second: f64) -> u64 {
        let warm = self.counted.duration_since(self.begun).as_secs_f64() * per_second;
        self.most.saturating_add(whole(warm.ceil()))
    }
}

/// Returns the due time of a ticket in an open loop, from the start of the run.
fn at(ticket: u64, per_second: f64) -> Duration {
    #[expect(clippy::cast_precision_loss, reason = "no run makes 2^52 calls")]
    let seconds = ticket as f64 / per_second;
    Duration::try_from_secs_f64(seconds).unwrap_or(Duration::MAX / 4)
}

#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "saturates")]
fn whole(value: f64) -> u64 {
    value.max(0.0) as u64
}

pub(crate) use alarm::PreciseTimer;

/// Tokio's timers have millisecond resolution, which is longer than the duration of a call. Calls
/// that wait for them begin late, and the delay would be attributed to the server. The kernel's
/// timers are precise.
#[cfg(target_os = "linux")]
mod alarm {
    use std::os::fd::OwnedFd;
    use std::time::{Duration, Instant};

    use rustix::time::{
        Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, Timespec, timerfd_create,
        timerfd_settime,
    };
    use tokio::io::Interest;
    use tokio::io::unix::AsyncFd;

    use trunkline_core::clock;

    /// A timer with microsecond resolution.
    pub struct PreciseTimer(Option<AsyncFd<OwnedFd>>);

    impl PreciseTimer {
        /// Creates a timer; it has millisecond resolution if the kernel
        /// provides no other.
        pub fn new() -> Self {
            let flags = TimerfdFlags::NONBLOCK | TimerfdFlags::CLOEXEC;
            let timer = timerfd_create(TimerfdClockId::Monotonic, flags).ok();
            #[expect(
                deprecated,
                reason = "an OwnedFd keeps the promise that the new name asks for"
            )]
            let wait = |fd| AsyncFd::with_interest(fd, Interest::READABLE);
            Self(timer.and_then(|fd| wait(fd).ok()))
        }

        /// Waits until `then`.
        pub async fn until(&mut self, then: Instant) {
            let Some(timer) = &self.0 else {
                return tokio::time::sleep_until(then.into()).await;
            };
            loop {
                let left = then.saturating_duration_since(clock::real_now());
                if left.is_zero()
                    || timerfd_settime(timer, TimerfdTimerFlags::empty(), &once(left)).is_err()
                {
                    return;
                }
                match timer.readable().await {
                    Ok(mut ready) => ready.clear_ready(),
                    Err(_) => return,
                }
            }
        }
    }

    fn once(left: Duration) -> Itimerspec {
        Itimerspec {
            it_interval: Timespec { tv_sec: 0, tv_nsec: 0 },
            it_value: Timespec {
                tv_sec: i64::try_from(left.as_secs()).unwrap_or(i64::MAX),
                tv_nsec: left.subsec_nanos().into(),
            },
        }
    }
}

#[cfg(not(target_os = "linux"))]
mod alarm {
    use std::time::Instant;

    /// A timer with millisecond resolution.
    pub struct PreciseTimer;

    impl PreciseTimer {
        /// Creates a timer.
        pub fn new() -> Self {
            Self
        }

        /// Waits until `then`.
        pub async fn until(&mut self, then: Instant) {
            tokio::time::sleep_until(then.into()).await;
        }
    }
}

impl Default for PreciseTimer {
    fn default() -> Self {
        Self::new()
    }
}
