//! A service that makes vectors of texts, with OpenAI's API for embeddings.
//!
//! It is sent what `[search.embeddings]` says it is sent: texts of definitions, and the queries of
//! clients, with the configured headers and nothing else. Its URL is the operator's, unlike those that
//! `outbound` asks; no redirect is followed. An answer is bounded in size and time, and nothing of it
//! but numbers is used: no text of the service gets into a log, a fault or an answer to a client.

mod answer;

use std::error::Error;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use bytes::Bytes;
use http::{HeaderMap, HeaderName, HeaderValue, Request, StatusCode, header};
use http_body_util::Full;
use hyper_rustls::HttpsConnector;
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioExecutor;
use serde::Serialize;
use tokio::sync::OnceCell;
use tokio::task::spawn_blocking;
use tokio::time::timeout;
use url::Url;

use crate::catalog::{MAX_DIMENSIONS, TextVector};
use crate::codec::body::{BodyError, collect};
use crate::config::{EmbeddingsConfig, Secret};
use crate::telemetry::https::{https_connector, platform_tls_config};
use crate::text::error_chain;

type ServiceClient = Client<HttpsConnector<HttpConnector>, Full<Bytes>>;

/// A service, with its connections.
#[derive(Debug)]
pub struct EmbeddingService {
    url: Url,
    headers: HeaderMap,
    model_name: String,
    /// What every request asks for.
    asked_dimensions: Option<usize>,
    /// The dimensions of all vectors; 0 until the first answer.
    dimensions: AtomicUsize,
    max_answer: usize,
    /// Built with the first request: reading the roots of trust takes milliseconds.
    client: OnceCell<ServiceClient>,
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
        Some(Self {
            url,
            headers: request_headers(&config.headers),
            model_name,
            asked_dimensions: config.dimensions,
            dimensions: AtomicUsize::new(config.dimensions.unwrap_or_default()),
            max_answer: config.max_answer,
            client: OnceCell::new(),
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
        let client = self.client.get_or_try_init(|| self.build_client()).await?;
        let asked = AskedEmbeddings {
            model: &self.model_name,
            input: texts,
            encoding_format: "float",
            dimensions: self.asked_dimensions,
        };
        let asked = serde_json::to_vec(&asked).map_err(|error| note_unreachable(&error))?;
        let mut request = Request::post(self.url.as_str())
            .body(Full::new(Bytes::from(asked)))
            .map_err(|error| note_unreachable(&error))?;
        *request.headers_mut() = self.headers.clone();
        let response = client.request(request).await.map_err(|error| note_unreachable(&error))?;
        let status = response.status();
        if status != StatusCode::OK {
            return Err(EmbeddingFault::Status { status });
        }
        let limit = self.max_answer;
        collect(response.into_body(), limit).await.map_err(|error| match error {
            BodyError::TooLarge { .. } | BodyError::Chatter { .. } => {
                EmbeddingFault::TooLarge { limit }
            }
            BodyError::Broken(error) => note_unreachable(&error),
        })
    }

    async fn build_client(&self) -> Result<ServiceClient, EmbeddingFault> {
        let url = self.url.clone();
        let tls = spawn_blocking(move || platform_tls_config(&url)).await;
        let Ok(Ok(tls)) = tls else { return Err(EmbeddingFault::Unreachable) };
        let mut client = Client::builder(TokioExecutor::new());
        client.pool_max_idle_per_host(MOST_IDLE).pool_idle_timeout(IDLE);
        Ok(client.build(https_connector(tls)))
    }
}

fn request_headers(configured: &[(HeaderName, Secret)]) -> HeaderMap {
    let headers = configured.iter().filter_map(|(name, secret)| {
        let mut value = HeaderValue::from_str(secret.expose()).ok()?;
        value.set_sensitive(true);
        Some((name.clone(), value))
    });
    let mut headers: HeaderMap = headers.collect();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
    headers.insert(header::ACCEPT, HeaderValue::from_static("application/json"));
    headers
}

fn note_unreachable(error: &(dyn Error + 'static)) -> EmbeddingFault {
    let error = error_chain(error);
    tracing::debug!(error, "the service of embeddings cannot be reached");
    EmbeddingFault::Unreachable
}

/// How many idle connections are kept, and for how long.
const MOST_IDLE: usize = 8;
const IDLE: Duration = Duration::from_secs(30);
