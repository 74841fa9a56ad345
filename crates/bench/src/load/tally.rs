//! Counts and timings.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use hdrhistogram::Histogram;

use crate::exchange::answer::AnswerError;
use crate::exchange::answer_check::CorrectAnswer;
use crate::session::plan::Op;

/// The counts of one thread, or of a whole run.
#[derive(Debug, Clone)]
pub struct Tally {
    /// Counts by operation.
    pub ops: BTreeMap<Op, OpTally>,
    /// Failures by kind: the count, and the first message.
    pub troubles: BTreeMap<String, (u64, String)>,
    /// Text of the first answer with `isError`.
    pub first_tool_error: Option<Arc<str>>,
    /// The course of the run over time.
    pub slices: Slices,
    /// The bytes of bodies received.
    pub bytes: u64,
    /// The number of connections that were opened again.
    pub reconnects: u64,
    /// Operations that were still in flight when the run stopped waiting.
    pub unfinished: u64,
}

/// The counts of one operation.
#[derive(Debug, Clone)]
pub struct OpTally {
    /// Correct answers without `isError`.
    pub done: u64,
    /// Those of them before the end of the run.
    pub in_time: u64,
    /// Answers with `isError`: like failures, they have no latency.
    pub tool_errors: u64,
    /// Failures.
    pub failed: u64,
    /// Nanoseconds from the due time to the answer.
    pub latency: Histogram<u64>,
    /// Nanoseconds from the request to the answer.
    pub service: Histogram<u64>,
}

/// Times of an operation.
#[derive(Debug, Clone, Copy)]
pub struct Times {
    /// Due time.
    pub due: Instant,
    /// Time of sending.
    pub sent: Instant,
    /// Time at which the answer was complete.
    pub arrived: Instant,
}

impl Tally {
    /// Creates empty counts for a run with a counted part that begins at `counted`.
    pub fn new(counted: Instant) -> Self {
        Self {
            ops: BTreeMap::new(),
            troubles: BTreeMap::new(),
            first_tool_error: None,
            slices: Slices::new(counted),
            bytes: 0,
            reconnects: 0,
            unfinished: 0,
        }
    }

    /// Counts a correct answer. One with `isError` counts like a failure: it shows the speed of the
    /// error only.
    pub fn right(&mut self, op: Op, right: CorrectAnswer, times: &Times, end: Option<Instant>) {
        let own = self.ops.entry(op).or_default();
        if let CorrectAnswer::ToolError(text) = right {
            own.tool_errors += 1;
            self.first_tool_error.get_or_insert(text);
            if !op.is_part() {
                self.slices.at(times.due).failed += 1;
            }
            return;
        }
        own.done += 1;
        own.in_time += u64::from(end.is_none_or(|end| times.arrived <= end));
        let latency = nanoseconds(times.arrived, times.due);
        // These histograms resize themselves: recording cannot fail.
        let _ = own.latency.record(latency);
        let _ = own.service.record(nanoseconds(times.arrived, times.sent));
        if !op.is_part() {
            let _ = self.slices.at(times.due).latency.record(latency / 1000);
        }
    }

    /// Counts a failure.
    pub fn wrong(&mut self, op: Op, trouble: &AnswerError, due: Instant) {
        self.ops.entry(op).or_default().failed += 1;
        if !op.is_part() {
            self.slices.at(due).failed += 1;
        }
        let kind = trouble.kind();
        let full = self.troubles.len() >= MAX_FAILURE_KINDS && !self.troubles.contains_key(&kind);
        let kind = if full { "others".into() } else { kind };
        self.troubles.entry(kind).or_insert_with(|| (0, trouble.to_string())).0 += 1;
    }

    /// Adds the counts of another thread.
    pub fn add(&mut self, other: Self) {
        for (op, theirs) in other.ops {
            let own = self.ops.entry(op).or_default();
            own.done += theirs.done;
            own.in_time += theirs.in_time;
            own.tool_errors += theirs.tool_errors;
            own.failed += theirs.failed;
            // Both resize themselves: adding cannot fail.
            let _ = own.latency.add(theirs.latency);
            let _ = own.service.add(theirs.service);
        }
        for (kind, (count, first)) in other.troubles {
            self.troubles.entry(kind).or_insert_with(|| (0, first)).0 += count;
        }
        if self.first_tool_error.is_none() {
            self.first_tool_error = other.first_tool_error;
        }
        self.slices.add(other.slices);
        self.bytes += other.bytes;
        self.reconnects += other.reconnects;
        self.unfinished += other.unfinished;
    }

    /// The sum of all operations that are not part of another.
    pub fn whole(&self) -> OpTally {
        let mut whole = OpTally::default();
        for (_, own) in self.ops.iter().filter(|(op, _)| !op.is_part()) {
            whole.done += own.done;
            whole.in_time += own.in_time;
            whole.tool_errors += own.tool_errors;
            whole.failed += own.failed;
            let _ = whole.latency.add(&own.latency);
            let _ = whole.service.add(&own.service);
        }
        whole
    }
}

