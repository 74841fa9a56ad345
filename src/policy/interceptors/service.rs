//! The HTTP client of one interceptor.

use std::error::Error;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::{HeaderMap, HeaderValue, Request, StatusCode, header};
use http_body_util::Full;
use hyper_rustls::HttpsConnector;
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioExecutor;
use jiff::Timestamp;
use tokio::sync::OnceCell;
use tokio::task::spawn_blocking;
use tokio::time::{Instant, timeout};

use crate::call::{Context, InterceptorFault};
use crate::clock;
use crate::codec::body::{BodyError, collect};
use crate::config::{InterceptedPhase, InterceptorConfig};
use crate::mcp::Method;
use crate::telemetry::https::{https_connector, platform_tls_config};
use crate::text::error_chain;

use super::super::breaker::{Breaker, BreakerSubject, CallVerdict};
use super::message::{Intercepted, Verdict, read_verdict};

type HttpsClient = Client<HttpsConnector<HttpConnector>, Full<Bytes>>;

/// One interceptor.
#[derive(Debug)]
pub(super) struct InterceptorService {
    pub(super) config: InterceptorConfig,
    headers: HeaderMap,
    breaker: Option<Arc<Breaker>>,
    /// Built with the first request: reading the roots of trust takes milliseconds.
    client: OnceCell<HttpsClient>,
}

impl InterceptorService {
    pub(super) fn new(config: InterceptorConfig) -> Self {
        let subject = || BreakerSubject::Interceptor(config.name.clone());
        let breaker =
            config.breaker.map(|settings| Arc::new(Breaker::new(subject(), settings, None)));
        let headers = config.headers.iter().filter_map(|(name, secret)| {
            let mut value = HeaderValue::from_str(secret.expose()).ok()?;
            value.set_sensitive(true);
            Some((name.clone(), value))
        });
        let mut headers: HeaderMap = headers.collect();
        headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
        Self { headers, breaker, client: OnceCell::new(), config }
    }

    /// Whether it sees this part of calls of this method.
    pub(super) fn sees(&self, method: &Method, phase: InterceptedPhase) -> bool {
        self.config.on.contains(&phase)
            && self.config.methods.iter().any(|pattern| pattern.matches(method.as_str()))
    }

    /// Asks about a call, or about its result.
    pub(super) async fn ask(
        &self,
        seen: &Intercepted,
        result: Option<&[u8]>,
        context: &Context,
        now: Instant,
    ) -> Result<Verdict, InterceptorFault> {
        let pass = self.breaker.as_ref().map(|breaker| breaker.enter(now)).transpose();
        let pass = pass.map_err(|_| InterceptorFault::BreakerOpen)?;
        let limit = self.config.max_size;
        if result.is_some_and(|raw| raw.len() > limit) {
            return Err(InterceptorFault::TooLarge { limit });
        }
        let time = Timestamp::try_from(clock::wall_now()).unwrap_or_default().to_string();
        let body = seen.request(self.config.name.as_str(), result, (context, &time));
        if body.len() > limit {
            return Err(InterceptorFault::TooLarge { limit });
        }
        let after = self.config.timeout;
        let asked = timeout(after, self.post(body)).await;
        let verdict = asked.unwrap_or(Err(InterceptorFault::Timeout { after }));
        if let Some(pass) = pass {
            let ended = if verdict.is_ok() { CallVerdict::Answered } else { CallVerdict::Failed };
            pass.record_verdict(ended, clock::now());
        }
        verdict
    }

    async fn post(&self, body: Vec<u8>) -> Result<Verdict, InterceptorFault> {
        let unreachable = |error: &(dyn Error + 'static)| {
            let (name, error) = (&self.config.name, error_chain(error));
            tracing::debug!(interceptor = %name, error, "an interceptor cannot be reached");
            InterceptorFault::Unreachable
        };
        let client = self.client.get_or_try_init(|| self.build_client()).await?;
        let mut request = Request::post(self.config.url.as_str())
            .body(Full::new(Bytes::from(body)))
            .map_err(|error| unreachable(&error))?;
        *request.headers_mut() = self.headers.clone();
        let response = client.request(request).await.map_err(|error| unreachable(&error))?;
        if response.status() != StatusCode::OK {
            return Err(InterceptorFault::Status { status: response.status() });
        }
        let limit = self.config.max_size;
        let body = collect(response.into_body(), limit).await.map_err(|error| match error {
            BodyError::TooLarge { .. } | BodyError::Chatter { .. } => {
                InterceptorFault::TooLarge { limit }
            }
            BodyError::Broken(error) => unreachable(&error),
        })?;
        read_verdict(&body)
    }

    async fn build_client(&self) -> Result<HttpsClient, InterceptorFault> {
        let url = self.config.url.clone();
        let tls = spawn_blocking(move || platform_tls_config(&url)).await;
        let Ok(Ok(tls)) = tls else { return Err(InterceptorFault::Unreachable) };
        let mut client = Client::builder(TokioExecutor::new());
        client.pool_max_idle_per_host(MOST_IDLE).pool_idle_timeout(IDLE);
        Ok(client.build(https_connector(tls)))
    }
}

/// How many idle connections are kept, and for how long.
const MOST_IDLE: usize = 16;
const IDLE: Duration = Duration::from_secs(30);
