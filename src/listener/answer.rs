//! One request on its way through the guard to the service, and the response back.

use std::sync::Arc;

use bytes::Bytes;
use http::{HeaderValue, Response, header};
use http_body_util::{Either, Full};

use super::{Admission, Incoming, PeerAddress, Refusal, Service, Settings, cors};
use crate::wire::Received;

/// A body of the gate's, or of the service's.
pub(super) type Answer<B> = Either<Full<Bytes>, B>;

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
        self.settings.as_ref().is_some_and(|by| Arc::ptr_eq(by, settings))
            && request.uri.authority().is_none()
            && request.headers.single(&header::HOST) == Ok(Some(&self.host))
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
    (peer, most): (PeerAddress, Option<usize>),
    known: &mut Known,
) -> Response<Answer<S::Body>> {
    let (mut response, origin) = match judge(settings, &request, (peer, most), known) {
        Err(refusal) => {
            tracing::debug!(client = %peer.addr, %refusal, "request refused");
            (refuse(&refusal).map(Either::Left), None)
        }
        Ok(Admission { origin }) if cors::is_preflight(&request) => {
            (cors::preflight(&request.headers).map(Either::Left), origin)
        }
        Ok(Admission { origin }) => (service.call(request, peer).await.map(Either::Right), origin),
    };
    if let Some(origin) = origin {
        cors::mark(response.headers_mut(), origin);
    }
    response
}

fn judge<B>(
    settings: &Arc<Settings>,
    request: &Received<B>,
    (peer, most): (PeerAddress, Option<usize>),
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
