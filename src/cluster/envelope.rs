//! The envelope of a forwarded request: a sealed, short-lived header that names its sender.
//!
//! It contains no identity that the owner would have to believe: it carries the client's credential
//! and certificate, with which the owner authenticates the client itself, and the principal that the
//! other replica found, for comparison.
//!
//! Replicas of two builds exchange envelopes during a rollout. [`Envelope::version`] is the version of
//! the format that an owner has to know for this envelope. A member that an owner may ignore is added
//! without a new version: owners ignore unknown members. One that it may not ignore raises the version
//! of the envelopes that have it. An owner refuses versions that it does not know by that reason.

use std::net::SocketAddr;
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD as BASE64;
use http::{HeaderMap, HeaderName, HeaderValue, Method, Uri};
use serde::{Deserialize, Serialize};

use super::ReplicaId;
use crate::call::PeerAddress;
use crate::crypto::{SealError, Sealer, sha256};

/// The header of an envelope.
pub const ENVELOPE_HEADER: HeaderName = HeaderName::from_static("trunkline-forwarded");

/// The sender of a forwarded request, as its connection and its headers identified it.
#[derive(Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Envelope {
    /// The version of the format that the owner has to know. Builds before versions wrote none.
    version: u32,
    target: String,
    /// Time since 1970, in milliseconds.
    issued: u64,
    nonce: String,
    method: String,
    path: String,
    body: String,
    client: Option<SocketAddr>,
    local: Option<SocketAddr>,
    tls: bool,
    /// The client's certificate, and the intermediate ones that it showed.
    certificates: Vec<String>,
    principal: String,
    credentials: Vec<(String, String)>,
    /// True if its sender has counted the request towards the rates.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    is_counted: bool,
}

/// Its credentials are not shown, nor is its path with the query.
impl std::fmt::Debug for Envelope {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Envelope")
            .field("target", &self.target)
            .field("issued", &self.issued)
            .field("method", &self.method)
            .field("client", &self.client)
            .field("principal", &self.principal)
            .field("certificates", &self.certificates.len())
            .field("credentials", &self.credentials.len())
            .finish_non_exhaustive()
    }
}

/// Reasons to refuse the envelope of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum EnvelopeFault {
    /// There is none, or more than one.
    #[error("it has no envelope of a replica")]
    Absent,
    /// It cannot be opened with the shared keys.
    #[error("its envelope was not sealed by a replica with the same keys")]
    Forged,
    /// The CA of the replica's certificate was removed, or the certificate has expired.
    #[error("the certificate of its replica is no longer accepted")]
    UntrustedReplica,
    /// It is of a build with another format.
    #[error(
        "its envelope has a format that this build does not know: run the same build everywhere"
    )]
    OtherVersion,
    /// It is for another replica.
    #[error("its envelope is for another replica")]
    OtherTarget,
    /// It is too old, or from the future.
    #[error("its envelope has expired, or the clocks of the replicas differ")]
    Expired,
    /// It was used before.
    #[error("its envelope was used before")]
    Replayed,
    /// There were too many of them within a short time.
    #[error("too many requests were forwarded")]
    TooMany,
    /// It is for another method, path or query.
    #[error("its envelope is for another request")]
    OtherRequest,
    /// It is for another body.
    #[error("its body is not that of the envelope")]
    OtherBody,
    /// The owner does not accept the client's certificate.
    #[error("the client certificate of its envelope is not accepted here")]
    UntrustedCertificate,
    /// The owner finds another principal.
    #[error("its envelope is for another principal")]
    OtherPrincipal,
}

/// An envelope that is refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RefusedEnvelope {
    /// The reason.
    pub fault: EnvelopeFault,
    /// The client's connection, if a replica with the shared keys has named it.
    pub client: Option<PeerAddress>,
}

/// The method and the target of a request.
#[derive(Debug, Clone, Copy)]
pub struct RequestLine<'a> {
    /// The method.
    pub method: &'a Method,
    /// The target.
    pub uri: &'a Uri,
}

/// Credentials of a client, which authentication removes from a request.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct ShownCredentials(Vec<(HeaderName, HeaderValue)>);

impl std::fmt::Debug for ShownCredentials {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_list().entries(self.0.iter().map(|(name, _)| name)).finish()
    }
}

impl ShownCredentials {
    /// Copies the headers of these names.
    pub fn read(headers: &HeaderMap, names: &[HeaderName]) -> Self {
        let shown = names.iter().flat_map(|name| {
            headers.get_all(name).iter().map(|value| (name.clone(), value.clone()))
        });
        Self(shown.collect())
    }

