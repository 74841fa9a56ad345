//! The owner's side of a forwarded request.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::request::Parts;
use http::{Request, Response, StatusCode, Uri};
use rustls_pki_types::CertificateDer;

use crate::call::{Failure, PeerAddress, RequestFault};
use crate::cluster::{
    Cluster, ENVELOPE_HEADER, EnvelopeFault, OpenedEnvelope, RefusedEnvelope, ReplicaId,
    RequestLine, server_of_path,
};
use crate::identity::{ClientCertificate, Credential};
use crate::mcp;

use super::placement::misdirected;
use crate::downstream::access::caller::{Refused, Unauthenticated, profile_of, refusal};
use crate::downstream::http_sse::OldTransport;
use crate::downstream::requests::budget::CountedEarly;
use crate::downstream::responses::response;
use crate::downstream::{Authenticated, Body, McpService};

/// Marks a request that another replica has forwarded.
#[derive(Debug, Clone, Copy)]
pub(crate) struct ForwardedHere {
    /// The other replica, if it has left: it does not have the session any more.
    pub(crate) left: Option<ReplicaId>,
}

/// A request from another replica that is not served.
struct RefusedForwarding {
    fault: EnvelopeFault,
    /// The client, if it was identified.
    sender: Option<Credential>,
    /// The connection of the client, if a replica has named it.
    client: Option<PeerAddress>,
}

impl From<RefusedEnvelope> for RefusedForwarding {
    fn from(refused: RefusedEnvelope) -> Self {
        Self { fault: refused.fault, sender: None, client: refused.client }
    }
}

