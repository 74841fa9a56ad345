//! Explanations of calls that are not made.

use crate::admin::api::request::{EndpointAnswer, EndpointRequest, answer};
use crate::pipeline::CallQuery;

/// Explains a call.
pub(crate) async fn explain_call(request: EndpointRequest) -> EndpointAnswer {
    let query: CallQuery = request.read_body()?;
    answer(&request.report.explain_call(&query).await)
}
