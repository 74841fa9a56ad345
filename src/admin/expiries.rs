//! The calendar of expiries: certificates, CA certificates and keys with an end.
//!
//! One list serves `trunkline check`, `/status`, the reasons of `/readyz`, the metric and the log.

use std::sync::Arc;

use jiff::{SignedDuration, Timestamp};
use schemars::JsonSchema;
use serde::Serialize;

use super::ExpiryStatus;
use crate::codec::file::read_file;
use crate::config::{Config, ConfigPlaces, IssuerConfig, IssuerName, quote_segment};
use crate::identity::{KeySet, TokenIssuer};
use crate::listener::utc_date;
use crate::oauth::{AnnouncedEnd, EndingElement, GrantBook};
use crate::snapshot::Snapshots;

/// The kind of an element that expires.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum ExpiryKind {
    /// The gateway's own certificate, or an intermediate certificate of its chain.
    Certificate,
    /// A CA certificate for certificates of clients.
    ClientCa,
    /// A CA certificate for certificates of servers, providers and issuers.
    ServerCa,
    /// The certificate between replicas, or an intermediate certificate of its chain.
    ReplicaCertificate,
    /// A CA certificate of the replicas.
    ReplicaCa,
    /// A client's API key.
    ApiKey,
    /// A login at a server: its refresh token, if the provider has announced an end.
    Grant,
    /// The secret of a client that the gateway has registered with a provider.
    ProviderSecret,
    /// A certificate of a key with which an issuer signs tokens.
    IssuerKey,
}

/// An element with an end.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Expiry {
    /// Its kind.
    pub kind: ExpiryKind,
    /// The setting, such as `gateway.tls.cert`.
    pub name: String,
    /// The element, with its article.
    pub subject: String,
    /// Its end.
    pub at: Timestamp,
}

/// The state of an element that expires.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum ExpiryState {
    /// More than [`EXPIRY_WARNING`] remain.
    Valid,
    /// It ends within [`EXPIRY_WARNING`].
    Soon,
    /// It has ended.
    Expired,
}

impl ExpiryKind {
    /// Returns the name in metrics.
    pub fn label(self) -> &'static str {
        match self {
            Self::Certificate => "certificate",
            Self::ClientCa => "client_ca",
            Self::ServerCa => "server_ca",
            Self::ReplicaCertificate => "replica_certificate",
            Self::ReplicaCa => "replica_ca",
            Self::ApiKey => "api_key",
            Self::Grant => "grant",
            Self::ProviderSecret => "provider_secret",
            Self::IssuerKey => "issuer_key",
        }
    }

    /// Returns true for certificates, also of CAs.
    pub fn is_certificate(self) -> bool {
        match self {
            Self::Certificate
            | Self::ClientCa
            | Self::ServerCa
            | Self::ReplicaCertificate
            | Self::ReplicaCa => true,
            Self::ApiKey | Self::Grant | Self::ProviderSecret | Self::IssuerKey => false,
        }
    }

    /// Returns the action that is due before the end.
    pub fn cure(self) -> &'static str {
        match self {
            Self::Certificate | Self::ReplicaCertificate => "renew it",
            Self::ClientCa | Self::ServerCa | Self::ReplicaCa => {
                "add the CA certificate that replaces it"
            }
            Self::ApiKey => "give the client another key (trunkline key)",
            Self::Grant => "log in again",
            Self::ProviderSecret => {
                "set `client_id` and `client_secret`, or have users log in again"
            }
            Self::IssuerKey => "the issuer has to publish its next key",
        }
    }

    /// Returns the consequence of the end.
    fn consequence(self) -> &'static str {
        match self {
            Self::Certificate => "clients refuse it: renew it",
            Self::ClientCa => "client certificates that it has issued are refused",
            Self::ServerCa => "certificates that it has issued are not trusted",
            Self::ReplicaCertificate => "other replicas refuse it: renew it",
            Self::ReplicaCa => "replicas with certificates that it has issued are not trusted",
            Self::ApiKey => "clients that use it are refused",
            Self::Grant => "log in again",
            Self::ProviderSecret => "the provider refuses the gateway",
            Self::IssuerKey => "its tokens are accepted here, and may be refused elsewhere",
        }
    }
}

impl Expiry {
    /// Returns the state at a time.
    pub fn state(&self, now: Timestamp) -> ExpiryState {
        match self.at.duration_since(now) {
            rest if rest.is_negative() || rest.is_zero() => ExpiryState::Expired,
            rest if rest <= EXPIRY_WARNING => ExpiryState::Soon,
            _ => ExpiryState::Valid,
        }
    }

    /// Returns the next time at which more attention is due; `None` after the end.
    pub fn next_threshold(&self, now: Timestamp) -> Option<Timestamp> {
        let times = EXPIRY_THRESHOLDS.iter().filter_map(|before| self.at.checked_sub(*before).ok());
        times.filter(|at| *at > now).min()
    }

