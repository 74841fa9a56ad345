//! A service that makes vectors of texts, with OpenAI's API for embeddings.
//!
//! It is sent what `[search.embeddings]` says it is sent: texts of definitions, and the queries of
//! clients, with the configured headers and nothing else. Its URL is the operator's, unlike those that
//! `outbound` asks; no redirect is followed. An answer is bounded in size and time, and nothing of it
//! but numbers is used: no text of the service gets into a log, a fault or an answer to a client.

mod answer;

use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use bytes::Bytes;
use http::{HeaderValue, StatusCode, header};
use serde::Serialize;
use tokio::time::timeout;

use crate::catalog::{MAX_DIMENSIONS, TextVector};
use crate::config::{EmbeddingsConfig, sensitive_headers};
use crate::telemetry::https::{JsonService, JsonServiceFault};
use crate::text::error_chain;

/// A service, with its connections.
#[derive(Debug)]
pub struct EmbeddingService {
    service: JsonService,
    model_name: String,
    /// What every request asks for.
    asked_dimensions: Option<usize>,
    /// The dimensions of all vectors; 0 until the first answer.
    dimensions: AtomicUsize,
    max_answer: usize,
}

/// Why there are no vectors. The texts have nothing of what was sent or answered.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum EmbeddingFault {
    /// There is no connection, or it broke off.
    #[error("the service cannot be reached")]
    Unreachable,
    /// There is no answer in time.
    #[error("no answer within {after:?}")]
    Timeout {
        /// The time.
        after: Duration,
    },
    /// The answer is not 200.
    #[error("the service answered {status}")]
    Status {
        /// The status.
        status: StatusCode,
    },
    /// The answer is too large.
    #[error("the answer has more than {limit} bytes")]
    TooLarge {
        /// `max_answer`.
        limit: usize,
    },
    /// The answer is not a list of vectors.
    #[error("the answer is not a list of embeddings")]
    Malformed,
    /// There are too few vectors, or too many.
    #[error("expected {expected} vectors, found {found}")]
    Count {
        /// How many texts were sent.
        expected: usize,
        /// How many vectors came back.
        found: usize,
    },
    /// A vector has another length than it should.
    #[error("expected vectors of {expected} dimensions, found {found}")]
    Dimensions {
        /// Those of the configuration, or of the first answer.
        expected: usize,
        /// Those of this vector.
        found: usize,
    },
}

/// The body of a request.
#[derive(Serialize)]
struct AskedEmbeddings<'a> {
    model: &'a str,
    input: &'a [String],
    encoding_format: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    dimensions: Option<usize>,
}

impl EmbeddingFault {
    /// Whether another request with fewer or other texts may succeed where one with so many did not.
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
    /// The service of a configuration; `None` if that has a model instead.
    pub fn from_config(config: &EmbeddingsConfig) -> Option<Self> {
        let (url, model_name) = config.url.clone().zip(config.model_name.clone())?;
        let mut headers = sensitive_headers(&config.headers);
        headers.insert(header::ACCEPT, HeaderValue::from_static("application/json"));
        Some(Self {
            service: JsonService::new(url, headers, MOST_IDLE),
            model_name,
            asked_dimensions: config.dimensions,
            dimensions: AtomicUsize::new(config.dimensions.unwrap_or_default()),
            max_answer: config.max_answer,
        })
    }

    /// The number of dimensions of its vectors; `None` before the first answer.
    pub fn dimensions(&self) -> Option<usize> {
        Some(self.dimensions.load(Ordering::Relaxed)).filter(|known| *known > 0)
    }

    /// Asks for the vectors of texts, in their order; `None` for one that has only zeros.
    ///
    /// # Errors
    /// [`EmbeddingFault`] if there is no complete answer within `after`.
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

    /// Vectors of different lengths cannot be compared: the service has another model now, or the
    /// configuration is wrong.
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
    tracing::debug!(error, "the service of embeddings cannot be reached");
    EmbeddingFault::Unreachable
}

/// How many idle connections are kept.
const MOST_IDLE: usize = 8;
