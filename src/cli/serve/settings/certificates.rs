//! The certificates that a configuration names: their faults, remarks and expiries.
//!
//! A file that cannot be used keeps the gateway from starting. A certificate that clients refuse does
//! not: a gateway that restarts at night must come back while the renewal of its certificate is
//! late. `check` reports both.

use std::fmt;
use std::path::{Path, PathBuf};

use jiff::Timestamp;
use rustls::ClientConfig;
use rustls_pki_types::CertificateDer;
use trunkline_https::{PeerFiles, is_platform_root, peer_tls};
use x509_parser::parse_x509_certificate;

use crate::admin::{Expiry, ExpiryKind, wall_time};
use crate::config::{
    ClientCertificates, ClusterConfig, Config, LateFault, ServerKind, TlsConfig, quote_segment,
};
use crate::listener::{
    CertificateFault, Certificates, ChainSurroundings, PemCertificate, TlsError, TlsFiles,
    are_swapped, inspect_authorities, inspect_chain, read_certificates,
};
use crate::text::error_chain;

/// The judgement of certificates of a configuration.
#[derive(Debug, Default)]
pub struct CertificateReport {
    /// Faults that connections will fail for.
    pub faults: Vec<LateFault>,
    /// Time from which certificates that are not valid yet are valid.
    pub valid_from: Option<Timestamp>,
    /// Remarks.
    pub remarks: Vec<CertificateRemark>,
    /// Expiries of certificates and keys.
    pub expiries: Vec<Expiry>,
}

/// A remark on a setting.
#[derive(Debug)]
pub struct CertificateRemark {
    /// The setting.
    pub key: &'static str,
    /// The remark.
    pub text: String,
}

impl fmt::Display for CertificateRemark {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.key, self.text)
    }
}

/// Reads the certificates of the listener for clients.
///
/// # Errors
/// The fault of a file that cannot be used.
pub(super) fn load_certificates(tls: &TlsConfig) -> Result<Certificates, LateFault> {
    let files = TlsFiles {
        cert: tls.cert.clone(),
        key: tls.key.clone(),
        client_ca: tls.client_ca.clone(),
        client_certificates: tls.client_certificates,
    };
    Certificates::load(&files).map_err(|error| {
        if are_swapped(&files) {
            return swapped_fault(&files);
        }
        LateFault {
            key: key_of(&error, tls).to_owned(),
            text: error_chain(&error),
            help: help_of(&error).to_owned(),
        }
    })
}

/// The certificates for connections between replicas.
pub(super) struct PeerCertificates {
    /// For the listener: all replicas show a certificate of the CA.
    pub(super) server: Certificates,
    /// For connections to other replicas.
    pub(super) client: ClientConfig,
}

/// Reads the certificates for connections between replicas; `None` if all are on this machine.
///
/// # Errors
/// The fault of a file that cannot be used.
pub(super) fn load_peer_certificates(
    cluster: &ClusterConfig,
) -> Result<Option<PeerCertificates>, LateFault> {
    let (Some(cert), Some(key), Some(ca)) = (&cluster.cert, &cluster.key, &cluster.ca) else {
        return Ok(None);
    };
    let tls = TlsConfig {
        cert: cert.clone(),
        key: key.clone(),
        client_ca: Some(ca.clone()),
        client_certificates: ClientCertificates::Required,
    };
    let loaded = load_certificates(&tls).map_err(|fault| {
        let key = match &*fault.key {
            CERT_KEY => PEER_CERT_KEY,
            CLIENT_CA_KEY => PEER_CA_KEY,
            _ => "cluster.key",
        };
        LateFault { key: key.to_owned(), ..fault }
    });
    let server = loaded?;
    let client = peer_tls(PeerFiles { cert, key, ca }).map_err(|error| LateFault {
        key: PEER_CERT_KEY.to_owned(),
        text: error_chain(&error),
        help: "if the files are being renewed, wait until all of them are written".to_owned(),
    })?;
    Ok(Some(PeerCertificates { server, client }))
}

fn swapped_fault(files: &TlsFiles) -> LateFault {
    let name = |file: &Path| {
        format!("{:?}", file.file_name().unwrap_or(file.as_os_str()).to_string_lossy())
    };
    let (cert, key) = (name(&files.cert), name(&files.key));
    LateFault {
        key: CERT_KEY.to_owned(),
        text: format!("`cert` and `key` are swapped: {cert} has the key, {key} the certificate"),
        help: format!("name {key} in `cert` and {cert} in `key`"),
    }
}

/// Judges the certificates of the listener for clients.
pub(in crate::cli::serve) fn judge_own(
    certificates: &Certificates,
    tls: &TlsConfig,
) -> CertificateReport {
    let mut report = CertificateReport::default();
    report.add_own(certificates, &tls.cert, &CLIENT_FACING);
    report
}

/// Judges the certificates for connections between replicas.
pub fn judge_peer(certificates: &Certificates, cluster: &ClusterConfig) -> CertificateReport {
    let mut report = CertificateReport::default();
    let file = cluster.cert.as_deref().unwrap_or(Path::new(""));
    report.add_own(certificates, file, &PEER_FACING);
    report
}

