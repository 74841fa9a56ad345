//! A request to an endpoint of the API, and its answer.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use bytes::Bytes;
use http::{Response, StatusCode};
use jiff::Timestamp;
use parking_lot::Mutex;
use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::admin::findings::limit_status;
use crate::admin::{Status, StatusReport, StatusSource as _, json};
use crate::config::AdminRole;
use crate::downstream::Body;

use super::access::{OperatorIdentity, OperatorWatch};
use super::problem::{ApiProblem, ProblemCode};

/// A request that passed the checks that all endpoints share.
pub(super) struct EndpointRequest {
    /// The gateway.
    pub(super) report: Arc<StatusReport>,
    /// The role of its sender.
    pub(super) role: AdminRole,
    /// Its sender.
    pub(super) operator: OperatorIdentity,
    /// The least role of the endpoint.
    pub(super) least: AdminRole,
    /// The values of the path's parameters, and those of the query.
    pub(super) arguments: Vec<(String, String)>,
    /// The body; empty for a request that reads.
    pub(super) body: Bytes,
    /// Facts for the record of a change.
    pub(super) notes: ChangeNotes,
}

/// Facts for the record of a change, which its endpoint adds.
#[derive(Debug, Clone, Default)]
pub(super) struct ChangeNotes {
    digests: Arc<Mutex<Vec<String>>>,
    is_refused: Arc<AtomicBool>,
    client: Arc<Mutex<Option<String>>>,
}

impl ChangeNotes {
    /// Adds the digests of the definitions that the change is about. Other texts are left out.
    pub(super) fn add_digests(&self, digests: &[String]) {
        let is_digest = |text: &&String| {
            text.len() == SHA256_DIGITS && text.bytes().all(|byte| byte.is_ascii_hexdigit())
        };
        self.digests.lock().extend(digests.iter().filter(is_digest).cloned());
    }

    /// Notes the client that the request names as the caller of a call.
    pub(super) fn note_client(&self, name: &str) {
        *self.client.lock() = Some(name.to_owned());
    }

    /// Returns the client of [`Self::note_client`].
    pub(super) fn client(&self) -> Option<String> {
        self.client.lock().clone()
    }

    /// Notes that the endpoint refuses the request and makes no record of its own.
    pub(super) fn note_refusal(&self) {
        self.is_refused.store(true, Ordering::Relaxed);
    }

    /// Returns true after [`Self::note_refusal`].
    pub(super) fn is_refused(&self) -> bool {
        self.is_refused.load(Ordering::Relaxed)
    }

    /// Returns the digests.
    pub(super) fn digests(&self) -> Vec<String> {
        self.digests.lock().clone()
    }
}

/// The answer of an endpoint.
pub(super) type EndpointAnswer = Result<Response<Body>, ApiProblem>;

impl EndpointRequest {
    /// Returns the status of the gateway, as the sender may see it.
    pub(super) fn status(&self) -> Status {
        limit_status(self.report.status(), self.role)
    }

    /// Returns the value of a parameter of the path or the query.
    pub(super) fn argument(&self, name: &str) -> Option<&str> {
        let mut found = self.arguments.iter().filter(|(key, _)| key == name);
        found.next().map(|(_, value)| value.as_str())
    }

    /// Returns the value of a parameter that is one word of these; `None` without it.
    ///
    /// # Errors
    /// [`ProblemCode::InvalidRequest`].
    pub(super) fn word_argument(
        &self,
        name: &str,
        words: &[&'static str],
    ) -> Result<Option<&'static str>, ApiProblem> {
        let Some(value) = self.argument(name) else { return Ok(None) };
        let known = words.iter().find(|word| **word == value).copied();
        let expected =
            || ApiProblem::invalid(format!("{name}: expected one of {}", words.join(", ")));
        known.map(Some).ok_or_else(expected)
    }

    /// Returns the value of a parameter that is a whole number up to a limit.
    ///
    /// # Errors
    /// [`ProblemCode::InvalidRequest`].
    pub(super) fn count_argument(&self, name: &str, most: u64) -> Result<Option<u64>, ApiProblem> {
        let Some(value) = self.argument(name) else { return Ok(None) };
        let number = value.parse().ok().filter(|number| *number <= most);
        let expected =
            || ApiProblem::invalid(format!("{name}: expected a whole number up to {most}"));
        number.map(Some).ok_or_else(expected)
    }

    /// Returns the value of a parameter that is a time.
    ///
    /// # Errors
    /// [`ProblemCode::InvalidRequest`].
    pub(super) fn time_argument(&self, name: &str) -> Result<Option<Timestamp>, ApiProblem> {
        let read = self.argument(name).map(str::parse).transpose();
        let expected = |_| {
            ApiProblem::invalid(format!("{name}: expected a time such as 2026-11-28T12:00:00Z"))
        };
        read.map_err(expected)
    }

    /// Watches for the loss of the sender's access, for an answer that lasts.
    pub(super) fn watch_access(&self) -> OperatorWatch {
        OperatorWatch::new(&self.report.gateway, self.operator.clone(), self.least)
    }

    /// Returns a number in the path.
    ///
    /// # Errors
    /// [`ProblemCode::InvalidRequest`].
    pub(super) fn number(&self, name: &str) -> Result<u64, ApiProblem> {
        let text = self.argument(name).unwrap_or_default();
        text.parse().map_err(|_| ApiProblem::invalid(format!("{name}: expected a number")))
    }

    /// Reads the body.
    ///
    /// # Errors
    /// [`ProblemCode::InvalidRequest`].
    pub(super) fn read_body<T: DeserializeOwned>(&self) -> Result<T, ApiProblem> {
        let read = serde_json::from_slice(&self.body);
        read.map_err(|error| ApiProblem::invalid(format!("the body is not valid: {error}")))
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

/// Digits of a SHA-256.
const SHA256_DIGITS: usize = 64;
