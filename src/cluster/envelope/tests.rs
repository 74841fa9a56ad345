//! Envelopes, sealed and opened.

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
    let envelope = Envelope::new(line, Bytes::from_static(b"body"), peer(), "ci")
        .with_certificates([&b"der"[..], b"ca"])
        .with_credentials(&shown)
        .addressed_to(own, sent);
    let sealed = envelope.seal(&sealer(b"one")).unwrap();
    assert!(matches!(
        OpenedEnvelope::open(sealed.as_bytes(), &sealer(b"two")),
        Err(EnvelopeFault::Forged)
    ));
    let opened = open(&sealed).unwrap();
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
    let keys = sealer(b"one");
    assert_eq!(opened.check_body(b"body", &keys), Ok(()));
    for other in [&b"other"[..], b"bodY", b"body ", b""] {
        assert_eq!(opened.check_body(other, &keys), Err(EnvelopeFault::OtherBody));
    }
    assert_eq!(opened.check_body(b"body", &sealer(b"two")), Err(EnvelopeFault::OtherBody));
    assert_eq!(opened.covers_principal("ci"), Ok(()));
    assert_eq!(opened.covers_principal("desk"), Err(EnvelopeFault::OtherPrincipal));
    assert_eq!(opened.client(), Some(peer()));
    assert_eq!(opened.certificates(), [&b"der"[..], b"ca"]);
    let mut headers = HeaderMap::new();
    opened.restore_credentials(&mut headers);
    assert_eq!(headers["x-api-key"], "secret");
    assert!(headers["x-api-key"].is_sensitive());
}

fn open(sealed: &str) -> Result<OpenedEnvelope, EnvelopeFault> {
    OpenedEnvelope::open(sealed.as_bytes(), &sealer(b"one"))
}

/// Returns an envelope with these bytes behind its members.
fn with_members(members: &[u8]) -> Result<OpenedEnvelope, EnvelopeFault> {
    let line = RequestLine { method: &Method::GET, uri: &Uri::from_static("/mcp") };
    let own = ReplicaId::new([7; 8]);
    let envelope = Envelope::new(line, Bytes::new(), peer(), "ci");
    let envelope = envelope.addressed_to(own, Duration::from_secs(1_000));
    let written = [&envelope.sealed.encode_to_vec(), members].concat();
    let sealed = sealer(b"one").seal(b"", written).unwrap();
    let opened = open(&BASE64.encode(sealed))?;
    opened.check(own, line, Duration::from_secs(1_000))?;
    Ok(opened)
}

#[test]
fn an_envelope_of_another_build_is_understood_or_refused_by_its_version() {
    // The members 20 (a number) and 21 (bytes), which this build does not know.
    let newer = [0xa0, 0x01, 0x07, 0xaa, 0x01, 0x01, b'x'];
    assert_eq!(with_members(&newer).unwrap().sealed.principal, "ci");
    for (members, expected) in [
        // The versions 0 and 4, and a principal that is a number.
        (&[0x08, 0x00][..], EnvelopeFault::OtherVersion),
        (&[0x08, 0x04][..], EnvelopeFault::OtherVersion),
        (&[0x58, 0x07][..], EnvelopeFault::OtherVersion),
        // The version of requests to servers, at the path of clients.
        (&[0x08, 0x03][..], EnvelopeFault::OtherRequest),
    ] {
        assert_eq!(with_members(members).err(), Some(expected), "{members:?}");
    }
    let of_version_1 = br#"{"version":1,"target":"0707070707070707","issued":1000000}"#;
    let sealed = sealer(b"one").seal(b"", of_version_1.to_vec()).unwrap();
    assert_eq!(open(&BASE64.encode(sealed)).err(), Some(EnvelopeFault::OtherVersion));
    let sent = |envelope: Envelope| open(&envelope.seal(&sealer(b"one")).unwrap()).unwrap();
    let (left, none) = (ReplicaId::new([7; 8]), Envelope::default());
    assert!(sent(none.clone().counted()).is_counted() && !sent(none.clone()).is_counted());
    assert_eq!(sent(none.clone()).sender_that_left(), None);
    assert_eq!(sent(none.handed_over_by(left)).sender_that_left(), Some(left));
}

#[test]
fn addresses_are_written_as_octets() {
    for (text, bytes) in [("192.0.2.7:443", 6), ("[2001:db8::1]:65535", 18)] {
        let address: SocketAddr = text.parse().unwrap();
        let written = write_address(address);
        assert_eq!((read_address(&written), written.len()), (Some(address), bytes));
    }
    for bytes in [&[][..], &[1], &[1; 5], &[1; 7], &[1; 19]] {
        assert_eq!(read_address(bytes), None);
    }
}

#[test]
fn no_secret_of_a_forwarded_request_is_shown() {
    let (method, uri): (_, Uri) = (Method::POST, "/mcp?key=SECRET".parse().unwrap());
    let mut shown = HeaderMap::new();
    shown.insert("x-api-key", "SECRET".parse().unwrap());
    let credentials = ShownCredentials::read(&shown, &[HeaderName::from_static("x-api-key")]);
    let line = RequestLine { method: &method, uri: &uri };
    let envelope = Envelope::new(line, Bytes::from_static(b"SECRET"), peer(), "ci");
    let envelope = envelope.with_credentials(&credentials);
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
        let fault = OpenedEnvelope::open(&text, &sealer(b"one")).err();
        assert_eq!(fault, Some(EnvelopeFault::Forged));
    }
}
