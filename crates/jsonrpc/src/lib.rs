//! Bytes to JSON-RPC frames and back.
//!
//! One pass finds the members of a JSON-RPC 2.0 message as slices of the bytes it came in. The same
//! pass records an outline of its params or its result, so that they need not be scanned again; no
//! values are built. Changes are spliced in, and everything else is never serialised again.
//!
//! This crate knows no method names and no protocol eras; reading from networks and pipes is the job
//! of [`trunkline_core::codec`]. Its modules are listed in the order of use: a module uses those after
//! it.

#![warn(unreachable_pub)]

mod scanning;
mod frames;
mod members;
mod strict;
mod outline;
mod walk;
mod masks;
mod splice;
mod depth;
mod written_object;

pub use depth::{DepthError, MAX_CLIENT_DEPTH, MAX_SERVER_DEPTH, nesting_depth, within_depth};
pub use frames::batch::split_batch;
pub use frames::frame::{Frame, FrameFault, Id, Response, parse};
pub use frames::lenient::{ServerText, parse_from_server, parse_unusual, whole_number};
pub use frames::payload::Payload;
pub use frames::write::{
    error, error_object, notification, object_of, request, request_with, response, response_with,
    string,
};
pub use members::{MemberKey, Members, has_duplicate};
pub use outline::{Outline, OutlinePart, OutlineParts, Spot};
pub use scanning::scanner::Scanner;
pub use splice::{Splice, span_of};
pub use strict::{JsonError, check_depth, parse_strict};
pub use walk::{JsonSyntaxError, ObjectError, members};
pub use written_object::WrittenObject;

use std::borrow::Cow;

use serde::Deserialize;
use serde::de::{Deserializer, Error as _};
use serde_json::value::RawValue;

/// Deserialises a member that is present, even if it is `null`: serde's own
/// `Option` treats `null` as an absent member.
///
/// # Errors
/// The deserializer's own.
pub fn present<'de, D: Deserializer<'de>>(
    deserializer: D,
) -> Result<Option<&'de RawValue>, D::Error> {
    <&RawValue>::deserialize(deserializer).map(Some)
}

/// Deserialises a struct from a JSON object. serde alone accepts an array, too.
///
/// # Errors
/// Returns an error if the text is not an object or does not fit the struct.
pub fn object<'a, T: Deserialize<'a>>(text: &'a [u8]) -> Result<T, serde_json::Error> {
    if text.iter().find(|byte| !byte.is_ascii_whitespace()) == Some(&b'[') {
        return Err(serde_json::Error::custom("expected an object, not an array"));
    }
    serde_json::from_slice(text)
}

/// The unescaped text of a raw JSON string; `None` if the value is not a string.
#[inline]
pub fn text(raw: &RawValue) -> Option<Cow<'_, str>> {
    unquoted(raw.get().as_bytes())
}

/// The unescaped text of a JSON string in bytes; `None` if it is not a string.
#[inline]
pub fn unquoted(raw: &[u8]) -> Option<Cow<'_, str>> {
    let inner = raw.strip_prefix(b"\"")?.strip_suffix(b"\"")?;
    if inner.contains(&b'\\') {
        serde_json::from_slice::<String>(raw).ok().map(Cow::Owned)
    } else {
        std::str::from_utf8(inner).ok().map(Cow::Borrowed)
    }
}