    /// Keeps those that are no longer in the headers.
    #[must_use]
    pub fn removed_from(mut self, headers: &HeaderMap) -> Self {
        self.0.retain(|(name, _)| !headers.contains_key(name));
        self
    }

    /// Returns true if there are none.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

impl Envelope {
    /// Creates an envelope for a request of this principal from this connection.
    pub fn new(request: RequestLine<'_>, body: &[u8], from: PeerAddress, principal: &str) -> Self {
        Self {
            version: ENVELOPE_VERSION,
            method: request.method.as_str().to_owned(),
            path: path_of(request.uri).to_owned(),
            body: BASE64.encode(sha256(body)),
            client: Some(from.addr),
            local: Some(from.local),
            tls: from.tls,
            principal: principal.to_owned(),
            ..Self::default()
        }
    }

    /// Adds the client's certificate and its intermediate ones, in DER.
    #[must_use]
    pub fn with_certificates<'a>(mut self, chain: impl IntoIterator<Item = &'a [u8]>) -> Self {
        self.certificates = chain.into_iter().map(|der| BASE64.encode(der)).collect();
        self
    }

    /// Adds the credentials that authentication has removed.
    #[must_use]
    pub fn with_credentials(mut self, shown: &ShownCredentials) -> Self {
        let shown = shown.0.iter();
        let shown = shown.map(|(name, value)| (name.to_string(), BASE64.encode(value.as_bytes())));
        self.credentials = shown.collect();
        self
    }

    /// Notes that the request was counted towards the rates already.
    #[must_use]
    pub fn counted(self) -> Self {
        Self { is_counted: true, ..self }
    }

    /// Addresses it to a replica, at this time since 1970.
    #[must_use]
    pub fn addressed_to(mut self, target: ReplicaId, nonce: [u8; 16], now: Duration) -> Self {
        self.target = target.to_string();
        self.nonce = BASE64.encode(nonce);
        self.issued = u64::try_from(now.as_millis()).unwrap_or(u64::MAX);
        self
    }

    /// Seals it as the value of its header.
    ///
    /// # Errors
    /// [`SealError`].
    pub fn seal(&self, sealer: &Sealer) -> Result<String, SealError> {
        let text = serde_json::to_vec(self).map_err(|_| SealError)?;
        Ok(BASE64.encode(sealer.seal(b"", text)?))
    }

    /// Opens the value of its header.
    pub(super) fn open(value: &[u8], sealer: &Sealer) -> Result<Self, EnvelopeFault> {
        let bytes = BASE64.decode(value).map_err(|_| EnvelopeFault::Forged)?;
        let text = sealer.open(b"", &bytes).ok_or(EnvelopeFault::Forged)?;
        serde_json::from_slice(&text).map_err(|_| EnvelopeFault::OtherVersion)
    }

    /// Checks that it is of a known version, and for this replica, this time and this request.
    pub(super) fn check(
        &self,
        own: ReplicaId,
        request: RequestLine<'_>,
        now: Duration,
    ) -> Result<(), EnvelopeFault> {
        if self.version != ENVELOPE_VERSION {
            return Err(EnvelopeFault::OtherVersion);
        }
        if ReplicaId::parse(&self.target) != Some(own) {
            return Err(EnvelopeFault::OtherTarget);
        }
        let issued = Duration::from_millis(self.issued);
        let age = now.saturating_sub(issued);
        if age > MAX_AGE + MAX_SKEW || issued.saturating_sub(now) > MAX_SKEW {
            return Err(EnvelopeFault::Expired);
        }
        if self.method != request.method.as_str() || self.path != path_of(request.uri) {
            return Err(EnvelopeFault::OtherRequest);
        }
        Ok(())
    }

    /// Returns its nonce.
    pub(super) fn nonce(&self) -> [u8; 16] {
        let nonce = BASE64.decode(&self.nonce).ok().and_then(|nonce| nonce.try_into().ok());
        nonce.unwrap_or_default()
    }

    /// Checks that the body of the request is the one that was forwarded.
    ///
    /// # Errors
    /// [`EnvelopeFault::OtherBody`].
    pub fn covers_body(&self, body: &[u8]) -> Result<(), EnvelopeFault> {
        let is_same = self.body == BASE64.encode(sha256(body));
        is_same.then_some(()).ok_or(EnvelopeFault::OtherBody)
    }

