//! A request to an endpoint of the API, and its answer.

use std::sync::Arc;

use http::{Response, StatusCode};
use serde::Serialize;

use crate::admin::{StatusReport, json};
use crate::downstream::Body;

use super::problem::{ApiProblem, ProblemCode};

/// A request that passed the checks that all endpoints share.
pub(super) struct EndpointRequest {
    /// The gateway.
    pub(super) report: Arc<StatusReport>,
    /// The values of the path's parameters, and those of the query.
    pub(super) arguments: Vec<(String, String)>,
}

/// The answer of an endpoint.
pub(super) type EndpointAnswer = Result<Response<Body>, ApiProblem>;

impl EndpointRequest {
    /// Returns the value of a parameter of the path or the query.
    pub(super) fn argument(&self, name: &str) -> Option<&str> {
        let mut found = self.arguments.iter().filter(|(key, _)| key == name);
        found.next().map(|(_, value)| value.as_str())
    }
}

/// Answers with a document.
pub(super) fn answer(value: &impl Serialize) -> EndpointAnswer {
    let response = json(StatusCode::OK, value);
    if response.status() == StatusCode::OK {
        return Ok(response);
    }
    Err(ApiProblem::new(ProblemCode::Internal, "the answer could not be written"))
}
