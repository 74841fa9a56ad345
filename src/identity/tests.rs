use jiff::Timestamp;

use crate::config::ClientKey;

use super::*;

fn client(name: &str, keys: &[&str]) -> ClientConfig {
    let keys = keys.iter().map(|key| ClientKey::lasting(hash(key))).collect();
    ClientConfig {
        name: name.into(),
        keys,
        certificates: Vec::new(),
        profiles: None,
        rate: None,
        quota: None,
        groups: Vec::new(),
        scopes: Vec::new(),
        role: None,
    }
}

fn hash(key: &str) -> KeyHash {
    KeyHash::new(sha256(key.as_bytes()))
}

fn identity(clients: &[ClientConfig]) -> Identity {
    Identity::of_clients(clients, &ScopeRanks::default(), &Identity::default())
}

fn identify(identity: &Identity, headers: &mut HeaderMap) -> Result<Credential, Failure> {
    identify_at(identity, headers, NOW)
}

fn identify_at(
    identity: &Identity,
    headers: &mut HeaderMap,
    now: Duration,
) -> Result<Credential, Failure> {
    let identified = identity.identify(headers, None, || now, || Ok(()));
    identified.map_err(|unidentified| match unidentified {
        Unidentified::Refused(failure) | Unidentified::WrongCredential(failure) => failure,
        Unidentified::Pending(_) => panic!("no issuer is configured"),
    })
}

const NOW: Duration = Duration::from_hours(500_000);

fn known() -> Identity {
    identity(&[client("ci", &["one", "two"]), client("desk", &["three"])])
}

