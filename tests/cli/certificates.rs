//! Certificates and keys that have ended, end soon or cannot be used, as `check` and `serve` report
//! them.

use std::fmt::Write as _;
use std::path::Path;
use std::time::Duration;

use data_encoding::{BASE64, HEXLOWER};
use jiff::civil::Date;
use jiff::tz::TimeZone;
use jiff::{SignedDuration, Timestamp};
use rcgen::{
    BasicConstraints, CertificateParams, CertifiedIssuer, DnType, IsCa, Issuer, KeyPair,
    date_time_ymd,
};
use serde_json::json;
use trunkline::crypto::sha256;

use super::process::{Process, eventually};
use super::running::beside;
use super::{DONE, FAILURE, Ran, contains_all, file, trunkline};

/// A folder with a configuration and its certificates.
struct Site {
    folder: tempfile::TempDir,
    key: KeyPair,
}

impl Site {
    fn new() -> Self {
        let site = Self { folder: tempfile::tempdir().unwrap(), key: KeyPair::generate().unwrap() };
        site.write("leaf.key", &site.key.serialize_pem());
        site
    }

    fn write(&self, name: &str, text: &str) {
        std::fs::write(self.folder.path().join(name), text).unwrap();
    }

    /// Writes a certificate of the server's key that signs itself.
    fn write_leaf(&self, change: impl FnOnce(&mut CertificateParams)) {
        let mut params = named("localhost");
        change(&mut params);
        self.write("leaf.pem", &params.self_signed(&self.key).unwrap().pem());
    }

    /// Checks a configuration with TLS and these further lines.
    fn check(&self, options: &[&str], further: &str) -> Ran {
        let config = self.config(further);
        trunkline(&[&["check", "--config", &config], options].concat())
    }

    fn config(&self, further: &str) -> String {
        let text = format!(
            "[gateway]\nlisten = \"127.0.0.1:0\"\n\
             tls = {{ cert = \"leaf.pem\", key = \"leaf.key\" }}\n\
             [admin]\nlisten = \"127.0.0.1:0\"\n{further}"
        );
        file(self.folder.path(), &text)
    }

    fn path(&self) -> &Path {
        self.folder.path()
    }
}

fn named(name: &str) -> CertificateParams {
    let mut params = CertificateParams::new(vec!["localhost".to_owned()]).unwrap();
    params.distinguished_name.push(DnType::CommonName, name);
    params
}

/// Returns the midnight before which more than this many whole days pass, and not another one.
fn midnight_in(days: i64) -> Date {
    let at = Timestamp::now() + SignedDuration::from_hours((days + 1) * 24);
    TimeZone::UTC.to_datetime(at).date()
}

fn end_in(params: &mut CertificateParams, days: i64) {
    let end = midnight_in(days);
    let (month, day) = (end.month().cast_unsigned(), end.day().cast_unsigned());
    params.not_after = date_time_ymd(end.year().into(), month, day);
}

#[test]
fn an_expired_certificate_is_a_fault_with_its_line() {
    let site = Site::new();
    site.write_leaf(|params| params.not_after = date_time_ymd(2024, 2, 1));
    site.check(&[], "").exits_with(FAILURE).complains_of(&[
        "gateway.tls.cert: the certificate has expired: valid until 2024-02-01, CN=localhost",
        "gateway.toml:3",
        "cert = \"leaf.pem\"",
        "renew it",
    ]);
}

#[test]
fn a_certificate_that_is_not_yet_valid_is_a_fault_with_its_line() {
    let site = Site::new();
    site.write_leaf(|params| params.not_before = date_time_ymd(2100, 2, 1));
    site.check(&[], "").exits_with(FAILURE).complains_of(&[
        "gateway.tls.cert: the certificate is not yet valid: valid from 2100-02-01",
        "gateway.toml:3",
        "clock",
    ]);
}

