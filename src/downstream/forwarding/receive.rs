//! The owner's side of a forwarded request.

use std::net::SocketAddr;
use std::sync::Arc;

use bytes::Bytes;
use http::request::Parts;
use http::{Request, Response, StatusCode};

use crate::call::{PeerAddress, RequestFault};
use crate::cluster::{Cluster, ENVELOPE_HEADER, Envelope, EnvelopeFault, RequestLine};
use crate::identity::ClientCertificate;
use crate::mcp;

use crate::downstream::access::caller::{Refused, Unauthenticated, refusal};
use crate::downstream::responses::response;
use crate::downstream::{Authenticated, Body, McpService};

/// Marks a request that another replica has forwarded.
#[derive(Debug, Clone, Copy)]
pub(crate) struct ForwardedHere;

impl McpService {
    /// Answers a request from another replica. Anything without a valid envelope is refused.
    pub async fn receive_forwarded<B>(
        self: Arc<Self>,
        request: Request<B>,
        replica: SocketAddr,
    ) -> Response<Body>
    where
        B: http_body::Body<Data = Bytes, Error: Send> + Send + Unpin + 'static,
    {
        let Some(cluster) = self.cluster.clone() else { return forbidden() };
        let (mut head, body) = request.into_parts();
        let opened = open(&cluster, &mut head);
        let answered = match opened {
            Ok((envelope, client)) => {
                Arc::clone(&self)
                    .answer_forwarded(envelope, Request::from_parts(head, body), client)
                    .await
            }
            Err(fault) => Err(fault),
        };
        answered.unwrap_or_else(|fault| {
            cluster.count_refused();
            let address = replica.ip().to_string();
            let text = format!("a request from {address} to cluster.listen is refused: {fault}");
            if let Some(line) = self.peer_faults.note_about(&address, &text) {
                tracing::warn!("{line}");
            }
            forbidden()
        })
    }

    /// Authenticates the client of a forwarded request again, and answers it.
    async fn answer_forwarded<B>(
        self: Arc<Self>,
        envelope: Envelope,
        request: Request<B>,
        client: PeerAddress,
    ) -> Result<Response<Body>, EnvelopeFault>
    where
        B: http_body::Body<Data = Bytes, Error: Send> + Send + Unpin + 'static,
    {
        let authenticated = match self.authenticate(request, client) {
            Err(Unauthenticated::Waiting(waiting)) => {
                self.authenticate_later(*waiting, client).await
            }
            Ok(authenticated) => Ok(authenticated),
            Err(Unauthenticated::Refused(response)) => Err(response),
        };
        let Authenticated { mut head, body, from, old: None } = (match authenticated {
            Ok(authenticated) => authenticated,
            Err(response) => return Ok(of_known_peer(*response)),
        }) else {
            return Err(EnvelopeFault::OtherRequest);
        };
        envelope.covers_principal(from.caller.principal().as_str())?;
        let body = match self.collect_body(&mut head, body, &from).await {
            Ok(body) => body,
            Err(failure) => return Ok(of_known_peer(refusal(&failure))),
        };
        envelope.covers_body(&body)?;
        Ok(of_known_peer(self.answer(head, body, from).await))
    }
}

/// Opens the envelope of a request, and restores the request as the client sent it.
fn open(cluster: &Cluster, head: &mut Parts) -> Result<(Envelope, PeerAddress), EnvelopeFault> {
    let sealed = mcp::header::single_value(&head.headers, &ENVELOPE_HEADER);
    let sealed = sealed.ok().flatten().cloned().ok_or(EnvelopeFault::Absent)?;
    head.headers.remove(&ENVELOPE_HEADER);
    let line = RequestLine { method: &head.method, uri: &head.uri };
    let envelope = cluster.open_envelope(sealed.as_bytes(), line)?;
    let client = envelope.client().ok_or(EnvelopeFault::Forged)?;
    envelope.restore_credentials(&mut head.headers);
    // The connection's own certificate is that of the replica.
    head.extensions.remove::<Arc<ClientCertificate>>();
    if let Some(der) = envelope.certificate() {
        let certificate = ClientCertificate::parse(&der).map_err(|_| EnvelopeFault::Forged)?;
        head.extensions.insert(Arc::new(certificate));
    }
    head.extensions.insert(ForwardedHere);
    Ok((envelope, client))
}

/// A refusal of one client is no fault of the replica, whose connection other clients share.
fn of_known_peer(mut response: Response<Body>) -> Response<Body> {
    response.extensions_mut().remove::<Refused>();
    response
}

/// Answers a request that no replica has forwarded.
fn forbidden() -> Response<Body> {
    let mut response = response::refuse_request(StatusCode::FORBIDDEN, RequestFault::NotForwarded);
    response.extensions_mut().insert(Refused);
    response
}