    /// Checks that the owner found the same principal.
    ///
    /// # Errors
    /// [`EnvelopeFault::OtherPrincipal`].
    pub fn covers_principal(&self, principal: &str) -> Result<(), EnvelopeFault> {
        (self.principal == principal).then_some(()).ok_or(EnvelopeFault::OtherPrincipal)
    }

    /// Returns the connection of the client; `None` if the envelope lacks it.
    pub fn client(&self) -> Option<PeerAddress> {
        let (addr, local) = (self.client?, self.local?);
        Some(PeerAddress { addr, local, tls: self.tls, stdio: false })
    }

    /// Returns true if its sender has counted the request towards the rates.
    pub fn is_counted(&self) -> bool {
        self.is_counted
    }

    /// Returns the client's certificate and its intermediate ones, in DER; none if it showed none.
    pub fn certificates(&self) -> Vec<Vec<u8>> {
        // One that cannot be decoded is empty, and not accepted.
        self.certificates.iter().map(|der| BASE64.decode(der).unwrap_or_default()).collect()
    }

    /// Puts the client's credentials back into the headers.
    pub fn restore_credentials(&self, headers: &mut HeaderMap) {
        for (name, value) in &self.credentials {
            let name = HeaderName::from_bytes(name.as_bytes());
            let value = BASE64.decode(value).ok().and_then(|it| HeaderValue::from_bytes(&it).ok());
            if let (Ok(name), Some(mut value)) = (name, value) {
                value.set_sensitive(true);
                headers.append(name, value);
            }
        }
    }
}

/// Returns path and query of a target.
fn path_of(uri: &Uri) -> &str {
    uri.path_and_query().map_or("/", |path| path.as_str())
}

/// The version of envelopes that this build writes, and the only one that it knows.
const ENVELOPE_VERSION: u32 = 1;
/// The age of an envelope at which it is refused, besides [`MAX_SKEW`].
const MAX_AGE: Duration = Duration::from_secs(10);
/// The most that the clocks of two replicas may differ.
const MAX_SKEW: Duration = Duration::from_secs(5);
/// The longest time between the first and the last use of an envelope.
pub(super) const MAX_VALIDITY: Duration = Duration::from_secs(20);

#[cfg(test)]
mod tests {
    use super::*;

    fn sealer(purpose: &[u8]) -> Sealer {
        Sealer::new(purpose, [&b"a shared key"[..]]).unwrap()
    }

    fn peer() -> PeerAddress {
        let addr = SocketAddr::from(([192, 0, 2, 1], 40_000));
        PeerAddress { addr, local: SocketAddr::from(([10, 0, 0, 7], 443)), tls: true, stdio: false }
    }

    #[test]
    fn an_envelope_covers_one_request_at_one_replica_for_a_short_time() {
        let (own, sent) = (ReplicaId::new([7; 8]), Duration::from_secs(1_000));
        let (method, uri): (_, Uri) = (Method::POST, "/mcp/p?servers=a".parse().unwrap());
        let line = RequestLine { method: &method, uri: &uri };
        let mut shown = HeaderMap::new();
        shown.insert("x-api-key", "secret".parse().unwrap());
        let shown = ShownCredentials::read(&shown, &[HeaderName::from_static("x-api-key")]);
        let envelope = Envelope::new(line, b"body", peer(), "ci")
            .with_certificates([&b"der"[..], b"ca"])
            .with_credentials(&shown)
            .addressed_to(own, [9; 16], sent);
        let sealed = envelope.seal(&sealer(b"one")).unwrap();
        assert_eq!(Envelope::open(sealed.as_bytes(), &sealer(b"two")), Err(EnvelopeFault::Forged));
        let opened = Envelope::open(sealed.as_bytes(), &sealer(b"one")).unwrap();
        assert_eq!(opened, envelope);
        let second = Duration::from_secs(1);
        for (now, expected) in [
            (sent, Ok(())),
            (sent + second * 15, Ok(())),
            (sent + second * 16, Err(EnvelopeFault::Expired)),
            (sent.saturating_sub(second * 5), Ok(())),
            (sent.saturating_sub(second * 6), Err(EnvelopeFault::Expired)),
        ] {
            assert_eq!(opened.check(own, line, now), expected, "{now:?}");
        }
        let other = ReplicaId::new([8; 8]);
        assert_eq!(opened.check(other, line, sent), Err(EnvelopeFault::OtherTarget));
        let get = RequestLine { method: &Method::GET, ..line };
        assert_eq!(opened.check(own, get, sent), Err(EnvelopeFault::OtherRequest));
        let wider: Uri = "/mcp/p".parse().unwrap();
        let wider = RequestLine { uri: &wider, ..line };
        assert_eq!(opened.check(own, wider, sent), Err(EnvelopeFault::OtherRequest));
        assert_eq!(opened.covers_body(b"body"), Ok(()));
        assert_eq!(opened.covers_body(b"other"), Err(EnvelopeFault::OtherBody));
        assert_eq!(opened.covers_principal("ci"), Ok(()));
        assert_eq!(opened.covers_principal("desk"), Err(EnvelopeFault::OtherPrincipal));
        assert_eq!((opened.client(), opened.nonce()), (Some(peer()), [9; 16]));
        assert_eq!(opened.certificates(), [&b"der"[..], b"ca"]);
        let mut headers = HeaderMap::new();
        opened.restore_credentials(&mut headers);
        assert_eq!(headers["x-api-key"], "secret");
        assert!(headers["x-api-key"].is_sensitive());
    }