impl McpService {
    /// Answers a request from another replica. Anything without a valid envelope is refused.
    /// `verify` judges the chain of a client's certificate, which is empty if it showed none, as a
    /// handshake with this replica would.
    pub async fn receive_forwarded<B>(
        self: Arc<Self>,
        request: Request<B>,
        replica: PeerAddress,
        verify: impl Fn(&[CertificateDer<'_>]) -> bool + Send,
    ) -> Response<Body>
    where
        B: http_body::Body<Data = Bytes, Error: Send> + Send + Unpin + 'static,
    {
        let Some(cluster) = self.cluster.clone() else { return forbidden() };
        let (mut head, body) = request.into_parts();
        let uri = head.uri.clone();
        if let Some(server) = server_of_path(uri.path()) {
            let request = Request::from_parts(head, body);
            let answered = self.answer_replica(&cluster, server, request, replica).await;
            return answered
                .unwrap_or_else(|refused| self.refuse_forwarded(&refused.into(), &uri, replica));
        }
        let answered = match open(&cluster, &mut head, verify) {
            Ok(opened) => {
                let request = Request::from_parts(head, body);
                Arc::clone(&self).answer_forwarded(&cluster, opened, request).await
            }
            Err(refused) => Err(refused.into()),
        };
        answered.unwrap_or_else(|refused| self.refuse_forwarded(&refused, &uri, replica))
    }

    /// Refuses a request on the connection of a replica whose certificate is no longer accepted.
    pub fn refuse_replica(&self, uri: &Uri, replica: PeerAddress) -> Response<Body> {
        let refused =
            RefusedEnvelope { fault: EnvelopeFault::UntrustedReplica, client: None }.into();
        self.refuse_forwarded(&refused, uri, replica)
    }

    /// Logs and records a connection that the listener for replicas refuses before its first request.
    pub fn refuse_peer_connection(&self, peer: PeerAddress, reason: &str) {
        let address = peer.addr.ip();
        let text = format!("a connection from {address} to cluster.listen is refused: {reason}");
        self.warn_of_peer(&format!("{address} {reason}"), &text);
        self.audit_entry(None, peer, "", &RequestFault::NotForwarded.into());
    }

    /// Logs and records a request that the listener for replicas refuses for its head.
    pub fn refuse_peer_head(&self, peer: PeerAddress, uri: &Uri, reason: &str) {
        if let Some(cluster) = &self.cluster {
            cluster.count_refused();
        }
        let address = peer.addr.ip();
        let text = format!("a request from {address} to cluster.listen is refused: {reason}");
        // The reason has sizes, which differ.
        self.warn_of_peer(&format!("{address} head"), &text);
        let profile = profile_of(uri.path()).unwrap_or_default();
        self.audit_entry(None, peer, profile, &RequestFault::NotForwarded.into());
    }

    /// Warns of a refusal at the listener for replicas, once a minute for each subject.
    fn warn_of_peer(&self, subject: &str, text: &str) {
        if let Some(line) = self.peer_faults.note_about(subject, text) {
            tracing::warn!("{line}");
        }
    }

    fn refuse_forwarded(
        &self,
        refused: &RefusedForwarding,
        uri: &Uri,
        replica: PeerAddress,
    ) -> Response<Body> {
        if let Some(cluster) = &self.cluster {
            cluster.count_refused();
        }
        self.log_refused(refused, replica);
        let fault = refused.fault;
        let profile = profile_of(uri.path()).unwrap_or_default();
        let (sender, failure) = (refused.sender.as_ref(), failure_of(fault));
        self.audit_entry(sender, refused.client.unwrap_or(replica), profile, &failure);
        refuse(fault, &failure)
    }

    /// Warns of a refused request, once for each address and fault.
    fn log_refused(&self, refused: &RefusedForwarding, replica: PeerAddress) {
        let (fault, replica) = (refused.fault, replica.addr.ip());
        let (address, sender) = match refused.client {
            Some(client) => {
                (client.addr.ip(), format!("{}, forwarded by {replica},", client.addr.ip()))
            }
            None => (replica, replica.to_string()),
        };
        let text = format!("a request from {sender} to cluster.listen is refused: {fault}");
        self.warn_of_peer(&format!("{address} {fault:?}"), &text);
    }

    /// Authenticates the client of a forwarded request again, and answers it.
    async fn answer_forwarded<B>(
        self: Arc<Self>,
        cluster: &Cluster,
        opened: (OpenedEnvelope, PeerAddress),
        request: Request<B>,
    ) -> Result<Response<Body>, RefusedForwarding>
    where
        B: http_body::Body<Data = Bytes, Error: Send> + Send + Unpin + 'static,
    {
        let (envelope, client) = opened;
        let authenticated = match self.authenticate(request, client) {
            Err(Unauthenticated::Waiting(waiting)) => {
                self.authenticate_later(*waiting, client).await
            }
            Ok(authenticated) => Ok(authenticated),
            Err(Unauthenticated::Refused(response)) => Err(response),
        };
        let Authenticated { mut head, body, from, old } = match authenticated {
            Ok(authenticated) => authenticated,
            Err(response) => return Ok(of_known_peer(*response)),
        };
        let refused = |fault| RefusedForwarding {
            fault,
            sender: Some(from.caller.credential().clone()),
            client: Some(client),
        };
        // A stream is opened by the replica that its client is connected to.
        if matches!(old.as_deref(), Some(OldTransport::Stream { .. })) {
            return Err(refused(EnvelopeFault::OtherRequest));
        }
        envelope.covers_principal(from.caller.principal().as_str()).map_err(refused)?;
        if envelope.is_counted() {
            head.extensions.insert(CountedEarly { refusal: None });
        }
        self.prepare_rates(&head, &from, old.as_deref()).await;
        let body = match self.collect_body(&mut head, body, &from).await {
            Ok(body) => body,
            Err(failure) => {
                self.record_refused_body(&head, &from, &failure);
                return Ok(of_known_peer(refusal(&failure)));
            }
        };
        cluster.check_body(&envelope, &body).map_err(refused)?;
        Ok(of_known_peer(self.serve(Authenticated { head, body, from, old }).await))
    }
}

/// Removes the envelope of a request from its head, and opens it.
pub(super) fn take_envelope(
    cluster: &Cluster,
    head: &mut Parts,
) -> Result<OpenedEnvelope, RefusedEnvelope> {
    let absent = RefusedEnvelope { fault: EnvelopeFault::Absent, client: None };
    let sealed = mcp::header::single_value(&head.headers, &ENVELOPE_HEADER);
    let sealed = sealed.ok().flatten().cloned().ok_or(absent)?;
    head.headers.remove(&ENVELOPE_HEADER);
    let line = RequestLine { method: &head.method, uri: &head.uri };
    cluster.open_envelope(sealed.as_bytes(), line)
}

/// Opens the envelope of a request, and restores the request as the client sent it.
fn open(
    cluster: &Cluster,
    head: &mut Parts,
    verify: impl Fn(&[CertificateDer<'_>]) -> bool,
) -> Result<(OpenedEnvelope, PeerAddress), RefusedEnvelope> {
    let unknown = |fault| RefusedEnvelope { fault, client: None };
    let envelope = take_envelope(cluster, head)?;
    let client = envelope.client().ok_or(unknown(EnvelopeFault::Forged))?;
    let refused = |fault| RefusedEnvelope { fault, client: Some(client) };
    envelope.restore_credentials(&mut head.headers);
    // The connection's own certificate is that of the replica.
    head.extensions.remove::<Arc<ClientCertificate>>();
    let chain = envelope.certificates().iter().map(|der| CertificateDer::from(der.as_slice()));
    let chain: Vec<_> = chain.collect();
    // The other replica may trust other CAs, or those that this one trusted before, or require no
    // certificate.
    if !verify(&chain) {
        return Err(refused(EnvelopeFault::UntrustedCertificate));
    }
    if let Some(own) = chain.first() {
        let parsed = ClientCertificate::parse(own);
        let parsed = parsed.map_err(|_| refused(EnvelopeFault::UntrustedCertificate))?;
        head.extensions.insert(Arc::new(parsed));
    }
    head.extensions.insert(ForwardedHere { left: envelope.sender_that_left() });
    Ok((envelope, client))
}

/// Returns the failure that a refused request is recorded and answered with. A full table of nonces
/// is no fault of the request, and neither is another build of a replica: it may be repeated.
fn failure_of(fault: EnvelopeFault) -> Failure {
    match fault {
        EnvelopeFault::TooMany | EnvelopeFault::OtherVersion => {
            Failure::OverLimit { limit: "forwarded".to_owned(), retry_after: FORWARD_RETRY_AFTER }
        }
        _ => RequestFault::NotForwarded.into(),
    }
}

/// Answers a request that is not served. The connection of a replica with the shared keys is not
/// closed for requests of single clients.
fn refuse(fault: EnvelopeFault, failure: &Failure) -> Response<Body> {
    match fault {
        EnvelopeFault::TooMany | EnvelopeFault::OtherVersion => {
            let mut response = response::refusal(None, failure);
            *response.status_mut() = StatusCode::SERVICE_UNAVAILABLE;
            response
        }
        // The replica that it is for was at this address before this one.
        EnvelopeFault::OtherTarget => misdirected(),
        EnvelopeFault::OtherPrincipal
        | EnvelopeFault::OtherBody
        | EnvelopeFault::UntrustedCertificate => of_known_peer(forbidden()),
        _ => forbidden(),
    }
}

/// A refusal of one client is no fault of the replica, whose connection other clients share.
pub(super) fn of_known_peer(mut response: Response<Body>) -> Response<Body> {
    response.extensions_mut().remove::<Refused>();
    response
}

/// Answers a request that no replica has forwarded.
fn forbidden() -> Response<Body> {
    let mut response = response::refuse_request(StatusCode::FORBIDDEN, RequestFault::NotForwarded);
    response.extensions_mut().insert(Refused);
    response
}

/// Time after which a request may be repeated that was refused because too many were forwarded: some
/// nonces are forgotten then. Replicas of another build are replaced soon, too.
const FORWARD_RETRY_AFTER: Duration = Duration::from_secs(5);

#[cfg(test)]
mod tests {
    use http::header::RETRY_AFTER;

    use super::*;

    #[test]
    fn too_many_forwarded_requests_are_refused_for_a_while_and_others_for_good() {
        for (fault, status, retry_after, closes) in [
            (EnvelopeFault::TooMany, 503, Some("5"), false),
            (EnvelopeFault::OtherTarget, 421, None, false),
            (EnvelopeFault::OtherVersion, 503, Some("5"), false),
            (EnvelopeFault::Replayed, 403, None, true),
            (EnvelopeFault::Absent, 403, None, true),
            (EnvelopeFault::UntrustedReplica, 403, None, true),
            (EnvelopeFault::Forged, 403, None, true),
            (EnvelopeFault::OtherPrincipal, 403, None, false),
            (EnvelopeFault::OtherBody, 403, None, false),
            (EnvelopeFault::UntrustedCertificate, 403, None, false),
        ] {
            let response = refuse(fault, &failure_of(fault));
            assert_eq!(response.status(), status, "{fault}");
            let header = response.headers().get(RETRY_AFTER).map(|it| it.to_str().unwrap());
            assert_eq!(header, retry_after, "{fault}");
            assert_eq!(response.extensions().get::<Refused>().is_some(), closes, "{fault}");
        }
    }
}
