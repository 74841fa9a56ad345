//! `[servers.NAME.breaker]`: refuses the calls of a failing server for a while.

use std::time::Duration;

use crate::reader::macros::section;
use crate::reader::values::numbers::CountSetting;
use crate::reader::values::units::{DurationSetting, PercentSetting};

section! {
    /// The circuit breaker of a server. While it is open, calls fail at once and the server is left
    /// alone. Lost connections, servers that are not running, timeouts and the HTTP statuses 500 to
    /// 599 count as failures; tool errors, cancelled calls and refused arguments do not.
    #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
    pub struct BreakerConfig {
        settings {
            /// The number of failures in a row that opens the breaker.
            failures: Option<usize> as Option<CountSetting<1, 10_000>> = 5,
            /// The part of the calls within `window` that has to fail to open it. By default there is
            /// no such ratio.
            ratio: Option<usize> as Option<PercentSetting>,
            /// The time over which `ratio` is computed.
            window: Duration as DurationSetting = "30s",
            /// The number of calls within `window` below which `ratio` does not apply.
            minimum: usize as CountSetting<1, 100_000> = 20,
            /// The time that it stays open. Then single calls probe the server, one at a time.
            open_time: Duration as DurationSetting = "30s",
            /// The number of successful probes in a row that close it. A failed probe opens it
            /// again.
            probes: usize as CountSetting<1, 100> = 1,
        }
    }
}