    /// Returns the status.
    pub(super) fn status(self, now: Timestamp, places: &ConfigPlaces) -> ExpiryStatus {
        ExpiryStatus {
            state: self.state(now),
            kind: self.kind,
            line: places.line_of(&self.name),
            expires_at: self.at,
            cure: self.kind.cure(),
            name: self.name,
            subject: self.subject,
        }
    }

    /// Returns the warning of an element that has expired or will do so soon, with its setting.
    pub fn warning(&self, now: Timestamp) -> Option<String> {
        let ending = match self.state(now) {
            ExpiryState::Valid => return None,
            ExpiryState::Soon => self.kind.cure(),
            ExpiryState::Expired => self.kind.consequence(),
        };
        let (name, subject) = (&self.name, &self.subject);
        Some(format!("{name}: {subject} {}: {ending}", describe_end(self.at, now)))
    }
}

/// Describes an end: `expires in 6 days, on 2026-12-03`.
pub(super) fn describe_end(at: Timestamp, now: Timestamp) -> String {
    let on = utc_date(at);
    if at <= now {
        return format!("has expired on {on}");
    }
    format!("expires in {}, on {on}", time_left(at.duration_since(now)))
}

/// Returns the API keys of a configuration that have an end.
pub fn key_expiries(config: &Config) -> Vec<Expiry> {
    let keys = config.clients.iter().flat_map(|client| {
        let name = quote_segment(&client.name);
        client.keys.iter().enumerate().filter_map(move |(index, key)| {
            Some(Expiry {
                kind: ExpiryKind::ApiKey,
                name: format!("clients.{name}.keys[{index}]"),
                subject: format!("the key {}", key.hash.abbreviation()),
                at: key.expires?,
            })
        })
    });
    keys.collect()
}

/// Returns the ends that are known only while the gateway runs: of grants and of issuers' keys.
pub(super) fn running_expiries(snapshots: &Snapshots, now: Timestamp) -> Vec<Expiry> {
    let snapshot = snapshots.load();
    let mut all = grant_expiries(snapshots.grants(), &snapshot.config);
    all.extend(issuer_expiries(snapshot.identity.issuers(), now));
    all
}

/// Returns the ends of logins and client secrets of configured servers that providers have announced.
/// Users are not named: of their logins at a server, the first one to end counts.
fn grant_expiries(grants: &GrantBook, config: &Config) -> Vec<Expiry> {
    let expiry = |end: AnnouncedEnd| {
        let name = format!("servers.{}.oauth", quote_segment(end.server.as_str()));
        let (kind, name, subject) = match end.element {
            EndingElement::OwnLogin => {
                (ExpiryKind::Grant, format!("{name}[gateway]"), "the login of the gateway")
            }
            EndingElement::UserLogin => {
                (ExpiryKind::Grant, format!("{name}[users]"), "the first login of a user to end")
            }
            EndingElement::ClientSecret => {
                (ExpiryKind::ProviderSecret, name, "the client secret from the provider")
            }
        };
        let at = SignedDuration::try_from(end.at).ok().map(Timestamp::from_duration);
        let at = at.and_then(Result::ok).unwrap_or(Timestamp::MAX);
        Expiry { kind, name, subject: subject.to_owned(), at }
    };
    let is_configured =
        |end: &AnnouncedEnd| config.servers.iter().any(|server| server.name == end.server);
    grants.announced_ends().into_iter().filter(is_configured).map(expiry).collect()
}

/// Returns the ends of the certificates (`x5c`) that issuers publish with their keys. Of each
/// issuer, the first one to end counts; those that have ended are left out while another is valid.
fn issuer_expiries(issuers: &[Arc<TokenIssuer>], now: Timestamp) -> Vec<Expiry> {
    let expiry = |issuer: &Arc<TokenIssuer>| {
        let keys = issuer.keys.current()?;
        issuer_expiry(&issuer.config.name, &keys, now)
    };
    issuers.iter().filter_map(expiry).collect()
}

/// Like [`issuer_expiries`], for the issuers whose keys are in a file of this machine. Blocks. A file
/// that cannot be used is a fault of its issuer.
pub fn local_issuer_expiries(config: &Config, now: Timestamp) -> Vec<Expiry> {
    let expiry = |issuer: &IssuerConfig| {
        let keys = read_file(issuer.jwks_file.as_ref()?, MAX_KEY_FILE).ok()?;
        issuer_expiry(&issuer.name, &KeySet::parse(&keys).ok()?, now)
    };
    config.issuers.iter().filter_map(expiry).collect()
}

