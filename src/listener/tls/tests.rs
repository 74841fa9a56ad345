//! The files of TLS, and the judgement of their certificates.

use std::fs;

use rcgen::{
    BasicConstraints, CertificateParams, CertifiedIssuer, CustomExtension, DnType, IsCa, KeyPair,
    date_time_ymd,
};

use super::*;

#[test]
fn a_pair_that_cannot_be_used_is_refused_and_the_error_names_the_file() {
    let dir = tempfile::tempdir().unwrap();
    let files = write_pair(dir.path());
    Certificates::load(&files).unwrap();
    let own_key = fs::read(&files.key).unwrap();
    let foreign_key = KeyPair::generate().unwrap().serialize_pem();
    let broken = "-----BEGIN PRIVATE KEY-----\n!\n-----END PRIVATE KEY-----\n";
    let fault = || Certificates::load(&files).unwrap_err();

    fs::write(&files.key, foreign_key).unwrap();
    assert!(matches!(fault(), TlsError::ForeignKey { .. }), "{:?}", fault());
    fs::write(&files.key, "nothing here").unwrap();
    assert!(matches!(fault(), TlsError::NoKey { file } if file == files.key));
    fs::write(&files.key, broken).unwrap();
    assert!(matches!(fault(), TlsError::Malformed { file, .. } if file == files.key));
    fs::remove_file(&files.key).unwrap();
    assert!(matches!(fault(), TlsError::Unreadable { file, .. } if file == files.key));
    fs::write(&files.key, own_key).unwrap();
    let client_ca = Some(dir.path().join("ca.pem"));
    let with_ca = TlsFiles { client_ca: client_ca.clone(), ..files.clone() };
    fs::write(client_ca.as_ref().unwrap(), "").unwrap();
    let fault_of_ca = Certificates::load(&with_ca).unwrap_err();
    assert!(
        matches!(fault_of_ca, TlsError::NoCertificate { file } if Some(&file) == client_ca.as_ref())
    );
    fs::copy(&files.cert, client_ca.as_ref().unwrap()).unwrap();
    Certificates::load(&with_ca).unwrap();
    fs::write(&files.cert, "").unwrap();
    assert!(matches!(fault(), TlsError::NoCertificate { file } if file == files.cert));
}

fn write_pair(dir: &Path) -> TlsFiles {
    let key = KeyPair::generate().unwrap();
    let names = vec!["localhost".to_owned()];
    let cert = CertificateParams::new(names).unwrap().self_signed(&key).unwrap();
    let files = TlsFiles {
        cert: dir.join("server.pem"),
        key: dir.join("server.key"),
        client_ca: None,
        client_certificates: ClientCertificates::Optional,
    };
    fs::write(&files.cert, cert.pem()).unwrap();
    fs::write(&files.key, key.serialize_pem()).unwrap();
    files
}

/// The time of the judgements.
const NOW: &str = "2026-06-01T00:00:00Z";

fn params(name: &str) -> CertificateParams {
    let mut params = CertificateParams::new(Vec::new()).unwrap();
    params.distinguished_name.push(DnType::CommonName, name);
    (params.not_before, params.not_after) = (date_time_ymd(2026, 1, 1), date_time_ymd(2027, 1, 1));
    params
}

type Authority = CertifiedIssuer<'static, KeyPair>;

fn authority(name: &str, issuer: Option<&Authority>) -> Authority {
    let mut params = params(name);
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    params.not_after = date_time_ymd(2026, 12, 1);
    let key = KeyPair::generate().unwrap();
    match issuer {
        Some(issuer) => CertifiedIssuer::signed_by(params, key, issuer).unwrap(),
        None => CertifiedIssuer::self_signed(params, key).unwrap(),
    }
}

fn leaf(
    issuer: &Authority,
    change: impl FnOnce(&mut CertificateParams),
) -> CertificateDer<'static> {
    let mut params = params("leaf");
    params.use_authority_key_identifier_extension = true;
    change(&mut params);
    params.signed_by(&KeyPair::generate().unwrap(), issuer).unwrap().der().clone()
}

