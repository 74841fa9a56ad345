//! One request on its way through the guard to the service, and the response back.

use std::{
    pin::Pin,
    task::{Context, Poll},
};

use bytes::Bytes;
use http::{HeaderMap, HeaderValue, Request, Response, header};
use http_body::{Body, Frame, SizeHint};
use http_body_util::Full;
use hyper::body::Incoming;

use super::{Admission, BoxError, Peer, Refusal, Service, Settings, activity::Busy, cors};

/// A response of the service's, or of the gate's, that keeps its connection busy while it lasts.
pub(super) struct Answer<B> {
    body: Whose<B>,
    _busy: Busy,
}

enum Whose<B> {
    Gate(Full<Bytes>),
    Service(B),
}

/// Judges a request, has it served, and marks the response for a browser.
pub(super) async fn answer<S: Service>(
    service: &S,
    settings: &Settings,
    request: Request<Incoming>,
    (peer, busy): (Peer, Busy),
) -> Response<Answer<S::Body>> {
    let (response, origin) = match judge(settings, &request, peer) {
        Err(refusal) => {
            tracing::debug!(client = %peer.addr, %refusal, "request refused");
            (refuse(&refusal).map(Whose::Gate), None)
        }
        Ok(Admission { origin }) if cors::is_preflight(&request) => {
            (cors::preflight(request.headers()).map(Whose::Gate), origin)
        }
        Ok(Admission { origin }) => (service.call(request, peer).await.map(Whose::Service), origin),
    };
    finish(response, origin, busy)
}

fn judge<B>(settings: &Settings, request: &Request<B>, peer: Peer) -> Result<Admission, Refusal> {
    let (size, limit) = (size(request), settings.limits.header);
    if size > limit {
        return Err(Refusal::HeadersTooLarge { size, limit });
    }
    settings.guard.admit(request, peer.local)
}

fn finish<B>(
    mut response: Response<Whose<B>>,
    origin: Option<HeaderValue>,
    busy: Busy,
) -> Response<Answer<B>> {
    if let Some(origin) = origin {
        cors::mark(response.headers_mut(), origin);
    }
    response.map(|body| Answer { body, _busy: busy })
}

fn refuse(refusal: &Refusal) -> Response<Full<Bytes>> {
    let mut response = Response::new(Full::new(refusal.body()));
    *response.status_mut() = refusal.status();
    let json = HeaderValue::from_static("application/json");
    response.headers_mut().insert(header::CONTENT_TYPE, json);
    response
}

/// The bytes of the target and of every header's name and value, as HTTP/1 writes them.
fn size<B>(request: &Request<B>) -> usize {
    let target = request.uri().path_and_query().map_or(0, |it| it.as_str().len());
    target + lines(request.headers())
}

fn lines(headers: &HeaderMap) -> usize {
    headers.iter().map(|(name, value)| name.as_str().len() + value.len() + ": \r\n".len()).sum()
}

impl<B> Body for Answer<B>
where
    B: Body<Data = Bytes, Error: Into<BoxError>> + Unpin,
{
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        match &mut self.body {
            Whose::Gate(body) => Pin::new(body).poll_frame(cx).map_err(Into::into),
            Whose::Service(body) => Pin::new(body).poll_frame(cx).map_err(Into::into),
        }
    }

    fn is_end_stream(&self) -> bool {
        match &self.body {
            Whose::Gate(body) => body.is_end_stream(),
            Whose::Service(body) => body.is_end_stream(),
        }
    }

    fn size_hint(&self) -> SizeHint {
        match &self.body {
            Whose::Gate(body) => body.size_hint(),
            Whose::Service(body) => body.size_hint(),
        }
    }
}