fn issuer_expiry(issuer: &IssuerName, keys: &KeySet, now: Timestamp) -> Option<Expiry> {
    let ends = || keys.certificate_ends().filter_map(|at| Timestamp::from_second(at).ok());
    let at = ends().filter(|at| *at > now).min().or_else(|| ends().max())?;
    Some(Expiry {
        kind: ExpiryKind::IssuerKey,
        name: format!("issuers.{}", quote_segment(issuer.as_str())),
        subject: "the certificate of a key".to_owned(),
        at,
    })
}

/// Returns a duration in its largest unit.
fn time_left(rest: SignedDuration) -> String {
    let plural = |count: i64, unit: &str| match count {
        1 => format!("1 {unit}"),
        count => format!("{count} {unit}s"),
    };
    let hours = rest.as_hours();
    match hours {
        24.. => plural(hours / 24, "day"),
        1.. => plural(hours, "hour"),
        _ => "less than an hour".to_owned(),
    }
}

/// The times before an end at which more attention is due.
const EXPIRY_THRESHOLDS: [SignedDuration; 4] = [
    EXPIRY_WARNING,
    SignedDuration::from_hours(7 * 24),
    SignedDuration::from_hours(24),
    SignedDuration::ZERO,
];
/// Limit of the bytes of a file with an issuer's keys.
const MAX_KEY_FILE: usize = 256 << 10;
/// The time before an end from which on it is warned of.
pub const EXPIRY_WARNING: SignedDuration = SignedDuration::from_hours(21 * 24);

#[cfg(test)]
mod tests {
    use data_encoding::BASE64;
    use rcgen::{CertificateParams, KeyPair};
    use serde_json::json;

    use super::*;
    use crate::config::{ConfigSource, SystemEnvironment};

    #[test]
    fn certificates_of_keys_in_a_local_file_are_in_the_calendar() {
        let folder = tempfile::tempdir().unwrap();
        let mut params = CertificateParams::new(Vec::new()).unwrap();
        params.not_after = rcgen::date_time_ymd(2026, 12, 3);
        let certificate = params.self_signed(&KeyPair::generate().unwrap()).unwrap();
        // The key of RFC 7517, appendix A.1.
        let key = json!({
            "kty": "EC", "crv": "P-256", "use": "sig", "kid": "1",
            "x": "MKBCTNIcKUSDii11ySs3526iDZ8AiTo7Tu6KPAqv7D4",
            "y": "4Etl6SRW2YiLUrN5vfvVHuhp7x8PxltmWWlbbM4IFyM",
            "x5c": [BASE64.encode(certificate.der())],
        });
        let keys = json!({ "keys": [key] }).to_string();
        std::fs::write(folder.path().join("keys.json"), keys).unwrap();
        let text = "gateway.public_url = \"https://gw.example.com\"\n\
                    [issuers.idp]\nissuer = \"https://idp.example.com\"\n\
                    jwks_file = \"keys.json\"\n\
                    [issuers.none]\nissuer = \"https://none.example.com\"\n\
                    jwks_file = \"none.json\"\n";
        let name = "gateway.toml".into();
        let source = ConfigSource { name, folder: folder.path().into(), bytes: text.into() };
        let config = Config::read(&source, &SystemEnvironment).unwrap();
        let now = "2026-12-01T00:00:00Z".parse().unwrap();
        let found = local_issuer_expiries(&config, now);
        assert_eq!(found.len(), 1, "{found:?}");
        let warning = found[0].warning(now).unwrap();
        let expected = "issuers.idp: the certificate of a key expires in 2 days, on 2026-12-03";
        assert!(warning.starts_with(expected), "{warning}");
    }

    #[test]
    fn an_end_is_warned_of_from_21_days_before_it() {
        let at: Timestamp = "2026-12-03T12:00:00Z".parse().unwrap();
        let expiry = Expiry {
            kind: ExpiryKind::Certificate,
            name: "gateway.tls.cert".to_owned(),
            subject: "the certificate".to_owned(),
            at,
        };
        for (before, warning) in [
            (22 * 24, None),
            (21 * 24 + 1, None),
            (21 * 24, Some("expires in 21 days, on 2026-12-03: renew it")),
            (6 * 24 + 5, Some("expires in 6 days, on 2026-12-03: renew it")),
            (24, Some("expires in 1 day, on 2026-12-03: renew it")),
            (5, Some("expires in 5 hours, on 2026-12-03: renew it")),
            (0, Some("has expired on 2026-12-03: clients refuse it: renew it")),
            (-48, Some("has expired on 2026-12-03: clients refuse it: renew it")),
        ] {
            let found = expiry.warning(at - SignedDuration::from_hours(before));
            let expected = warning.map(|text| format!("gateway.tls.cert: the certificate {text}"));
            assert_eq!(found, expected, "{before} hours before");
        }
        let soon = expiry.warning(at - SignedDuration::from_mins(5)).unwrap();
        assert!(soon.contains("less than an hour"), "{soon}");
    }
}
