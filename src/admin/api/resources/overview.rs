//! The gateway as a whole.

use crate::admin::api::request::{EndpointAnswer, EndpointRequest, answer};

/// Answers with the status.
pub(crate) fn answer_status(request: &EndpointRequest) -> EndpointAnswer {
    answer(&request.status())
}
