//! Core dumps: a crash writes no memory to a disk, unless the configuration allows it.

use rustix::process::{Resource, Rlimit, setrlimit};

use crate::config::Config;
use crate::text::error_chain;

/// Forbids core dumps of this process and of its children permanently: none of them can raise the
/// limit. Has no effect if the configuration allows core dumps.
pub(crate) fn limit_core_dumps(config: &Config) {
    if config.gateway.core_dumps {
        return;
    }
    let none = Rlimit { current: Some(0), maximum: Some(0) };
    if let Err(error) = setrlimit(Resource::Core, none) {
        tracing::warn!(reason = error_chain(&error), "core dumps cannot be forbidden");
    }
}