/// The settings of a certificate and its CA, and their kinds.
struct CertificateRole {
    cert: &'static str,
    ca: &'static str,
    kinds: [ExpiryKind; 2],
}

/// The certificates for clients.
const CLIENT_FACING: CertificateRole = CertificateRole {
    cert: CERT_KEY,
    ca: CLIENT_CA_KEY,
    kinds: [ExpiryKind::Certificate, ExpiryKind::ClientCa],
};
/// The certificates between replicas.
const PEER_FACING: CertificateRole = CertificateRole {
    cert: PEER_CERT_KEY,
    ca: PEER_CA_KEY,
    kinds: [ExpiryKind::ReplicaCertificate, ExpiryKind::ReplicaCa],
};

/// Reads and judges the CA certificates for servers, providers and issuers. A file that cannot be
/// read, or that takes forever, is a fault of its server, and no reason to refuse the
/// configuration. Blocks.
pub fn judge_authorities(config: &Config) -> CertificateReport {
    let mut report = CertificateReport::default();
    for (key, file) in authority_files(config) {
        report.add_authority(key, file, wall_time());
    }
    report
}

impl CertificateReport {
    fn add_own(&mut self, certificates: &Certificates, file: &Path, role: &CertificateRole) {
        let now = wall_time();
        let CertificateRole { cert, ca, kinds: [cert_kind, ca_kind] } = *role;
        let nearby = || certificates_beside(file);
        // Replicas know the roots of the file alone.
        let is_peer = cert_kind == ExpiryKind::ReplicaCertificate;
        let is_root = |subject: &[u8]| {
            if is_peer {
                has_subject(certificates.client_ca(), subject)
            } else {
                is_platform_root(subject)
            }
        };
        let around = ChainSurroundings { now, is_root: &is_root, nearby: &nearby };
        let chain = inspect_chain(certificates.chain(), &around);
        self.valid_from = chain.faults.iter().filter_map(CertificateFault::begin).max();
        let faults = chain.faults.iter().map(|fault| chain_fault(fault, file));
        self.faults.extend(faults.map(|fault| LateFault { key: cert.to_owned(), ..fault }));
        if let Some(issuer) = chain.unknown_issuer {
            let text = format!(
                "the issuer {issuer} is not in the file: if it is an intermediate CA, append its \
                 certificate"
            );
            self.remarks.push(CertificateRemark { key: cert, text });
        }
        self.expiries.push(Expiry {
            kind: cert_kind,
            name: cert.to_owned(),
            subject: "the certificate".to_owned(),
            at: chain.expires,
        });
        if let Some(authority) = inspect_authorities(certificates.client_ca(), now) {
            self.faults.extend(authority.fault.map(|fault| authority_fault(ca, &fault)));
            self.expiries.push(Expiry {
                kind: ca_kind,
                name: ca.to_owned(),
                subject: format!("the CA certificate {}", authority.subject),
                at: authority.expires,
            });
        }
    }

    fn add_authority(&mut self, key: String, file: &Path, now: Timestamp) {
        let certificates = match read_certificates(file) {
            Ok(certificates) => certificates,
            Err(error) => {
                let (text, help) = (error_chain(&error), help_of(&error).to_owned());
                self.faults.push(LateFault { key, text, help });
                return;
            }
        };
        let Some(authority) = inspect_authorities(&certificates, now) else { return };
        self.faults.extend(authority.fault.map(|fault| authority_fault(&key, &fault)));
        self.expiries.push(Expiry {
            kind: ExpiryKind::ServerCa,
            name: key,
            subject: format!("the CA certificate {}", authority.subject),
            at: authority.expires,
        });
    }
}

/// Returns the files with CA certificates for outgoing connections, by their settings.
fn authority_files(config: &Config) -> Vec<(String, &PathBuf)> {
    let mut files = Vec::new();
    for server in &config.servers {
        let (ca, oauth) = match &server.target {
            ServerKind::Http(http) => (&http.ca, &http.oauth),
            ServerKind::OpenApi(api) => (&api.ca, &api.oauth),
            ServerKind::Command(_) => continue,
        };
        let name = quote_segment(server.name.as_str());
        let login = oauth.as_ref().and_then(|oauth| oauth.ca.as_ref());
        files.extend(ca.as_ref().map(|file| (format!("servers.{name}.ca"), file)));
        files.extend(login.map(|file| (format!("servers.{name}.oauth.ca"), file)));
    }
    for issuer in &config.issuers {
        let name = quote_segment(issuer.name.as_str());
        files.extend(issuer.ca.as_ref().map(|file| (format!("issuers.{name}.ca"), file)));
    }
    files
}

/// Returns the setting that a fault belongs to.
fn key_of(error: &TlsError, tls: &TlsConfig) -> &'static str {
    match error {
        TlsError::Unreadable { file, .. }
        | TlsError::Malformed { file, .. }
        | TlsError::NoCertificate { file } => match file {
            file if *file == tls.cert => CERT_KEY,
            file if *file == tls.key => "gateway.tls.key",
            _ => CLIENT_CA_KEY,
        },
        TlsError::NoKey { .. } | TlsError::ForeignKey { .. } | TlsError::Unfit { .. } => {
            "gateway.tls.key"
        }
        TlsError::OldVersion { .. } => CERT_KEY,
        TlsError::ClientCa { .. } | TlsError::BadCa { .. } => CLIENT_CA_KEY,
        TlsError::Unsupported(_) => "gateway.tls",
    }
}

