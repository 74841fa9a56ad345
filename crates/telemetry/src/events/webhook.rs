//! Events as signed requests: CloudEvents in structured mode, signed by the scheme of Standard
//! Webhooks.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::{Request, Response, header};
use http_body_util::Full;
use hyper::body::Incoming;
use hyper_rustls::HttpsConnector;
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioExecutor;
use tokio::task::spawn_blocking;
use tokio::time::timeout;
use url::Url;

use trunkline_core::clock;
use trunkline_core::codec::body::collect;
use trunkline_https::{OWN_USER_AGENT, https_connector, tls_for};

use super::queue::QueuedEvent;
use super::signature::SigningKey;
use super::sink::{DeliveryError, within};

type HttpsClient = Client<HttpsConnector<HttpConnector>, Full<Bytes>>;

/// The webhook of the configuration.
pub(super) struct Webhook {
    url: Url,
    key: SigningKey,
    /// Built with the first event: reading the roots of trust takes milliseconds.
    client: Option<HttpsClient>,
}

impl Webhook {
    pub(super) fn new(url: Url, key: SigningKey) -> Self {
        Self { url, key, client: None }
    }

    /// Sends one event. The status alone decides, and has to arrive within a time limit. Redirects
    /// are not followed.
    pub(super) async fn post(
        &mut self,
        event: &Arc<QueuedEvent>,
        limit: Duration,
    ) -> Result<(), DeliveryError> {
        let request = self.write_request(event)?;
        let response = within(limit, self.send(request)).await?;
        let (head, body) = response.into_parts();
        // The connection can be used again once the body has ended.
        let _ = timeout(BODY_TIME, collect(body, MAX_BODY)).await;
        match head.status {
            status if status.is_success() => Ok(()),
            status if status.is_redirection() => Err(DeliveryError::Redirect),
            status => Err(DeliveryError::Status { status }),
        }
    }

    async fn send(
        &mut self,
        request: Request<Full<Bytes>>,
    ) -> Result<Response<Incoming>, DeliveryError> {
        let client = match &self.client {
            Some(client) => client,
            None => self.client.insert(self.build_client().await?),
        };
        Ok(client.request(request).await?)
    }

    async fn build_client(&self) -> Result<HttpsClient, DeliveryError> {
        let url = self.url.clone();
        let tls = spawn_blocking(move || tls_for(&url)).await;
        let tls = tls.map_err(std::io::Error::other)??;
        Ok(Client::builder(TokioExecutor::new()).build(https_connector(tls)))
    }

    fn write_request(&self, event: &QueuedEvent) -> Result<Request<Full<Bytes>>, http::Error> {
        let now = clock::unix_now().as_secs();
        let signature = self.key.sign(&event.id, now, &event.json);
        Request::post(self.url.as_str())
            .header(header::CONTENT_TYPE, CONTENT_TYPE)
            .header(header::USER_AGENT, OWN_USER_AGENT)
            .header("webhook-id", &*event.id)
            .header("webhook-timestamp", now)
            .header("webhook-signature", signature)
            .body(Full::new(event.json.clone()))
    }
}

/// CloudEvents 1.0, HTTP Protocol Binding, "Structured Content Mode".
pub(super) const CONTENT_TYPE: &str = "application/cloudevents+json; charset=utf-8";
/// Time limit for the body of a response, which is ignored.
const BODY_TIME: Duration = Duration::from_millis(500);
/// Maximum bytes that are read of it.
const MAX_BODY: usize = 64 << 10;