fn headers(pairs: &[(&'static str, &str)]) -> HeaderMap {
    let mut headers = HeaderMap::new();
    for (name, value) in pairs {
        headers.append(*name, value.parse().unwrap());
    }
    headers
}

#[test]
fn a_key_tells_its_client_however_it_is_shown() {
    for (pairs, name, left) in [
        (&[("authorization", "Bearer one")][..], "ci", 0),
        (&[("authorization", "bearer  two ")], "ci", 0),
        (&[("x-api-key", "three")], "desk", 0),
        (&[("x-api-key", "three"), ("authorization", "Bearer for-a-server")], "desk", 1),
        (&[("x-api-key", "three"), ("authorization", "Bearer three")], "desk", 0),
        (&[("x-api-key", "three"), ("authorization", "Bearer one")], "desk", 0),
        (&[("x-api-key", "three"), ("authorization", "three")], "desk", 0),
        (&[("x-api-key", "three"), ("authorization", "token  two ")], "desk", 0),
        (
            &[("x-api-key", "three"), ("authorization", "a"), ("authorization", "Bearer one")],
            "desk",
            0,
        ),
    ] {
        let mut headers = headers(pairs);
        let who = identify(&known(), &mut headers).unwrap();
        assert_eq!(who.principal().as_str(), name, "{pairs:?}");
        assert_eq!(headers.iter().count(), left, "{pairs:?}");
        assert!(known().knows(&who, NOW));
    }
}

#[test]
fn a_missing_key_and_a_wrong_one_are_different_failures() {
    let long = "x".repeat(MAX_KEY_BYTES + 1);
    for (pairs, failure) in [
        (&[][..], Failure::KeyMissing),
        (&[("authorization", "Bearer ")], Failure::KeyMissing),
        (&[("authorization", "Bearer")], Failure::KeyMissing),
        (&[("authorization", "Basic one")], Failure::KeyMissing),
        (&[("authorization", "one")], Failure::KeyMissing),
        (&[("x-api-key", "")], Failure::KeyMissing),
        (&[("authorization", "Bearer four")], Failure::KeyUnknown),
        (&[("authorization", "Bearer one two")], Failure::KeyUnknown),
        (&[("x-api-key", "Bearer one")], Failure::KeyUnknown),
        (&[("x-api-key", "four"), ("authorization", "Bearer one")], Failure::KeyUnknown),
        (&[("x-api-key", "one"), ("x-api-key", "one")], Failure::KeyUnknown),
        (&[("authorization", "Bearer one"), ("authorization", "Bearer two")], Failure::KeyUnknown),
        (&[("x-api-key", &long)], Failure::KeyUnknown),
    ] {
        assert_eq!(identify(&known(), &mut headers(pairs)), Err(failure), "{pairs:?}");
    }
}

#[test]
fn without_clients_everybody_is_anonymous_and_keeps_their_headers() {
    let mut headers = headers(&[("authorization", "Bearer x"), ("x-api-key", "y")]);
    let who = identify(&Identity::default(), &mut headers).unwrap();
    assert_eq!((who.principal(), headers.iter().count()), (&Principal::Anonymous, 2));
    assert!(Identity::default().knows(&who, NOW));
    assert!(!known().knows(&who, NOW), "once there are clients, nobody is anonymous");
}

#[test]
fn a_client_may_use_all_profiles_or_those_it_is_given() {
    let profiles = vec![ProfileName::new("support").unwrap()];
    let desk = ClientConfig { profiles: Some(profiles), ..client("desk", &["three"]) };
    let identity = identity(&[client("ci", &["one"]), desk]);
    let named = |name: &str| Principal::Client(name.into());
    for (who, profile, may) in [
        (named("ci"), "support", true),
        (named("ci"), "default", true),
        (named("desk"), "support", true),
        (named("desk"), "default", false),
        (named("gone"), "support", false),
        (Principal::Anonymous, "support", true),
    ] {
        assert_eq!(identity.allows(&who, profile), may, "{who:?} {profile}");
    }
}

#[test]
fn a_key_that_is_gone_or_anothers_is_known_no_longer() {
    let who = identify(&known(), &mut headers(&[("x-api-key", "one")])).unwrap();
    assert!(identity(&[client("ci", &["one"])]).knows(&who, NOW));
    assert!(!identity(&[client("ci", &["two"])]).knows(&who, NOW));
    assert!(!identity(&[client("desk", &["one"])]).knows(&who, NOW));
    assert!(!Identity::default().knows(&who, NOW));
    assert!(identity(&[client("ci", &["two"])]).has(&who), "with its other key");
    assert!(!identity(&[client("desk", &["one"])]).has(&who));
    assert!(known().has(&Credential::parent()) && known().knows(&Credential::parent(), NOW));
}

#[test]
fn a_key_among_other_credentials_is_never_forwarded() {
    let many = format!("X {}", "a ".repeat(MAX_CREDENTIAL_PARTS));
    for (shown, is_kept) in [
        ("Basic one", false),
        ("Token one,", false),
        ("Token token=one", false),
        ("Token token=\"one\", a=b", false),
        ("Token a;one", false),
        (&many, false),
        ("Bearer four", true),
        ("Digest username=\"ann\", realm=\"x\", response=\"00\"", true),
    ] {
        let mut headers = headers(&[("x-api-key", "one"), ("authorization", shown)]);
        identify(&known(), &mut headers).unwrap();
        assert_eq!(headers.contains_key("authorization"), is_kept, "{shown}");
    }
}

#[test]
fn a_key_ends_at_its_time() {
    let end = Timestamp::from_second(1_800_000_000).unwrap();
    let key = ClientKey { hash: hash("one"), expires: Some(end) };
    let identity = identity(&[ClientConfig { keys: vec![key], ..client("ci", &[]) }]);
    let sent = || headers(&[("x-api-key", "one")]);
    let before = NOW.saturating_sub(Duration::from_secs(1));
    let who = identify_at(&identity, &mut sent(), before).unwrap();
    assert!(identity.knows(&who, before) && !identity.knows(&who, NOW));
    assert_eq!(identity.expiry(&who), Some(NOW));
    assert_eq!(identify(&identity, &mut sent()), Err(Failure::KeyExpired));
    assert!(identity.has(&who), "a session goes on with another key of the client");
}

#[test]
fn the_last_use_of_a_key_outlives_a_reload() {
    let first = known();
    identify(&first, &mut headers(&[("x-api-key", "two")])).unwrap();
    let next =
        Identity::of_clients(&[client("desk", &["two", "three"])], &ScopeRanks::default(), &first);
    let used = |key| next.key(&hash(key)).unwrap().last_use();
    assert_eq!((used("two"), used("three")), (Some(NOW), None));
}

#[test]
fn a_certificate_is_its_clients_until_it_ends_or_the_name_is_taken_away() {
    let mut params = rcgen::CertificateParams::new(Vec::new()).unwrap();
    params.distinguished_name.push(rcgen::DnType::CommonName, "ci");
    let der = params.self_signed(&rcgen::KeyPair::generate().unwrap()).unwrap();
    let certificate = Arc::new(ClientCertificate::parse(der.der()).unwrap());
    let names = vec![crate::config::CertificateName::Common("ci".into())];
    let certified = ClientConfig { certificates: names, ..client("ci", &[]) };
    let known = identity(&[certified.clone(), client("desk", &["three"])]);
    let shown = |pairs: &[(&'static str, &str)], now| {
        let mut headers = headers(pairs);
        let found = known.identify_certificate(&certificate, &mut headers, now);
        (found, headers.len())
    };
    let (found, _) = shown(&[], NOW);
    let credential = found.unwrap();
    assert_eq!(credential.principal().as_str(), "ci");
    assert_eq!(credential.describe().0, "certificate");
    // A header meant for a server stays, and a key does not.
    assert_eq!(shown(&[("authorization", "Bearer for-a-server")], NOW).1, 1);
    assert_eq!(shown(&[("authorization", "Bearer three")], NOW).1, 0);
    assert_eq!(shown(&[("x-api-key", "three")], NOW).0, None);
    let end = known.expiry(&credential).unwrap();
    assert_eq!(shown(&[], end).0, None);
    assert!(known.knows(&credential, NOW) && !known.knows(&credential, end));
    // With certificates alone, no caller is anonymous.
    let alone = identity(&[certified]);
    assert!(identify(&alone, &mut headers(&[])).is_err());
    let renamed = ClientConfig {
        certificates: vec![crate::config::CertificateName::Common("other".into())],
        ..client("ci", &[])
    };
    assert!(!identity(&[renamed]).knows(&credential, NOW));
}

#[test]
fn a_refused_credential_is_marked_by_eight_digits_and_stays_in_the_headers() {
    let known = known();
    for pairs in [&[("x-api-key", "wrong")], &[("authorization", "Bearer wrong")]] {
        let headers = headers(pairs);
        let expected = data_encoding::HEXLOWER.encode(&sha256(b"wrong"))[..8].to_owned();
        assert_eq!(known.mark_credential(&headers, None), CredentialMark::Digest(expected));
        assert_eq!(headers.len(), 1);
    }
    let long = "x".repeat(MAX_KEY_BYTES + 1);
    let twice = headers(&[("x-api-key", "one"), ("x-api-key", "two")]);
    for headers in [HeaderMap::new(), headers(&[("x-api-key", &long)]), twice] {
        assert_eq!(known.mark_credential(&headers, None), CredentialMark::Absent);
    }
}
