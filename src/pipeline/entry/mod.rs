//! Checks of a request before it is a call: its sender, its endpoint, and rate limits.

pub(super) mod login_consents;
pub(super) mod named_caller;

use std::net::IpAddr;
use std::sync::Arc;

use http::HeaderMap;

use crate::call::{Context, Endpoint, Failure, Principal};
use crate::clock;
use crate::identity::{
    ClientCertificate, Credential, CredentialMark, ProtectedResource, Unidentified,
};
use crate::mcp::Method;
use crate::pipeline::record::answered::log_refused_request;
use crate::pipeline::record::audit::RefusedRequest;
use crate::pipeline::stores::refused_logins::RefusedLogin;
use crate::pipeline::{Gateway, record};
use crate::policy::ScopedCaller;
use crate::snapshot::Snapshot;
use crate::telemetry::CallOutcome;

/// Identity of a request's sender besides its headers.
#[derive(Clone, Copy)]
pub struct EntryCredentials<'a> {
    /// The required audience of a token.
    pub resource: Option<&'a ProtectedResource>,
    /// The verified certificate of the connection.
    pub certificate: Option<&'a Arc<ClientCertificate>>,
    /// The address of the sender.
    pub address: IpAddr,
}

impl Gateway {
    /// Identifies the sender of a request by its headers, and removes the key or token from them.
    ///
    /// # Errors
    /// As [`Identity::identify`](crate::identity::Identity::identify), and [`Failure::OverLimit`].
    pub fn identify(
        &self,
        snapshot: &Snapshot,
        headers: &mut HeaderMap,
        entry: EntryCredentials<'_>,
    ) -> Result<Credential, Unidentified> {
        let EntryCredentials { resource, certificate, address } = entry;
        if let Some(certificate) = certificate {
            let now = clock::unix_now();
            let known = snapshot.identity.identify_certificate(certificate, headers, now);
            if let Some(credential) = known {
                return Ok(credential);
            }
        }
        let admit = || snapshot.policy.admit_attempt(address);
        let identified = snapshot.identity.identify(headers, resource, clock::unix_now, admit);
        identified.map_err(|unidentified| {
            let unknown = match unidentified {
                Unidentified::Refused(unknown) => unknown,
                Unidentified::WrongCredential(wrong) => {
                    snapshot.policy.record_failed_attempt(address);
                    wrong
                }
                pending @ Unidentified::Pending(_) => return pending,
            };
            let mark = || snapshot.identity.mark_credential(headers, certificate);
            self.refuse_stranger(snapshot, address, unknown, mark).into()
        })
    }

    /// Returns the failure for a request from an unknown sender: the fault of its credentials, or
    /// the exceeded rate of such requests. `mark` returns the mark of its credential.
    pub fn refuse_stranger(
        &self,
        snapshot: &Snapshot,
        address: IpAddr,
        unknown: Failure,
        mark: impl FnOnce() -> CredentialMark,
    ) -> Failure {
        let is_tokenless = matches!(unknown, Failure::TokenMissing);
        let failure = snapshot.policy.admit_unauthenticated(address).err().unwrap_or(unknown);
        record::count_refusal(&self.metrics, &failure);
        tracing::debug!(%address, reason = failure.wire().label, %failure, "refused");
        let refused = |mark| RefusedLogin::of_failure(address, &failure, mark);
        if !is_tokenless {
            self.refused_logins.note(address, || refused(mark()));
        } else if let mark @ CredentialMark::Certificate(_) = mark() {
            self.refused_logins.note(address, || refused(mark));
        }
        // Any other request without a token is no refused login: clients begin each login with one,
        // to find the authorization server (RFC 9728, section 5).
        failure
    }

    /// Counts and logs a connection that was closed because of its certificate, or because it has
    /// none and needs one. `reason` is a sentence.
    pub fn refuse_certificate(&self, address: IpAddr, reason: &str) {
        self.metrics.count_error(&CallOutcome::Refused { reason: CERTIFICATE_REFUSED });
        tracing::debug!(%address, reason, "refused");
        let refused = || RefusedLogin::of_certificate(address, CERTIFICATE_REFUSED, reason);
        self.refused_logins.note(address, refused);
    }

    /// Checks that a client has the scopes that the endpoint requires of every client.
    ///
    /// # Errors
    /// [`Failure::ScopesNeeded`].
    pub fn admit_entry(
        &self,
        snapshot: &Snapshot,
        who: &Credential,
        at: (&Endpoint, Option<&ProtectedResource>),
    ) -> Result<(), Failure> {
        let (endpoint, resource) = at;
        let source = resource.map(|resource| &resource.source);
        let grants = who.grants().map(|grants| &**grants);
        let caller = ScopedCaller { principal: who.principal(), grants };
        let admitted = snapshot.policy.admit_entry(caller, endpoint.profile(), source);
        let who = who.principal();
        admitted.inspect_err(|failure| self.count_refusal_of(snapshot, who, failure))
    }

    /// Counts a request of a known sender that is refused before it becomes a call.
    pub(in crate::pipeline) fn count_refusal_of(
        &self,
        snapshot: &Snapshot,
        who: &Principal,
        failure: &Failure,
    ) {
        let refused = record::count_refusal(&self.metrics, failure);
        if let Some(counts) = snapshot.client_counts(who) {
            counts.record_refusal(&refused);
        }
    }

    /// Returns the endpoint of a request, from the profile and the query of its URL.
    ///
    /// # Errors
    /// [`Failure::UnknownEndpoint`] and [`Failure::InvalidRequest`].
    pub fn endpoint(
        &self,
        snapshot: &Snapshot,
        who: &Principal,
        profile: &str,
        query: Option<&str>,
    ) -> Result<Endpoint, Failure> {
        let endpoint = snapshot.endpoint(who, profile, query);
        endpoint.inspect_err(|failure| self.count_refusal_of(snapshot, who, failure))
    }

    /// Admits a request of any method. The caller writes the line of a refused one, with all that
    /// was read of it.
    ///
    /// # Errors
    /// [`Failure::OverLimit`].
    pub fn admit_request(
        &self,
        snapshot: &Snapshot,
        who: &Principal,
        address: IpAddr,
    ) -> Result<(), Failure> {
        let admitted = snapshot.policy.admit_request(who, address);
        admitted.inspect_err(|failure| self.count_refusal_of(snapshot, who, failure))
    }

    /// Admits a call that the gateway makes in the course of another one.
    ///
    /// # Errors
    /// [`Failure::OverLimit`].
    pub(crate) async fn admit_inner_call(
        &self,
        snapshot: &Snapshot,
        context: &Context,
    ) -> Result<(), Failure> {
        let Context { principal, address, endpoint, client, transport, .. } = context;
        if let Some(prepared) = snapshot.policy.prepare_request(principal, *address) {
            prepared.await;
        }
        self.admit_request(snapshot, principal, *address).inspect_err(|failure| {
            let request = RefusedRequest {
                address: Some(*address),
                profile: endpoint.profile(),
                method: Some(Method::ToolsCall),
                client: Some(client),
                transport,
                ..RefusedRequest::default()
            };
            log_refused_request(Some(principal), &request, failure);
        })
    }
}

/// Metric label of connections that are refused for their certificate.
const CERTIFICATE_REFUSED: &str = "certificate_refused";
