//! Responses to clients: as JSON, or as event streams.

pub(crate) mod body;
pub(crate) mod event_stream;
pub(crate) mod list_changes;
pub(crate) mod open_streams;
pub(crate) mod response;