#[test]
fn a_key_of_another_certificate_is_a_fault_of_the_key_with_its_line() {
    let site = Site::new();
    site.write_leaf(|_| {});
    site.write("leaf.key", &KeyPair::generate().unwrap().serialize_pem());
    let said = site.check(&["--start"], "").exits_with(FAILURE);
    said.complains_of(&[
        "gateway.tls.key: the key in",
        "belongs to another certificate",
        "gateway.toml:3",
        "key = \"leaf.key\"",
    ]);
}

/// Writes `leaf.pem` and `between.pem`, below a root that is not written.
fn write_chain(site: &Site) -> (String, String) {
    let authority = |name: &str| {
        let mut params = named(name);
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params
    };
    let key = || KeyPair::generate().unwrap();
    let root = CertifiedIssuer::self_signed(authority("root"), key()).unwrap();
    let between = CertifiedIssuer::signed_by(authority("between"), key(), &root).unwrap();
    let issuer: &Issuer<'_, KeyPair> = &between;
    let leaf = named("localhost").signed_by(&site.key, issuer).unwrap();
    (leaf.pem(), between.pem())
}

#[test]
fn a_chain_without_its_intermediate_is_a_fault_with_its_line() {
    let site = Site::new();
    let (leaf, between) = write_chain(&site);
    site.write("leaf.pem", &leaf);
    site.check(&[], "").exits_with(DONE).prints(&["fine"]);
    site.write("between.crt", &between);
    site.check(&[], "").exits_with(FAILURE).complains_of(&[
        "gateway.tls.cert: the chain is incomplete: the certificate of the intermediate CA CN=between \
         is missing",
        "gateway.toml:3",
    ]);
    site.write("leaf.pem", &format!("{leaf}{between}"));
    site.check(&[], "").exits_with(DONE).prints(&["fine"]);
}

#[test]
fn a_chain_in_the_wrong_order_is_a_fault_with_the_line_in_the_file() {
    let site = Site::new();
    let (leaf, between) = write_chain(&site);
    let lines = leaf.lines().count();
    let place = format!("leaf.pem:{}", lines + 1);
    site.write("leaf.pem", &format!("{leaf}{leaf}{between}"));
    site.check(&[], "").exits_with(FAILURE).complains_of(&[
        &format!("the certificate at {place} is CN=localhost, but CN=between is expected here"),
        "gateway.toml:3",
    ]);
}

#[test]
fn the_certificates_of_the_program_have_no_fault() {
    let site = Site::new();
    let place = site.path().join("certs");
    trunkline(&["cert", "--dir", place.to_str().unwrap()]).exits_with(DONE);
    let config = file(
        site.path(),
        "[gateway]\ntls = { cert = \"certs/server.pem\", key = \"certs/server.key\", \
         client_ca = \"certs/ca.pem\" }\n",
    );
    trunkline(&["check", "--config", &config]).exits_with(DONE).prints(&["fine"]);
}

#[test]
fn ca_certificates_that_cannot_be_used_are_faults_with_their_lines() {
    let site = Site::new();
    site.write_leaf(|_| {});
    let mut ended = named("old ca");
    ended.not_after = date_time_ymd(2024, 2, 1);
    site.write("ended.pem", &ended.self_signed(&site.key).unwrap().pem());
    site.write("empty.pem", "nothing");
    let servers = "[servers.a]\nurl = \"https://a.test/\"\nca = \"ended.pem\"\n\
         [servers.b]\nurl = \"https://b.test/\"\nca = \"nope.pem\"\n\
         [servers.c]\nurl = \"https://c.test/\"\nca = \"empty.pem\"\n";
    site.check(&[], servers).exits_with(FAILURE).complains_of(&[
        "servers.a.ca: all CA certificates have expired, the last one on 2024-02-01: CN=old ca",
        "gateway.toml:8",
        "servers.b.ca: ",
        "nope.pem cannot be read",
        "gateway.toml:11",
        "servers.c.ca: ",
        "no certificate in it",
        "gateway.toml:14",
    ]);
    // They keep no gateway from starting: the other servers work.
    let ran = site.check(&["--start"], servers).exits_with(DONE);
    contains_all(&ran.0.stderr, &["warning: ", "gateway.toml:11: servers.b.ca: "]);
}

