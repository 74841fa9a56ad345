//! Limits of texts that come from documents.

/// Maximum length in bytes of a tool's description, and of the API's.
pub(crate) const LONGEST_TEXT: usize = 4096;
/// Maximum length in bytes of a title, a name or a path.
pub(crate) const LONGEST_TITLE: usize = 200;