/// Returns the chain as if each certificate took ten lines of its file.
fn lined(ders: &[&CertificateDer<'static>]) -> Vec<PemCertificate> {
    let lined = |(line, der): (u32, &&CertificateDer<'static>)| PemCertificate {
        der: (*der).clone(),
        line,
    };
    (1..).step_by(10).zip(ders).map(lined).collect()
}

fn inspect(
    chain: &[&CertificateDer<'static>],
    nearby: &[&CertificateDer<'static>],
    roots: &[&Authority],
) -> ChainJudgement {
    let is_root = |subject: &[u8]| {
        roots.iter().any(|root| {
            let (_, root) = parse_x509_certificate(root.der()).unwrap();
            root.subject().as_raw() == subject
        })
    };
    let nearby = || nearby.iter().map(|der| (*der).clone()).collect();
    let around =
        ChainSurroundings { now: NOW.parse().unwrap(), is_root: &is_root, nearby: &nearby };
    inspect_chain(&lined(chain), &around)
}

#[test]
fn a_chain_is_judged_by_validity_order_and_completeness() {
    let root = authority("root", None);
    let between = authority("between", Some(&root));
    let namesake = authority("between", Some(&root));
    let good = leaf(&between, |_| {});
    let direct = leaf(&root, |_| {});
    let ended = leaf(&between, |params| params.not_after = date_time_ymd(2026, 5, 31));
    let later = leaf(&between, |params| params.not_before = date_time_ymd(2026, 6, 2));
    let broken = CertificateDer::from(vec![1, 2, 3]);
    let incomplete = || CertificateFault::Incomplete { issuer: "CN=between".to_owned() };
    let misplaced = |line, subject: &str, expected: &str| CertificateFault::Misplaced {
        line,
        subject: subject.to_owned(),
        expected: expected.to_owned(),
    };
    let (between_der, root_der) = (between.der(), root.der());
    for (name, chain, nearby, fault) in [
        ("complete", vec![&good, between_der], vec![], None),
        ("with its root", vec![&good, between_der, root_der], vec![], None),
        ("directly below a root", vec![&direct], vec![root_der], None),
        ("self-signed", vec![root_der], vec![], None),
        ("perhaps below a root", vec![&good], vec![], None),
        ("without the certificate beside it", vec![&good], vec![between_der], Some(incomplete())),
        ("beside a namesake of its issuer", vec![&good], vec![namesake.der()], None),
        (
            "in the wrong order",
            vec![between_der, &good],
            vec![],
            Some(misplaced(11, "CN=leaf", "CN=root")),
        ),
        (
            "with another key of the issuer",
            vec![&good, namesake.der()],
            vec![],
            Some(misplaced(11, "CN=between", "CN=between")),
        ),
        (
            "expired",
            vec![&ended, between_der],
            vec![],
            Some(CertificateFault::Expired {
                line: 1,
                on: "2026-05-31".parse().unwrap(),
                subject: "CN=leaf".to_owned(),
            }),
        ),
        (
            "not yet valid",
            vec![&later, between_der],
            vec![],
            Some(CertificateFault::NotYetValid {
                line: 1,
                from: "2026-06-02T00:00:00Z".parse().unwrap(),
                subject: "CN=leaf".to_owned(),
            }),
        ),
        (
            "no certificate",
            vec![&good, &broken],
            vec![],
            Some(CertificateFault::Unreadable { line: 11 }),
        ),
    ] {
        let report = inspect(&chain, &nearby, &[]);
        assert_eq!(report.faults, fault.into_iter().collect::<Vec<_>>(), "{name}");
        assert_eq!(report.unknown_issuer, None, "{name}");
    }
    // The chain ends with the intermediate certificate, which ends first.
    let report = inspect(&[&good, between_der], &[], &[]);
    assert_eq!(report.expires, "2026-12-01T00:00:00Z".parse().unwrap());
}

#[test]
fn a_missing_intermediate_is_certain_for_public_certificates_only() {
    let between = authority("between", Some(&authority("root", None)));
    let with_ca = |is_ca: IsCa, oid: &[u64], content: &[u8]| {
        let extension = CustomExtension::from_oid_content(oid, content.to_vec());
        leaf(&between, |params| {
            params.custom_extensions.push(extension);
            params.is_ca = is_ca;
        })
    };
    let with = |oid: &[u64], content: &[u8]| with_ca(IsCa::NoCa, oid, content);
    // A policy of the CA/Browser Forum, 2.23.140.1.2.1.
    let forum_policy = [0x30, 0x0a, 0x30, 0x08, 0x06, 0x06, 0x67, 0x81, 0x0c, 0x01, 0x02, 0x01];
    let policy = with(&[2, 5, 29, 32], &forum_policy);
    // An access description of `caIssuers` with the URL `x:`.
    let access = [0x30, 16, 0x30, 14, 6, 8, 0x2b, 6, 1, 5, 5, 7, 0x30, 2, 0x86, 2, b'x', b':'];
    let private = with(&[1, 3, 6, 1, 5, 5, 7, 1, 1], &access);

    let report = inspect(&[&policy], &[], &[]);
    assert_eq!(report.faults, [CertificateFault::Incomplete { issuer: "CN=between".to_owned() }]);
    assert_eq!(inspect(&[&policy], &[], &[&between]).faults, [], "it is a root of the system");
    let ca = IsCa::Ca(BasicConstraints::Unconstrained);
    let intermediate = with_ca(ca, &[2, 5, 29, 32], &forum_policy);
    assert_eq!(inspect(&[&intermediate], &[], &[]).faults, [], "its issuer may be a root");
    let report = inspect(&[&private], &[], &[]);
    assert_eq!(report.faults, []);
    assert_eq!(report.unknown_issuer.as_deref(), Some("CN=between"));
}

#[test]
fn the_first_ca_certificate_to_end_counts_while_one_is_valid() {
    let certificate = |name: &str, from: (i32, u8), to: (i32, u8)| {
        let mut params = params(name);
        params.not_before = date_time_ymd(from.0, from.1, 1);
        params.not_after = date_time_ymd(to.0, to.1, 1);
        params.self_signed(&KeyPair::generate().unwrap()).unwrap().der().clone()
    };
    let old = certificate("old", (2024, 1), (2026, 2));
    let older = certificate("older", (2024, 1), (2026, 1));
    let soon = certificate("soon", (2025, 1), (2026, 7));
    let late = certificate("late", (2026, 1), (2030, 1));
    let judge = |all: &[&CertificateDer<'static>]| {
        let report = inspect_authorities(&lined(all), NOW.parse().unwrap()).unwrap();
        (report.subject, report.fault.is_some())
    };
    assert_eq!(judge(&[&old, &late, &soon]), ("CN=soon".to_owned(), false));
    assert_eq!(judge(&[&older, &old]), ("CN=old".to_owned(), true));
    assert_eq!(inspect_authorities(&[], NOW.parse().unwrap()), None);
}

#[test]
fn a_chain_of_a_client_is_accepted_as_in_a_handshake() {
    let dir = tempfile::tempdir().unwrap();
    let files = write_pair(dir.path());
    let issue = |issuer: &Authority, change: fn(&mut CertificateParams)| {
        let mut params = CertificateParams::new(Vec::new()).unwrap();
        change(&mut params);
        params.signed_by(&KeyPair::generate().unwrap(), issuer).unwrap().der().clone()
    };
    let client_ca = dir.path().join("clients.pem");
    let (ca, stranger) = (lasting_authority(None), lasting_authority(None));
    let (middle, other) = (lasting_authority(Some(&ca)), lasting_authority(Some(&stranger)));
    fs::write(&client_ca, ca.pem()).unwrap();
    let with_ca = TlsFiles { client_ca: Some(client_ca), ..files.clone() };
    let certificates = Certificates::load(&with_ca).unwrap();
    let none = |_: &mut CertificateParams| {};
    let expired = |params: &mut CertificateParams| params.not_after = date_time_ymd(2020, 1, 1);
    let for_servers = |params: &mut CertificateParams| {
        params.extended_key_usages = vec![rcgen::ExtendedKeyUsagePurpose::ServerAuth];
    };
    let (direct, through) = (issue(&ca, none), issue(&middle, none));
    for (name, chain, expected) in [
        ("of the CA", vec![direct.clone()], true),
        ("through an intermediate CA", vec![through.clone(), middle.der().clone()], true),
        ("without the intermediate certificate", vec![through], false),
        ("of another CA", vec![issue(&stranger, none)], false),
        ("of another chain", vec![issue(&other, none), other.der().clone()], false),
        ("expired", vec![issue(&ca, expired)], false),
        ("for servers", vec![issue(&ca, for_servers)], false),
        ("no certificate", vec![CertificateDer::from(Vec::new())], false),
        ("empty, while certificates are optional", Vec::new(), true),
    ] {
        assert_eq!(certificates.accepts_client(&chain), expected, "{name}");
    }
    let without_ca = Certificates::load(&files).unwrap();
    assert!(!without_ca.accepts_client(&[direct]), "no certificates are requested");
}

/// An authority without an end.
fn lasting_authority(issuer: Option<&Authority>) -> Authority {
    let mut params = CertificateParams::new(Vec::new()).unwrap();
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    let key = KeyPair::generate().unwrap();
    params.distinguished_name.push(DnType::CommonName, format!("{:?}", issuer.is_some()));
    match issuer {
        Some(issuer) => CertifiedIssuer::signed_by(params, key, issuer).unwrap(),
        None => CertifiedIssuer::self_signed(params, key).unwrap(),
    }
}