#[test]
fn certificates_keys_and_cas_that_end_soon_are_warned_of() {
    let site = Site::new();
    site.write_leaf(|params| end_in(params, 6));
    let mut ca = named("ca");
    end_in(&mut ca, 20);
    site.write("ca.pem", &ca.self_signed(&site.key).unwrap().pem());
    let hash = HEXLOWER.encode(&sha256(b"a key"));
    let mut further = "[servers.a]\nurl = \"https://a.test/\"\nca = \"ca.pem\"\n".to_owned();
    writeln!(
        further,
        "[clients.ci]\nkeys = [\n  {{ hash = \"{hash}\", expires = 2024-01-01 }},\n  \
         {{ hash = \"{}\", expires = {} }},\n]",
        HEXLOWER.encode(&sha256(b"another")),
        midnight_in(40)
    )
    .unwrap();
    let ran = site.check(&[], &further).exits_with(DONE);
    let (soon, later) = (midnight_in(6), midnight_in(20));
    let said = contains_all(
        &ran.0.stderr,
        &[
            &format!(
                "gateway.toml:3: gateway.tls.cert: the certificate expires in 6 days, on {soon}: renew it"
            ),
            &format!(
                "gateway.toml:8: servers.a.ca: the CA certificate CN=ca expires in 20 days, on {later}"
            ),
            &format!(
                "gateway.toml:11: clients.ci.keys[0]: the key {} has expired on 2024-01-01: clients \
                 that use it are refused",
                &hash[..8]
            ),
        ],
    );
    assert_eq!(said.lines().count(), 3, "{said}");
}

#[test]
fn an_expired_certificate_does_not_keep_the_gateway_from_starting() {
    let site = Site::new();
    site.write_leaf(|params| params.not_after = date_time_ymd(2024, 2, 1));
    let ran = site.check(&["--start"], "").exits_with(DONE);
    contains_all(
        &ran.0.stderr,
        &["warning: ", "gateway.toml:3: gateway.tls.cert: the certificate has expired"],
    );
    let config = site.config("");
    let gateway = Process::start_with(site.folder, Path::new(&config), &[]);
    let log = gateway.log();
    assert!(log.contains("ERROR") && log.contains("the certificate has expired"), "{log}");
}

#[test]
fn check_warns_of_ends_that_the_running_gateway_knows() {
    let site = Site::new();
    site.write_leaf(|_| {});
    let mut signing = named("signing");
    end_in(&mut signing, 10);
    let signing = signing.self_signed(&site.key).unwrap();
    let keys = |certificates: &[String]| {
        // The key of RFC 7517, appendix A.1.
        let key = json!({
            "kty": "EC", "crv": "P-256", "use": "sig", "kid": "1",
            "x": "MKBCTNIcKUSDii11ySs3526iDZ8AiTo7Tu6KPAqv7D4",
            "y": "4Etl6SRW2YiLUrN5vfvVHuhp7x8PxltmWWlbbM4IFyM",
            "x5c": certificates,
        });
        json!({ "keys": [key] }).to_string()
    };
    site.write("keys.json", &keys(&[BASE64.encode(signing.der())]));
    let issuer = "[issuers.idp]\nissuer = \"https://idp.example.com\"\njwks_file = \"keys.json\"\n";
    let config = site.config(issuer);
    let text = std::fs::read_to_string(&config).unwrap();
    let text = text.replacen('\n', "\npublic_url = \"https://gw.example.com\"\n", 1);
    std::fs::write(&config, text).unwrap();
    let warning =
        format!("issuers.idp: the certificate of a key expires in 10 days, on {}", midnight_in(10));
    let warns = |ran: Ran| String::from_utf8_lossy(&ran.0.stderr).contains(&warning);
    let check = ["check", "--config", &config];
    assert!(warns(trunkline(&check).exits_with(DONE)), "from the file");
    let gateway = Process::start_with(site.folder, Path::new(&config), &[]);
    eventually("the keys are read", || {
        gateway.status()["expiries"].to_string().contains("issuers.idp")
    });
    // The gateway keeps the certificate that it has read.
    std::fs::write(gateway.folder().join("keys.json"), keys(&[])).unwrap();
    assert!(warns(beside(&gateway, &check).exits_with(DONE)), "from the gateway");
}