    /// Returns an envelope with further members, or others.
    fn with_members(members: &serde_json::Value) -> Result<Envelope, EnvelopeFault> {
        let line = RequestLine { method: &Method::GET, uri: &Uri::from_static("/mcp") };
        let own = ReplicaId::new([7; 8]);
        let envelope = Envelope::new(line, b"", peer(), "ci");
        let envelope = envelope.addressed_to(own, [9; 16], Duration::from_secs(1_000));
        let mut written = serde_json::to_value(&envelope).unwrap();
        for (name, value) in members.as_object().unwrap() {
            written[name] = value.clone();
        }
        let sealed = sealer(b"one").seal(b"", written.to_string().into_bytes()).unwrap();
        let sealed = BASE64.encode(sealed);
        let opened = Envelope::open(sealed.as_bytes(), &sealer(b"one"))?;
        opened.check(own, line, Duration::from_secs(1_000))?;
        Ok(opened)
    }

    #[test]
    fn an_envelope_of_another_build_is_understood_or_refused_by_its_version() {
        let newer = serde_json::json!({ "a_hint": [1, 2], "another": { "x": null } });
        assert_eq!(with_members(&newer).unwrap().principal, "ci");
        for members in [
            // A build before versions, and one with members that may not be ignored.
            serde_json::json!({ "version": 0 }),
            serde_json::json!({ "version": 2, "a_duty": true }),
            // A member of another type.
            serde_json::json!({ "version": 3, "principal": ["ci"] }),
        ] {
            let fault = with_members(&members);
            assert_eq!(fault, Err(EnvelopeFault::OtherVersion), "{members}");
        }
        let text = serde_json::to_value(Envelope::default().counted()).unwrap();
        assert_eq!(text["is_counted"], true);
        assert!(!Envelope::default().is_counted());
    }

    #[test]
    fn no_secret_of_a_forwarded_request_is_shown() {
        let (method, uri): (_, Uri) = (Method::POST, "/mcp?key=SECRET".parse().unwrap());
        let mut shown = HeaderMap::new();
        shown.insert("x-api-key", "SECRET".parse().unwrap());
        let credentials = ShownCredentials::read(&shown, &[HeaderName::from_static("x-api-key")]);
        let line = RequestLine { method: &method, uri: &uri };
        let envelope = Envelope::new(line, b"", peer(), "ci").with_credentials(&credentials);
        let head = http::Request::post(&uri).header("x-api-key", "SECRET").body(()).unwrap();
        let request = super::super::ForwardedRequest {
            head: head.into_parts().0,
            body: bytes::Bytes::from_static(b"SECRET"),
            patience: MAX_AGE,
        };
        let text = format!("{envelope:?} {credentials:?} {request:?}");
        let encoded = BASE64.encode("SECRET");
        assert!(!text.contains("SECRET") && !text.contains(&encoded), "{text}");
        assert!(text.contains("\"ci\"") && text.contains("x-api-key"), "{text}");
    }

    #[test]
    fn an_envelope_that_was_changed_or_cut_is_forged() {
        let envelope = Envelope::default().seal(&sealer(b"one")).unwrap();
        let changed = |at: usize| {
            let mut text = envelope.clone().into_bytes();
            text[at] = if text[at] == b'A' { b'B' } else { b'A' };
            text
        };
        let cases = (0..envelope.len()).map(changed);
        for text in cases.chain([envelope.as_bytes()[4..].to_vec(), Vec::new()]) {
            let fault = Envelope::open(&text, &sealer(b"one"));
            assert_eq!(fault, Err(EnvelopeFault::Forged));
        }
    }
}
