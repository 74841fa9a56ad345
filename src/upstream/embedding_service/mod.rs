//! A service that computes embeddings of texts, with OpenAI's embeddings API.
//!
//! The service receives only the data that `[search.embeddings]` documents: texts of definitions,
//! and the queries of clients, with the configured headers. Unlike the URLs of `outbound`, its URL
//! comes from the operator. No redirect is followed. A response is limited in size and time, and
//! only its numbers are used: no text of the service gets into a log, a fault or a response to a
//! client.

mod answer;

use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use bytes::Bytes;
use http::{HeaderValue, StatusCode, header};
use serde::Serialize;
use tokio::time::timeout;

use crate::catalog::{MAX_DIMENSIONS, TextVector};
use crate::config::{EmbeddingsConfig, sensitive_headers};
use crate::http_client::{JsonService, JsonServiceFault};
use crate::text::error_chain;

/// A service, with its connections.
#[derive(Debug)]
pub struct EmbeddingService {
    service: JsonService,
    model_name: String,
    /// Number of dimensions in every request, if configured.
    asked_dimensions: Option<usize>,
    /// Number of dimensions of all vectors. 0 until the first response.
    dimensions: AtomicUsize,
    max_answer: usize,
}

/// Error of a request for vectors. The texts contain nothing from the request or the response.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum EmbeddingFault {
    /// The connection cannot be opened, or broke off.
    #[error("the service cannot be reached")]
    Unreachable,
    /// There is no response within the time limit.
    #[error("no answer within {after:?}")]
    Timeout {
        /// The time limit.
        after: Duration,
    },
    /// The status of the response is not 200.
    #[error("the service answered {status}")]
    Status {
        /// The status.
        status: StatusCode,
    },
    /// The response is too large.
    #[error("the answer has more than {limit} bytes")]
    TooLarge {
        /// `max_answer`.
        limit: usize,
    },
    /// The response is not a list of vectors.
    #[error("the answer is not a list of embeddings")]
    Malformed,
    /// There are too few vectors, or too many.
    #[error("expected {expected} vectors, found {found}")]
    Count {
        /// Number of texts in the request.
        expected: usize,
        /// Number of vectors in the response.
        found: usize,
    },
    /// A vector has an unexpected length.
    #[error("expected vectors of {expected} dimensions, found {found}")]
    Dimensions {
        /// Dimensions in the configuration, or of the first response.
        expected: usize,
        /// Dimensions of this vector.
        found: usize,
    },
}

/// Body of a request.
#[derive(Serialize)]
struct AskedEmbeddings<'a> {
    model: &'a str,
    input: &'a [String],
    encoding_format: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    dimensions: Option<usize>,
}

impl EmbeddingFault {
    /// Returns true if another request with fewer or other texts may succeed after one with `count`
    /// texts failed.
    pub fn is_about_texts(&self, count: usize) -> bool {
        match self {
            Self::TooLarge { .. } => count > 1,
            Self::Status { status } => matches!(
                *status,
                StatusCode::BAD_REQUEST
                    | StatusCode::PAYLOAD_TOO_LARGE
                    | StatusCode::UNPROCESSABLE_ENTITY
            ),
            _ => false,
        }
    }
}

impl EmbeddingService {
    /// Creates the service of a configuration. Returns `None` if the configuration has a local
    /// model instead.
    pub fn from_config(config: &EmbeddingsConfig) -> Option<Self> {
        let (url, model_name) = config.url.clone().zip(config.model_name.clone())?;
        let mut headers = sensitive_headers(&config.headers);
        headers.insert(header::ACCEPT, HeaderValue::from_static("application/json"));
        Some(Self {
            service: JsonService::new(url, headers, MAX_IDLE_CONNECTIONS),
            model_name,
            asked_dimensions: config.dimensions,
            dimensions: AtomicUsize::new(config.dimensions.unwrap_or_default()),
            max_answer: config.max_answer,
        })
    }

    /// Returns the number of dimensions of its vectors, or `None` before the first response.
    pub fn dimensions(&self) -> Option<usize> {
        Some(self.dimensions.load(Ordering::Relaxed)).filter(|known| *known > 0)
    }

    /// Requests the vectors of texts, in their order. Returns `None` for a vector with only zeros.
    ///
    /// # Errors
    /// [`EmbeddingFault`] if there is no complete response within `after`.
    ///
    /// # Cancel safety
    /// Safe.
    pub async fn embed(
        &self,
        texts: &[String],
        after: Duration,
    ) -> Result<Vec<Option<TextVector>>, EmbeddingFault> {
        let asked = timeout(after, self.post(texts)).await;
        let body = asked.unwrap_or(Err(EmbeddingFault::Timeout { after }))?;
        let vectors = answer::read_vectors(&body, texts.len())?;
        vectors.iter().try_for_each(|numbers| self.check_dimensions(numbers.len()))?;
        Ok(vectors.iter().map(|numbers| TextVector::from_numbers(numbers)).collect())
    }

    /// Refuses vectors of another length than before, which cannot be compared: the service has
    /// changed its model, or the configuration is wrong.
    fn check_dimensions(&self, found: usize) -> Result<(), EmbeddingFault> {
        if !(1..=MAX_DIMENSIONS).contains(&found) {
            return Err(EmbeddingFault::Dimensions { expected: MAX_DIMENSIONS, found });
        }
        let first =
            self.dimensions.compare_exchange(0, found, Ordering::Relaxed, Ordering::Relaxed);
        match first {
            Err(expected) if expected != found => {
                Err(EmbeddingFault::Dimensions { expected, found })
            }
            _ => Ok(()),
        }
    }

    async fn post(&self, texts: &[String]) -> Result<Bytes, EmbeddingFault> {
        let asked = AskedEmbeddings {
            model: &self.model_name,
            input: texts,
            encoding_format: "float",
            dimensions: self.asked_dimensions,
        };
        let asked =
            serde_json::to_vec(&asked).map_err(|error| note_unreachable(&error_chain(&error)))?;
        self.service.post(asked, self.max_answer).await.map_err(|fault| match fault {
            JsonServiceFault::Unreachable { cause } => note_unreachable(&cause),
            JsonServiceFault::Status { status } => EmbeddingFault::Status { status },
            JsonServiceFault::TooLarge { limit } => EmbeddingFault::TooLarge { limit },
        })
    }
}

fn note_unreachable(error: &str) -> EmbeddingFault {
    tracing::debug!(error, "the embedding service cannot be reached");
    EmbeddingFault::Unreachable
}

/// Maximum number of idle connections.
const MAX_IDLE_CONNECTIONS: usize = 8;