fn help_of(error: &TlsError) -> &'static str {
    match error {
        TlsError::Unreadable { .. } => "a relative path starts at the configuration file's folder",
        TlsError::Malformed { .. } => "copy the file again: it may be cut off",
        TlsError::NoCertificate { .. } => {
            "name a file with -----BEGIN CERTIFICATE-----, or convert it: openssl x509 -inform DER"
        }
        TlsError::NoKey { .. } => {
            "name a file with -----BEGIN PRIVATE KEY-----, or decrypt it: openssl pkey -in FILE -out FILE"
        }
        TlsError::ForeignKey { .. } => "name the key that the certificate was requested with",
        TlsError::OldVersion { .. } => {
            "create it with extensions (v3), such as the names of the server"
        }
        TlsError::Unfit { .. } => {
            "use a key of ECDSA P-256 or P-384, of Ed25519, or of RSA from 2048 bits"
        }
        TlsError::ClientCa { .. } | TlsError::BadCa { .. } => "name the certificates of the CA",
        TlsError::Unsupported(_) => "report it: the build lacks a protocol version",
    }
}

fn chain_fault(fault: &CertificateFault, file: &Path) -> LateFault {
    let file = file.file_name().unwrap_or(file.as_os_str()).to_string_lossy();
    let place = |line: &u32| match line {
        1 => "the certificate".to_owned(),
        line => format!("the certificate at {file}:{line}"),
    };
    let (text, help) = match fault {
        CertificateFault::Expired { line, on, subject } => (
            format!("{} has expired: valid until {on}, {subject}", place(line)),
            "renew it, or create one for development: trunkline cert",
        ),
        CertificateFault::NotYetValid { line, from, subject } => (
            format!("{} is not yet valid: valid from {from}, {subject}", place(line)),
            "check the clock of this machine, or use the earlier certificate until then",
        ),
        CertificateFault::Misplaced { line, subject, expected } => (
            format!(
                "the certificate at {file}:{line} is {subject}, but {expected} is expected here"
            ),
            "write the server's own certificate first, then each issuer after the one that it issued",
        ),
        CertificateFault::Incomplete { issuer } => (
            format!(
                "the chain is incomplete: the certificate of the intermediate CA {issuer} is missing"
            ),
            "append it to the file: clients know root CAs only",
        ),
        CertificateFault::Unreadable { line } => {
            (format!("{} cannot be read", place(line)), "write X.509 certificates only")
        }
    };
    LateFault { key: CERT_KEY.to_owned(), text, help: help.to_owned() }
}

fn authority_fault(key: &str, fault: &CertificateFault) -> LateFault {
    let text = match fault {
        CertificateFault::NotYetValid { from, subject, .. } => {
            format!("no CA certificate is valid yet: {subject} is valid from {from}")
        }
        CertificateFault::Expired { on, subject, .. } => {
            format!("all CA certificates have expired, the last one on {on}: {subject}")
        }
        _ => "no CA certificate is valid".to_owned(),
    };
    LateFault { key: key.to_owned(), text, help: ExpiryKind::ClientCa.cure().to_owned() }
}

/// Returns true if one of the certificates has this subject, in DER.
fn has_subject(certificates: &[PemCertificate], subject: &[u8]) -> bool {
    certificates.iter().any(|certificate| {
        let parsed = parse_x509_certificate(&certificate.der);
        parsed.is_ok_and(|(_, parsed)| parsed.subject().as_raw() == subject)
    })
}

/// Returns the certificates of the other files in the folder of a certificate.
fn certificates_beside(file: &Path) -> Vec<CertificateDer<'static>> {
    let Some(entries) = file.parent().and_then(|folder| folder.read_dir().ok()) else {
        return Vec::new();
    };
    let is_certificate = |path: &PathBuf| {
        let ending = path.extension().and_then(|ending| ending.to_str());
        path != file && ending.is_some_and(|ending| CERTIFICATE_ENDINGS.contains(&ending))
    };
    let paths = entries.filter_map(|entry| Some(entry.ok()?.path())).filter(is_certificate);
    let read = paths.take(MAX_NEARBY_FILES).filter_map(|path| read_certificates(&path).ok());
    read.flatten().map(|certificate| certificate.der).collect()
}

const CERT_KEY: &str = "gateway.tls.cert";
const CLIENT_CA_KEY: &str = "gateway.tls.client_ca";
const PEER_CERT_KEY: &str = "cluster.cert";
const PEER_CA_KEY: &str = "cluster.ca";
/// The names of files with certificates end in one of these.
const CERTIFICATE_ENDINGS: [&str; 3] = ["pem", "crt", "cer"];
/// The most files beside a certificate that are read.
const MAX_NEARBY_FILES: usize = 64;
