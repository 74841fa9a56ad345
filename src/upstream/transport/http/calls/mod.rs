//! Calls over HTTP, and their replies.
//!
//! [`reply`] reads a response, [`large_result`] a large JSON one in chunks. [`streamed_call`] makes a
//! reply of a call's stream, and [`resume`] continues a stream that broke. [`outcome`] judges the
//! result of each request.

pub(super) mod large_result;
mod outcome;
pub(super) mod reply;
pub(super) mod resume;
pub(super) mod streamed_call;
