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
//!
//! Every byte of the header is coded and decoded by HTTP/2 (Huffman), so the members are in Protocol
//! Buffers: a fourth of the size in JSON.

use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD as BASE64;
use bytes::Bytes;
use http::{HeaderMap, HeaderName, HeaderValue, Method, Uri};
use prost::Message;

use super::{ReplicaId, ServerDigest};
use crate::call::{PeerAddress, ServerName};
use crate::crypto::{NONCE_LEN, SealError, Sealer};

/// The header of an envelope.
pub const ENVELOPE_HEADER: HeaderName = HeaderName::from_static("trunkline-forwarded");

/// The envelope of a request that is forwarded: its client, as the connection and the headers identified it.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct Envelope {
    sealed: SealedMembers,
    /// The body of the request, for the tag over it.
    body: Bytes,
}

/// The envelope of a request that another replica has forwarded. The body has not arrived yet.
#[derive(Clone, PartialEq, Eq)]
pub struct OpenedEnvelope {
    sealed: SealedMembers,
    /// The nonce of its seal, which no other envelope has.
    pub(super) nonce: EnvelopeNonce,
}

/// The nonce of an envelope's seal.
pub(super) type EnvelopeNonce = [u8; NONCE_LEN];

/// The sealed members of an envelope.
#[derive(Clone, PartialEq, Eq, Message)]
#[prost(skip_debug)]
struct SealedMembers {
    /// The version of the format that the owner has to know.
    #[prost(uint32, tag = "1")]
    version: u32,
    #[prost(bytes = "vec", tag = "2")]
    target: Vec<u8>,
    /// Time since 1970, in milliseconds.
    #[prost(uint64, tag = "3")]
    issued: u64,
    #[prost(string, tag = "4")]
    method: String,
    #[prost(string, tag = "5")]
    path: String,
    /// The authentication tag of the body, under the keys of the envelope: a nonce and a tag of GCM
    /// cost less than a digest, and prove the same to an owner with these keys.
    #[prost(bytes = "vec", tag = "6")]
    body_tag: Vec<u8>,
    #[prost(bytes = "vec", tag = "7")]
    client: Vec<u8>,
    #[prost(bytes = "vec", tag = "8")]
    local: Vec<u8>,
    #[prost(bool, tag = "9")]
    tls: bool,
    /// The client's certificate, and the intermediate ones that it showed.
    #[prost(bytes = "vec", repeated, tag = "10")]
    certificates: Vec<Vec<u8>>,
    #[prost(string, tag = "11")]
    principal: String,
    #[prost(message, repeated, tag = "12")]
    credentials: Vec<SealedCredential>,
    /// True if its sender has counted the request towards the rates.
    #[prost(bool, tag = "13")]
    is_counted: bool,
    /// The sender, if it has left: it had the session, and is not asked for it.
    #[prost(bytes = "vec", tag = "14")]
    left: Vec<u8>,
    /// The digest of the settings of a server's child, for a request to that server.
    #[prost(bytes = "vec", tag = "15")]
    server_digest: Vec<u8>,
}

/// A header that authentication has removed.
#[derive(Clone, PartialEq, Eq, Message)]
#[prost(skip_debug)]
struct SealedCredential {
    #[prost(string, tag = "1")]
    name: String,
    #[prost(bytes = "vec", tag = "2")]
    value: Vec<u8>,
}

/// Its credentials are not shown, nor is its path with the query.
impl std::fmt::Debug for SealedMembers {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Envelope")
            .field("target", &self.target)
            .field("issued", &self.issued)
            .field("method", &self.method)
            .field("client", &read_address(&self.client))
            .field("principal", &self.principal)
            .field("certificates", &self.certificates.len())
            .field("credentials", &self.credentials.len())
            .finish_non_exhaustive()
    }
}

/// Its value is not shown.
impl std::fmt::Debug for SealedCredential {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("SealedCredential").field("name", &self.name).finish_non_exhaustive()
    }
}

impl std::fmt::Debug for Envelope {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        std::fmt::Debug::fmt(&self.sealed, f)
    }
}

impl std::fmt::Debug for OpenedEnvelope {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        std::fmt::Debug::fmt(&self.sealed, f)
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
}