impl Default for OpTally {
    fn default() -> Self {
        Self {
            done: 0,
            in_time: 0,
            tool_errors: 0,
            failed: 0,
            latency: histogram(3),
            service: histogram(3),
        }
    }
}

/// The run in slices of equal width, which grows with the duration of the run.
#[derive(Debug, Clone)]
pub struct Slices {
    counted: Instant,
    /// The width of each slice.
    pub width: Duration,
    /// The slices so far.
    pub all: Vec<Slice>,
}

/// The operations that were due within one slice.
#[derive(Debug, Clone)]
pub struct Slice {
    /// Latency in microseconds.
    pub latency: Histogram<u64>,
    /// The number of failures, and of answers with `isError`.
    pub failed: u64,
}

impl Slices {
    fn new(counted: Instant) -> Self {
        Self { counted, width: FIRST_SLICE_WIDTH, all: Vec::new() }
    }

    fn at(&mut self, due: Instant) -> &mut Slice {
        let passed = due.saturating_duration_since(self.counted);
        while self.place(passed) >= MAX_SLICES {
            self.double();
        }
        let place = self.place(passed);
        while self.all.len() <= place {
            self.all.push(Slice { latency: histogram(2), failed: 0 });
        }
        // The slice exists: the loop above adds it.
        #[expect(clippy::indexing_slicing, reason = "the loop above sees to it")]
        &mut self.all[place]
    }

    fn place(&self, passed: Duration) -> usize {
        usize::try_from(passed.as_nanos() / self.width.as_nanos().max(1)).unwrap_or(usize::MAX)
    }

    fn double(&mut self) {
        self.width *= 2;
        let mut all = std::mem::take(&mut self.all).into_iter();
        while let Some(mut slice) = all.next() {
            if let Some(next) = all.next() {
                slice.add(next);
            }
            self.all.push(slice);
        }
    }

    fn add(&mut self, mut other: Self) {
        while self.width < other.width {
            self.double();
        }
        while other.width < self.width {
            other.double();
        }
        for (place, slice) in other.all.into_iter().enumerate() {
            match self.all.get_mut(place) {
                Some(own) => own.add(slice),
                None => self.all.push(slice),
            }
        }
    }
}

impl Slice {
    fn add(&mut self, other: Self) {
        let _ = self.latency.add(other.latency);
        self.failed += other.failed;
    }
}

/// A histogram that resizes itself.
fn histogram(digits: u8) -> Histogram<u64> {
    match Histogram::new(digits) {
        Ok(histogram) => histogram,
        // Only more than five digits are rejected.
        Err(_) => unreachable!("{digits} digits"),
    }
}

fn nanoseconds(later: Instant, earlier: Instant) -> u64 {
    let nanoseconds = later.saturating_duration_since(earlier).as_nanos();
    u64::try_from(nanoseconds).unwrap_or(u64::MAX).max(1)
}

/// The initial width of a slice.
const FIRST_SLICE_WIDTH: Duration = Duration::from_millis(100);
/// Maximum number of slices.
const MAX_SLICES: usize = 240;
/// Maximum number of distinguished kinds of failures.
const MAX_FAILURE_KINDS: usize = 32;

#[cfg(test)]
mod tests {
    use trunkline_core::clock;

    use super::*;

    fn times(counted: Instant, due: u64, took: u64) -> Times {
        let due = counted + Duration::from_millis(due);
        Times { due, sent: due, arrived: due + Duration::from_millis(took) }
    }

    #[test]
    fn slices_get_longer_and_lose_nothing() {
        let counted = clock::real_now();
        let (mut one, mut other) = (Tally::new(counted), Tally::new(counted));
        for due in 0..100 {
            one.right(Op::Call, CorrectAnswer::Result, &times(counted, due * 1000, 5), None);
            let error = CorrectAnswer::ToolError("quota".into());
            other.right(Op::Call, error, &times(counted, due, 7), None);
        }
        other.wrong(Op::Call, &AnswerError::Timeout, counted);
        assert!(one.slices.all.len() <= MAX_SLICES && one.slices.width > FIRST_SLICE_WIDTH);
        one.add(other);
        let all: u64 = one.slices.all.iter().map(|slice| slice.latency.len()).sum();
        assert_eq!((all, one.slices.all[0].failed), (100, 101));
        let whole = one.whole();
        assert_eq!((whole.done, whole.tool_errors, whole.failed), (100, 100, 1));
        assert_eq!(one.first_tool_error.as_deref(), Some("quota"));
        let p50 = whole.latency.value_at_quantile(0.5);
        assert!((4_990_000..5_010_000).contains(&p50), "{p50}");
        assert_eq!(one.troubles["timeout"].0, 1);
    }

    #[test]
    fn parts_of_sessions_are_not_counted_twice() {
        let counted = clock::real_now();
        let mut tally = Tally::new(counted);
        for op in [Op::Initialize, Op::SessionCall, Op::Delete, Op::Session] {
            tally.right(op, CorrectAnswer::Result, &times(counted, 1, 1), None);
        }
        assert_eq!(tally.whole().done, 1);
    }
}
