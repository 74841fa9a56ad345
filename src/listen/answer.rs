//! One request on its way through the guard to the service, and the response back.

use std::{
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
};

use bytes::Bytes;
use http::{HeaderValue, Response, header};
use http_body::{Body, Frame, SizeHint};
use http_body_util::Full;

use super::{Admission, BoxError, Incoming, Peer, Refusal, Service, Settings, cors};
use crate::wire::Received;

/// A body of the service's, or of the gate's.
pub(super) enum Whose<B> {
    Gate(Full<Bytes>),
    Service(B),
}

/// What a connection was admitted for last: most clients name one host for ever.
#[derive(Default)]
pub(super) struct Known {
    host: Vec<u8>,
    /// By these settings.
    settings: Option<Arc<Settings>>,
}

impl Known {
    /// Whether a request asks for nothing that was not admitted before: it names the same host
    /// again, once, and no page.
    fn has<B>(&self, request: &Received<B>, settings: &Arc<Settings>) -> bool {
        let mut hosts = request.headers.get_all(&header::HOST);
        self.settings.as_ref().is_some_and(|by| Arc::ptr_eq(by, settings))
            && request.uri.authority().is_none()
            && hosts.next() == Some(&self.host)
            && hosts.next().is_none()
            && !request.headers.contains(&header::ORIGIN)
    }

    fn learn<B>(&mut self, request: &Received<B>, settings: &Arc<Settings>) {
        let names_it = request.uri.authority().is_none();
        let host = request.headers.get(&header::HOST).filter(|_| names_it);
        self.host = host.unwrap_or_default().to_vec();
        self.settings = host.map(|_| Arc::clone(settings));
    }
}

/// Judges a request, has it served, and marks the response for a browser. `most` is what the
/// request's head has at most, in bytes, where that is known.
pub(super) async fn answer<S: Service>(
    service: &S,
    settings: &Arc<Settings>,
    request: Received<Incoming>,
    (peer, most): (Peer, Option<usize>),
    known: &mut Known,
) -> Response<Whose<S::Body>> {
    let (mut response, origin) = match judge(settings, &request, (peer, most), known) {
        Err(refusal) => {
            tracing::debug!(client = %peer.addr, %refusal, "request refused");
            (refuse(&refusal).map(Whose::Gate), None)
        }
        Ok(Admission { origin }) if cors::is_preflight(&request) => {
            (cors::preflight(&request.headers).map(Whose::Gate), origin)
        }
        Ok(Admission { origin }) => (service.call(request, peer).await.map(Whose::Service), origin),
    };
    if let Some(origin) = origin {
        cors::mark(response.headers_mut(), origin);
    }
    response
}

fn judge<B>(
    settings: &Arc<Settings>,
    request: &Received<B>,
    (peer, most): (Peer, Option<usize>),
    known: &mut Known,
) -> Result<Admission, Refusal> {
    let limit = settings.limits.header;
    if most.is_none_or(|most| most > limit) {
        let size = size(request);
        if size > limit {
            return Err(Refusal::HeadersTooLarge { size, limit });
        }
    }
    if known.has(request, settings) {
        return Ok(Admission { origin: None });
    }
    let admission = settings.guard.admit(request, peer.local)?;
    known.learn(request, settings);
    Ok(admission)
}

fn refuse(refusal: &Refusal) -> Response<Full<Bytes>> {
    let mut response = Response::new(Full::new(refusal.body()));
    *response.status_mut() = refusal.status();
    let json = HeaderValue::from_static("application/json");
    response.headers_mut().insert(header::CONTENT_TYPE, json);
    response
}

/// The bytes of the target and of every header's name and value, as HTTP/1 writes them.
fn size<B>(request: &Received<B>) -> usize {
    let target = request.uri.path_and_query().map_or(0, |it| it.as_str().len());
    let lines =
        request.headers.iter().map(|(name, value)| name.len() + value.len() + ": \r\n".len());
    target + lines.sum::<usize>()
}

impl<B> Body for Whose<B>
where
    B: Body<Data = Bytes, Error: Into<BoxError>> + Unpin,
{
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        match &mut *self {
            Self::Gate(body) => Pin::new(body).poll_frame(cx).map_err(Into::into),
            Self::Service(body) => Pin::new(body).poll_frame(cx).map_err(Into::into),
        }
    }

    fn is_end_stream(&self) -> bool {
        match self {
            Self::Gate(body) => body.is_end_stream(),
            Self::Service(body) => body.is_end_stream(),
        }
    }

    fn size_hint(&self) -> SizeHint {
        match self {
            Self::Gate(body) => body.size_hint(),
            Self::Service(body) => body.size_hint(),
        }
    }
}