impl Envelope {
    /// Creates an envelope for a request of this principal from this connection.
    pub fn new(request: RequestLine<'_>, body: Bytes, from: PeerAddress, principal: &str) -> Self {
        let sealed = SealedMembers {
            version: ENVELOPE_VERSION,
            method: request.method.as_str().to_owned(),
            path: path_of(request.uri).to_owned(),
            client: write_address(from.addr),
            local: write_address(from.local),
            tls: from.tls,
            principal: principal.to_owned(),
            ..SealedMembers::default()
        };
        Self { sealed, body }
    }

    /// Creates an envelope for a request of this replica to a server whose child the target runs. It
    /// names no client.
    pub fn for_server(request: RequestLine<'_>, body: Bytes, digest: &ServerDigest) -> Self {
        let sealed = SealedMembers {
            version: SERVER_ENVELOPE_VERSION,
            method: request.method.as_str().to_owned(),
            path: path_of(request.uri).to_owned(),
            server_digest: digest.to_vec(),
            ..SealedMembers::default()
        };
        Self { sealed, body }
    }

    /// Adds the client's certificate and its intermediate ones, in DER.
    #[must_use]
    pub fn with_certificates<'a>(mut self, chain: impl IntoIterator<Item = &'a [u8]>) -> Self {
        self.sealed.certificates = chain.into_iter().map(<[u8]>::to_vec).collect();
        self
    }

    /// Adds the credentials that authentication has removed.
    #[must_use]
    pub fn with_credentials(mut self, shown: &ShownCredentials) -> Self {
        let shown = shown.0.iter().map(|(name, value)| SealedCredential {
            name: name.to_string(),
            value: value.as_bytes().to_vec(),
        });
        self.sealed.credentials = shown.collect();
        self
    }

    /// Notes that the request was counted towards the rates already.
    #[must_use]
    pub fn counted(mut self) -> Self {
        self.sealed.is_counted = true;
        self
    }

    /// Notes that its sender has left, and hands the session over.
    #[must_use]
    pub fn handed_over_by(mut self, sender: ReplicaId) -> Self {
        self.sealed.left = sender.as_bytes().to_vec();
        self
    }

    /// Addresses it to a replica, at this time since 1970.
    #[must_use]
    pub fn addressed_to(mut self, target: ReplicaId, now: Duration) -> Self {
        self.sealed.target = target.as_bytes().to_vec();
        self.sealed.issued = u64::try_from(now.as_millis()).unwrap_or(u64::MAX);
        self
    }

    /// Seals it as the value of its header, together with the body's tag.
    ///
    /// # Errors
    /// [`SealError`].
    pub fn seal(mut self, sealer: &Sealer) -> Result<String, SealError> {
        self.sealed.body_tag = sealer.seal(&self.body, Vec::new())?;
        Ok(BASE64.encode(sealer.seal(b"", self.sealed.encode_to_vec())?))
    }
}

impl OpenedEnvelope {
    /// Opens the value of its header.
    pub(super) fn open(value: &[u8], sealer: &Sealer) -> Result<Self, EnvelopeFault> {
        let bytes = BASE64.decode(value).map_err(|_| EnvelopeFault::Forged)?;
        let text = sealer.open(b"", &bytes).ok_or(EnvelopeFault::Forged)?;
        let nonce = *bytes.first_chunk().ok_or(EnvelopeFault::Forged)?;
        let members = SealedMembers::decode(&*text).map_err(|_| EnvelopeFault::OtherVersion)?;
        Ok(Self { sealed: members, nonce })
    }

    /// Checks that it is of a known version, and for this replica, this time and this request.
    pub(super) fn check(
        &self,
        own: ReplicaId,
        request: RequestLine<'_>,
        now: Duration,
    ) -> Result<(), EnvelopeFault> {
        let sealed = &self.sealed;
        let is_to_server = match sealed.version {
            ENVELOPE_VERSION => false,
            SERVER_ENVELOPE_VERSION => true,
            _ => return Err(EnvelopeFault::OtherVersion),
        };
        if is_to_server != is_server_path(request.uri.path()) {
            return Err(EnvelopeFault::OtherRequest);
        }
        if sealed.target != own.as_bytes() {
            return Err(EnvelopeFault::OtherTarget);
        }
        let issued = Duration::from_millis(sealed.issued);
        let age = now.saturating_sub(issued);
        if age > MAX_AGE + MAX_SKEW || issued.saturating_sub(now) > MAX_SKEW {
            return Err(EnvelopeFault::Expired);
        }
        if sealed.method != request.method.as_str() || sealed.path != path_of(request.uri) {
            return Err(EnvelopeFault::OtherRequest);
        }
        Ok(())
    }

