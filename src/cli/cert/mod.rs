//! `trunkline cert`: certificates for development.
//!
//! One run creates a certificate authority and the certificates that it signs. Trusting that
//! authority does not expose the whole web: it is constrained to the names of this run (RFC 5280,
//! 4.2.1.10), so a leaked `ca.key` can only impersonate those names.

use std::{
    fs,
    io::{self, Write},
    path::PathBuf,
};

use jiff::{Timestamp, ToSpan as _, civil::Date, tz::TimeZone};
use rcgen::{
    BasicConstraints, Certificate, CertificateParams, CidrSubnet, DnType, ExtendedKeyUsagePurpose,
    GeneralSubtree, IsCa, Issuer, KeyPair, KeyUsagePurpose, NameConstraints, SanType,
    date_time_ymd,
};

use crate::codec::replace_file::replace_file;

/// Make a development CA and certificates signed by it
///
/// Writes ca.pem, ca.key, server.pem and server.key, and with --client a client certificate. The
/// server certificate always covers localhost, 127.0.0.1 and ::1.
#[derive(Debug, Clone, clap::Args)]
pub struct CertArgs {
    /// The folder to write to; created if missing
    #[arg(long, value_name = "DIR", default_value = CERTIFICATE_DIR)]
    pub dir: PathBuf,
    /// One more host name or address of the server; may be repeated
    #[arg(long = "name", value_name = "NAME")]
    pub names: Vec<String>,
    /// Also make client.pem and client.key, for a client of this name
    #[arg(long, value_name = "NAME")]
    pub client: Option<String>,
    /// The validity of the certificates, in days
    #[arg(long, value_name = "DAYS", default_value_t = DEFAULT_VALID_DAYS, value_parser = clap::value_parser!(u16).range(1..=MAX_CERTIFICATE_DAYS))]
    pub days: u16,
    /// Overwrite existing files
    #[arg(long)]
    pub force: bool,
}

impl Default for CertArgs {
    fn default() -> Self {
        Self {
            dir: CERTIFICATE_DIR.into(),
            names: Vec::new(),
            client: None,
            days: DEFAULT_VALID_DAYS,
            force: false,
        }
    }
}

/// Error of creating certificates.
#[derive(Debug, thiserror::Error)]
pub enum CertError {
    /// A file would be overwritten.
    #[error("{} exists: --force overwrites it, --dir writes elsewhere", file.display())]
    Exists {
        /// The first existing file.
        file: PathBuf,
    },
    /// `--name` is not a host name and not an address.
    #[error("`{name}` is neither a host name nor an address")]
    Name {
        /// The name as given.
        name: String,
    },
    /// The folder or a file could not be written.
    #[error("cannot write {}", file.display())]
    Write {
        /// The folder or file.
        file: PathBuf,
        /// The error of the system.
        source: io::Error,
    },
    /// The instructions could not be printed.
    #[error("cannot print")]
    Print(#[source] io::Error),
    /// A key or a certificate could not be made.
    #[error("cannot make the certificate")]
    Make(#[from] rcgen::Error),
}

/// Creates the certificates and prints instructions for their use.
///
/// # Errors
/// [`CertError`]. Everything is created before any file is written.
pub fn write_certificates(args: &CertArgs, out: &mut impl Write) -> Result<(), CertError> {
    let files = make_files(args)?;
    let files: Vec<_> = files.into_iter().map(|file| (args.dir.join(file.name), file)).collect();
    if !args.force
        && let Some((path, _)) = files.iter().find(|(path, _)| path.symlink_metadata().is_ok())
    {
        return Err(CertError::Exists { file: path.clone() });
    }
    fs::create_dir_all(&args.dir)
        .map_err(|source| CertError::Write { file: args.dir.clone(), source })?;
    for (path, file) in &files {
        // A gateway that watches the file never reads a partial one, and the mode is right from the
        // first byte, independent of an older file's mode.
        replace_file(path, file.text.as_bytes(), file.mode)
            .map_err(|source| CertError::Write { file: path.clone(), source })?;
    }
    explain_files(args, out).map_err(CertError::Print)
}

struct CertFile {
    name: &'static str,
    text: String,
    mode: u32,
}

/// All files, in memory.
fn make_files(args: &CertArgs) -> Result<Vec<CertFile>, CertError> {
    let names = parse_names(&args.names)?;
    let today = Timestamp::now().to_zoned(TimeZone::UTC).date();
    let validity = CertValidity { today, days: args.days };

    let ca_key = KeyPair::generate()?;
    let ca = ca_params(&names, &validity);
    let ca_cert = ca.self_signed(&ca_key)?;
    let ca_text = ca_key.serialize_pem();
    let issuer = Issuer::new(ca, ca_key);

    let mut files = cert_and_key(("ca.pem", "ca.key"), &ca_cert, ca_text);
    let (cert, key) = leaf_params(server_params(names, &validity), &issuer)?;
    files.append(&mut cert_and_key(("server.pem", "server.key"), &cert, key));
    if let Some(name) = &args.client {
        let (cert, key) = leaf_params(client_params(name, &validity), &issuer)?;
        files.append(&mut cert_and_key(("client.pem", "client.key"), &cert, key));
    }
    Ok(files)
}

fn cert_and_key(
    names: (&'static str, &'static str),
    cert: &Certificate,
    key: String,
) -> Vec<CertFile> {
    vec![
        CertFile { name: names.0, text: cert.pem(), mode: 0o644 },
        CertFile { name: names.1, text: key, mode: 0o600 },
    ]
}

fn parse_names(more: &[String]) -> Result<Vec<SanType>, CertError> {
    let all = LOCAL_HOSTS.iter().copied().chain(more.iter().map(String::as_str));
    let mut names = Vec::new();
    for name in all {
        let read = match name.parse() {
            Ok(address) => SanType::IpAddress(address),
            Err(_) if is_dns_name(name) => SanType::DnsName(name.try_into()?),
            Err(_) => return Err(CertError::Name { name: name.to_owned() }),
        };
        if !names.contains(&read) {
            names.push(read);
        }
    }
    Ok(names)
}

/// Returns true for a host name, or a wildcard for its direct subdomains.
fn is_dns_name(name: &str) -> bool {
    let label = |it: &str| {
        !it.is_empty()
            && it.len() <= 63
            && it.bytes().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'_'))
    };
    let name = name.strip_prefix("*.").unwrap_or(name);
    name.len() <= 253 && name.split('.').all(label)
}

