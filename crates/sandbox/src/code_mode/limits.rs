//! Limits of a script.

use std::time::Duration;

use serde::{Deserialize, Serialize};

/// Limits of a script. All of them are required.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ScriptLimits {
    /// Processor time, without the start of the child. Waiting for tools uses none.
    pub cpu_time: Duration,
    /// Time from the start to the end, including the wait for tools.
    pub wall_time: Duration,
    /// Bytes of the interpreter's heap.
    pub memory: usize,
    /// Bytes of the interpreter's stack; at most [`ScriptLimits::MAX_STACK`] are used.
    pub stack: usize,
    /// Tool calls in total.
    pub calls: usize,
    /// Tool calls at once; at least one. The child queues further ones.
    pub parallel: usize,
    /// Bytes of code.
    pub code: usize,
    /// Bytes of printed text. Further text is cut, and the script continues.
    pub printed: usize,
    /// Bytes of the returned value as JSON. A larger value is a fault.
    pub returned: usize,
    /// Bytes of the arguments of one call as JSON. A call with more is rejected.
    pub arguments: usize,
    /// Bytes of the result of one call as JSON. A call with a larger one is rejected.
    pub result: usize,
}

impl ScriptLimits {
    /// Maximum bytes of stack. The rest of the usual 8 MiB is for the functions that the
    /// interpreter itself calls.
    pub const MAX_STACK: usize = 4 << 20;
}

impl Default for ScriptLimits {
    fn default() -> Self {
        Self {
            cpu_time: Duration::from_secs(10),
            wall_time: Duration::from_mins(10),
            memory: 64 << 20,
            stack: 1 << 20,
            calls: 500,
            parallel: 8,
            code: 256 << 10,
            printed: 64 << 10,
            returned: 256 << 10,
            arguments: 1 << 20,
            result: 4 << 20,
        }
    }
}
