//! Limits of texts that come from documents.

/// Maximum length in bytes of a tool's description, and of the API's.
pub(crate) const MAX_DESCRIPTION_BYTES: usize = 4096;
/// Maximum length in bytes of a title, a name or a path.
pub(crate) const MAX_TITLE_BYTES: usize = 200;
