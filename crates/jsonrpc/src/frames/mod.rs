//! Messages: read as frames, alone or in batches, and written.

pub(crate) mod batch;
pub(crate) mod frame;
pub(crate) mod lenient;
pub(crate) mod payload;
pub(crate) mod write;
