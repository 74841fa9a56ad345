//! The interpreter of a build without the feature `code-mode`: it runs no script.

use std::io::{self, BufRead, Write};

use super::ScriptLimits;

/// Rejects every script, without reading it. The configuration rejects the settings that would
/// start one, and names the feature.
///
/// # Errors
/// [`io::ErrorKind::Unsupported`].
pub(super) fn serve_script(
    _: &ScriptLimits,
    _: impl BufRead,
    _: impl Write + 'static,
) -> io::Result<()> {
    Err(io::Error::new(io::ErrorKind::Unsupported, "this build cannot run code"))
}