/// The validity period of certificates, in whole days.
struct CertValidity {
    today: Date,
    days: u16,
}

impl CertValidity {
    /// Starts yesterday, for clocks that are slightly behind.
    fn set_dates(&self, params: &mut CertificateParams) {
        let midnight = |date: Date| {
            // A civil date's month and day are never negative.
            let (month, day) = (date.month().unsigned_abs(), date.day().unsigned_abs());
            date_time_ymd(date.year().into(), month, day)
        };
        params.not_before = midnight(self.today.saturating_sub(1.day()));
        params.not_after = midnight(self.today.saturating_add(i64::from(self.days).days()));
    }
}

fn ca_params(names: &[SanType], validity: &CertValidity) -> CertificateParams {
    let mut params = CertificateParams::default();
    validity.set_dates(&mut params);
    params.distinguished_name.push(DnType::CommonName, "Trunkline development CA");
    params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
    params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
    let permitted_subtrees = names.iter().filter_map(name_constraint).collect();
    params.name_constraints =
        Some(NameConstraints { permitted_subtrees, excluded_subtrees: Vec::new() });
    params
}

fn name_constraint(name: &SanType) -> Option<GeneralSubtree> {
    match name {
        SanType::DnsName(name) => {
            let name = name.as_str();
            Some(GeneralSubtree::DnsName(name.strip_prefix("*.").unwrap_or(name).to_owned()))
        }
        SanType::IpAddress(address) => {
            let bits = if address.is_ipv4() { 32 } else { 128 };
            Some(GeneralSubtree::IpAddress(CidrSubnet::from_addr_prefix(*address, bits)))
        }
        _ => None,
    }
}

fn server_params(names: Vec<SanType>, validity: &CertValidity) -> CertificateParams {
    let mut params = CertificateParams::default();
    validity.set_dates(&mut params);
    params.distinguished_name.push(DnType::CommonName, "Trunkline development server");
    params.subject_alt_names = names;
    params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
    params
}

fn client_params(name: &str, validity: &CertValidity) -> CertificateParams {
    let mut params = CertificateParams::default();
    validity.set_dates(&mut params);
    params.distinguished_name.push(DnType::CommonName, name);
    params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth];
    params
}

fn leaf_params(
    mut params: CertificateParams,
    issuer: &Issuer<'_, KeyPair>,
) -> Result<(Certificate, String), CertError> {
    params.is_ca = IsCa::ExplicitNoCa;
    params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
    // Strict verifiers (Python 3.13 and later) require it.
    params.use_authority_key_identifier_extension = true;
    let key = KeyPair::generate()?;
    let cert = params.signed_by(&key, issuer)?;
    Ok((cert, key.serialize_pem()))
}

fn explain_files(args: &CertArgs, out: &mut impl Write) -> io::Result<()> {
    let dir = args.dir.display();
    writeln!(out, "Wrote to {dir}, valid for {} days:", args.days)?;
    writeln!(out, "  ca.pem      the development CA: tell clients to trust it")?;
    writeln!(out, "  ca.key      its key: only this command needs it; delete it if you like")?;
    writeln!(out, "  server.pem  the gateway's certificate, with server.key")?;
    if let Some(name) = &args.client {
        writeln!(out, "  client.pem  a certificate for the client `{name}`, with client.key")?;
    }
    writeln!(out)?;
    writeln!(out, "Next:")?;
    writeln!(
        out,
        "  under [gateway]    tls = {{ cert = \"{dir}/server.pem\", key = \"{dir}/server.key\" }}"
    )?;
    writeln!(out, "  with curl          curl --cacert {dir}/ca.pem https://localhost:8080/mcp")?;
    writeln!(out, "  with Node          NODE_EXTRA_CA_CERTS={dir}/ca.pem")?;
    writeln!(out, "  with Python        SSL_CERT_FILE={dir}/ca.pem")
}

const CERTIFICATE_DIR: &str = "certs";
const DEFAULT_VALID_DAYS: u16 = 365;
/// Apple's clients reject server certificates that are valid for more than 825 days; one day is
/// used by the start on the day before.
const MAX_CERTIFICATE_DAYS: i64 = 824;
const LOCAL_HOSTS: [&str; 3] = ["localhost", "127.0.0.1", "::1"];

#[cfg(test)]
mod tests;