#[test]
fn an_end_is_logged_before_it_comes() {
    let site = Site::new();
    site.write_leaf(|params| end_in(params, 6));
    let config = site.config("");
    let gateway = Process::start_with(site.folder, Path::new(&config), &[]);
    let warning = format!(
        "gateway.tls.cert: the certificate expires in 6 days, on {}: renew it",
        midnight_in(6)
    );
    eventually("the end is logged", || gateway.log().contains(&warning));
    let log = gateway.log();
    assert!(log.lines().any(|line| line.contains("WARN") && line.contains(&warning)), "{log}");
}

#[test]
fn swapped_files_are_recognised() {
    let site = Site::new();
    site.write_leaf(|_| {});
    let text = "[gateway]\ntls = { cert = \"leaf.key\", key = \"leaf.pem\" }\n";
    let ran = trunkline(&["check", "--config", &file(site.path(), text)]);
    ran.exits_with(FAILURE).complains_of(&[
        "gateway.tls.cert: `cert` and `key` are swapped",
        "name \"leaf.pem\" in `cert` and \"leaf.key\" in `key`",
    ]);
}

#[test]
fn a_certificate_that_was_refused_as_not_yet_valid_is_used_once_it_is_valid() {
    let site = Site::new();
    site.write_leaf(|params| end_in(params, 400));
    let config = site.config("");
    is_used_once_valid(site, &config, "gateway.tls.cert");
}

#[test]
fn a_certificate_of_a_replica_that_was_not_yet_valid_is_used_once_it_is_valid() {
    let site = Site::new();
    site.write_leaf(|params| end_in(params, 400));
    std::fs::copy(site.path().join("leaf.pem"), site.path().join("ca.pem")).unwrap();
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    drop(listener);
    let text = format!(
        "[gateway]\nlisten = \"127.0.0.1:0\"\nstate_keys = [\"a key that all replicas share\"]\n\
         [admin]\nlisten = \"127.0.0.1:0\"\n[cluster]\nstore = \"redis://127.0.0.1:1\"\n\
         listen = \"{address}\"\nadvertise = \"{address}\"\n\
         cert = \"leaf.pem\"\nkey = \"leaf.key\"\nca = \"ca.pem\"\n"
    );
    let config = file(site.path(), &text);
    is_used_once_valid(site, &config, "cluster.cert");
}

/// Asserts that a renewed certificate is refused while it is not valid yet, and used then.
fn is_used_once_valid(site: Site, config: &str, name: &str) {
    let Site { folder, key } = site;
    let gateway = Process::start_with(folder, Path::new(config), &[]);
    let end = || {
        let status = gateway.status();
        let expiries = status["expiries"].as_array().unwrap().clone();
        let own = expiries.iter().find(|entry| entry["name"] == name).unwrap();
        own["expires_at"].as_str().unwrap().parse::<Timestamp>().unwrap()
    };
    let before = end();
    let begin = Timestamp::now() + SignedDuration::from_secs(5);
    let mut params = named("localhost");
    end_in(&mut params, 300);
    params.not_before =
        date_time_ymd(1970, 1, 1) + Duration::from_secs(begin.as_second().cast_unsigned());
    let pem = params.self_signed(&key).unwrap().pem();
    std::fs::write(gateway.folder().join("leaf.pem"), pem).unwrap();
    eventually("it is refused", || gateway.log().contains("is not yet valid"));
    assert_eq!(end(), before, "the earlier one is in use");
    // The file is not written again.
    eventually("it is in use", || end() != before);
    assert!(Timestamp::now().as_second() >= begin.as_second());
}