    /// Checks that the body of the request is the one that was forwarded.
    pub(super) fn check_body(&self, body: &[u8], sealer: &Sealer) -> Result<(), EnvelopeFault> {
        let opened = sealer.open(body, &self.sealed.body_tag);
        opened.is_some().then_some(()).ok_or(EnvelopeFault::OtherBody)
    }

    /// Checks that the owner found the same principal.
    ///
    /// # Errors
    /// [`EnvelopeFault::OtherPrincipal`].
    pub fn covers_principal(&self, principal: &str) -> Result<(), EnvelopeFault> {
        (self.sealed.principal == principal).then_some(()).ok_or(EnvelopeFault::OtherPrincipal)
    }

    /// Returns the connection of the client; `None` if the envelope lacks it.
    pub fn client(&self) -> Option<PeerAddress> {
        let (addr, local) = (read_address(&self.sealed.client)?, read_address(&self.sealed.local)?);
        Some(PeerAddress { addr, local, tls: self.sealed.tls, stdio: false })
    }

    /// Returns true if it is for a server's child with these settings.
    pub fn is_for_settings(&self, digest: &ServerDigest) -> bool {
        self.sealed.server_digest == digest
    }

    /// Returns true if its sender has counted the request towards the rates.
    pub fn is_counted(&self) -> bool {
        self.sealed.is_counted
    }

    /// Returns its sender if that has left.
    pub fn sender_that_left(&self) -> Option<ReplicaId> {
        self.sealed.left.as_slice().try_into().ok().map(ReplicaId::new)
    }

    /// Returns the client's certificate and its intermediate ones, in DER; none if it showed none.
    pub fn certificates(&self) -> &[Vec<u8>] {
        &self.sealed.certificates
    }

    /// Puts the client's credentials back into the headers.
    pub fn restore_credentials(&self, headers: &mut HeaderMap) {
        for SealedCredential { name, value } in &self.sealed.credentials {
            let name = HeaderName::from_bytes(name.as_bytes());
            if let (Ok(name), Ok(mut value)) = (name, HeaderValue::from_bytes(value)) {
                value.set_sensitive(true);
                headers.append(name, value);
            }
        }
    }
}

/// Writes the octets of an address, and its port.
fn write_address(address: SocketAddr) -> Vec<u8> {
    let mut bytes = match address.ip() {
        IpAddr::V4(ip) => ip.octets().to_vec(),
        IpAddr::V6(ip) => ip.octets().to_vec(),
    };
    bytes.extend(address.port().to_be_bytes());
    bytes
}

fn read_address(bytes: &[u8]) -> Option<SocketAddr> {
    let (ip, port) = bytes.split_last_chunk()?;
    let v4 = <[u8; 4]>::try_from(ip).map(IpAddr::from);
    let ip = v4.or_else(|_| <[u8; 16]>::try_from(ip).map(IpAddr::from)).ok()?;
    Some(SocketAddr::new(ip, u16::from_be_bytes(*port)))
}

/// Returns path and query of a target.
fn path_of(uri: &Uri) -> &str {
    uri.path_and_query().map_or("/", |path| path.as_str())
}

/// Returns the path of a server's child at `cluster.listen`.
pub fn server_path(server: &ServerName) -> String {
    format!("{SERVER_PATH}{server}")
}

/// Returns the name of the server that a path at `cluster.listen` addresses.
pub fn server_of_path(path: &str) -> Option<ServerName> {
    path.strip_prefix(SERVER_PATH).and_then(|name| ServerName::new(name).ok())
}

fn is_server_path(path: &str) -> bool {
    path.starts_with(SERVER_PATH)
}

/// The beginning of the paths of servers at `cluster.listen`. No endpoint of clients begins so.
const SERVER_PATH: &str = "/servers/";
/// The version of envelopes for requests of clients. Version 1 was in JSON.
const ENVELOPE_VERSION: u32 = 2;
/// The version of envelopes for requests to servers.
const SERVER_ENVELOPE_VERSION: u32 = 3;
/// The age of an envelope at which it is refused, besides [`MAX_SKEW`].
const MAX_AGE: Duration = Duration::from_secs(10);
/// The most that the clocks of two replicas may differ.
const MAX_SKEW: Duration = Duration::from_secs(5);
/// The longest time between the first and the last use of an envelope.
pub(super) const MAX_VALIDITY: Duration = Duration::from_secs(20);

#[cfg(test)]
mod tests;
