//! Failures of requests for elements that their client does not have: the same for unknown elements
//! and for hidden ones.

use crate::call::Failure;
use crate::catalog::MAX_URI;
use crate::text::clip;

/// Returns the failure of a request for an unknown resource.
pub(crate) fn unknown_resource(uri: &str) -> Failure {
    Failure::UnknownResource { uri: clip(uri, MAX_URI).to_owned() }
}

/// Returns the failure of a request about an unknown task.
pub(crate) fn unknown_task(id: &str) -> Failure {
    Failure::UnknownTask { id: clip(id, MAX_ID).to_owned() }
}

/// The longest id that an error repeats.
const MAX_ID: usize = 256;
