use http::Method;

use trunkline_config::Secret;

use super::*;

/// Cases of the test suite that AWS publishes with its SDKs (`aws-signing-test-suite`, Apache-2.0): the
/// name, the request, its headers but `Host` and `X-Amz-Date`, its body, and the signature. Three cases
/// are left out: two with a space in the path, and a token that is not signed.
const SUITE_VECTORS: &str = include_str!("vectors.txt");
const SUITE_TIME: &str = "20150830T123600Z";
const SUITE_HOST: &str = "example.amazonaws.com";

/// A case of the test suite.
struct AwsVector<'a> {
    /// With the ending `-unnormalized` the path is taken as it is.
    name: &'a str,
    method: Method,
    /// Path and query.
    target: &'a str,
    headers: HeaderMap,
    /// Only a body that is not empty has its hash among the headers.
    body: &'a str,
    signature: &'a str,
}

impl<'a> AwsVector<'a> {
    fn parse(paragraph: &'a str) -> Self {
        let mut lines = paragraph.lines();
        let name = lines.next().unwrap();
        let (method, target) = lines.next().unwrap().split_once(' ').unwrap();
        let (mut headers, mut body, mut signature) = (HeaderMap::new(), "", "");
        for line in lines {
            match line.split_once(' ') {
                Some(("signature", hexadecimal)) => signature = hexadecimal,
                Some(("body", text)) => body = text,
                _ => {
                    let (name, value) = line.split_once(':').unwrap();
                    headers.append(HeaderName::try_from(name).unwrap(), value.parse().unwrap());
                }
            }
        }
        Self { name, method: method.parse().unwrap(), target, headers, body, signature }
    }

    /// Signs the request, and returns its `Authorization`.
    fn sign(mut self) -> String {
        let uri = format!("https://{SUITE_HOST}{}", self.target).parse().unwrap();
        let host = HeaderValue::from_static(SUITE_HOST);
        let body = self.body.as_bytes();
        let request = SignableRequest { method: &self.method, uri: &uri, host: &host, body };
        if !body.is_empty() {
            let signed = signer("service").sign_at(time(), &request, &self.headers).unwrap();
            return signed[AUTHORIZATION].to_str().unwrap().to_owned();
        }
        self.headers.insert(HOST, host.clone());
        self.headers.insert(TIME_HEADER, HeaderValue::from_static(SUITE_TIME));
        let path = match uri.path() {
            path if self.name.ends_with("-unnormalized") => path.to_owned(),
            path => canonical_path(path),
        };
        let hash = HEXLOWER.encode(&sha256(b""));
        let canonical = CanonicalRequest::new(&request, &path, &self.headers, &hash).unwrap();
        signer("service").authorize(SUITE_TIME, &canonical)
    }
}

/// Creates a signer with the key of AWS's examples and test suite.
fn signer(service: &str) -> AwsSigner {
    AwsSigner(AwsConfig {
        region: "us-east-1".into(),
        service: service.into(),
        access_key_id: Secret::new("AKIDEXAMPLE".into()),
        secret_access_key: Secret::new("wJalrXUtnFEMI/K7MDENG+bPxRfiCYEXAMPLEKEY".into()),
        session_token: None,
    })
}

/// Returns [`SUITE_TIME`].
fn time() -> Timestamp {
    Timestamp::from_second(1_440_938_160).unwrap()
}

/// Signs a request, and returns its `Authorization`.
fn authorization(signer: &AwsSigner, sent: (&str, &str, &str), more: &[(&str, &str)]) -> String {
    let (method, uri, body) = sent;
    let (uri, method) = (uri.parse().unwrap(), method.parse().unwrap());
    let host = HeaderValue::from_static(SUITE_HOST);
    let request =
        SignableRequest { method: &method, uri: &uri, host: &host, body: body.as_bytes() };
    let pairs = more.iter().map(|(name, value)| (name.parse().unwrap(), value.parse().unwrap()));
    let headers = signer.sign_at(time(), &request, &pairs.collect()).unwrap();
    assert!(headers.values().all(HeaderValue::is_sensitive));
    headers[AUTHORIZATION].to_str().unwrap().to_owned()
}

fn signature_of(authorization: &str) -> &str {
    authorization.rsplit_once(", Signature=").unwrap().1
}

#[test]
fn the_signatures_of_awss_test_suite_are_made() {
    let vectors: Vec<_> = SUITE_VECTORS.split("\n\n").map(AwsVector::parse).collect();
    assert_eq!(vectors.len(), 35);
    for vector in vectors {
        let (name, signature) = (vector.name, vector.signature);
        let made = vector.sign();
        assert_eq!(signature_of(&made), signature, "{name}: {made}");
    }
}

#[test]
fn paths_are_encoded_once_more() {
    for (path, expected) in [
        // The cases `double-encode-path` and `double-url-encode` of the SDK for Rust.
        ("/test/@connections/JBDvjfGEIAMCERw%3D", "/test/%40connections/JBDvjfGEIAMCERw%253D"),
        ("/functions/arn%3Aaws%3Alambda/calls", "/functions/arn%253Aaws%253Alambda/calls"),
        // The path of `get-space-normalized`, which no URI can have.
        ("/example space/", "/example%20space/"),
        ("/../a//b/./c/../d/.", "/a/b/d/"),
        ("/a/..", "/"),
        ("/a/../..", "/"),
    ] {
        assert_eq!(canonical_path(path), expected);
    }
}

#[test]
fn parameters_are_sorted_by_their_encoded_names_and_values() {
    for (query, expected) in [
        ("", ""),
        ("b&a=", "a=&b="),
        ("a=2&a=1&A=3", "A=3&a=1&a=2"),
        ("p=a%2fb+c~%7E", "p=a%2Fb%20c~~"),
    ] {
        assert_eq!(canonical_query(query), expected);
    }
}

#[test]
fn s3_takes_paths_as_they_are() {
    let signed = |service, path| {
        let uri = format!("https://{SUITE_HOST}{path}");
        let made = authorization(&signer(service), ("GET", &uri, ""), &[]);
        signature_of(&made).to_owned()
    };
    for (path, normal) in [("/a//b", "/a/b"), ("/a/./b", "/a/b")] {
        assert_ne!(signed("s3", path), signed("s3", normal), "{path}");
        assert_eq!(signed("lambda", path), signed("lambda", normal), "{path}");
    }
}

#[test]
fn temporary_credentials_send_and_sign_their_token() {
    let mut signer = signer("lambda");
    let request = ("POST", "https://example.amazonaws.com/", "{}");
    let without = authorization(&signer, request, &[]);
    signer.0.session_token = Some(Secret::new("the-token".into()));
    let with = authorization(&signer, request, &[]);
    assert!(!without.contains("x-amz-security-token"), "{without}");
    assert!(with.contains(";x-amz-date;x-amz-security-token, "), "{with}");
    assert_ne!(signature_of(&with), signature_of(&without));
}

#[test]
fn headers_that_proxies_change_are_not_signed() {
    let request = ("POST", "https://example.amazonaws.com/", "{}");
    let without = authorization(&signer("lambda"), request, &[]);
    for name in UNSIGNED_HEADERS {
        assert_eq!(authorization(&signer("lambda"), request, &[(name, "a")]), without, "{name}");
    }
}

#[test]
fn a_signature_covers_every_part_of_the_request() {
    let signature = |service: &str, signed: (&str, &str, &str), more: &[(&str, &str)]| {
        authorization(&signer(service), signed, more)
    };
    let usual = ("POST", "https://example.amazonaws.com/mcp?a=1", "{}");
    let headers = [("content-type", "application/json"), ("mcp-method", "tools/list")];
    let whole = signature("lambda", usual, &headers);
    assert!(
        whole.starts_with(
            "AWS4-HMAC-SHA256 Credential=AKIDEXAMPLE/20150830/us-east-1/lambda/aws4_request, \
             SignedHeaders=content-type;host;mcp-method;x-amz-content-sha256;x-amz-date, \
             Signature="
        ),
        "{whole}"
    );
    let base = "https://example.amazonaws.com";
    for other in [
        signature("lambda", ("PUT", usual.1, usual.2), &headers),
        signature("lambda", ("POST", &format!("{base}/other?a=1"), usual.2), &headers),
        signature("lambda", ("POST", &format!("{base}/mcp?a=2"), usual.2), &headers),
        signature("lambda", ("POST", usual.1, "{ }"), &headers),
        signature("lambda", usual, &[headers[0], ("mcp-method", "tools/call")]),
        signature("execute-api", usual, &headers),
    ] {
        assert_ne!(signature_of(&other), signature_of(&whole), "{other}");
    }
    assert_eq!(signature("lambda", usual, &headers), whole, "and nothing else");
}

#[test]
fn a_header_that_is_not_text_is_not_sent_unsigned() {
    let (uri, method) = ("https://a.test/".parse().unwrap(), Method::GET);
    let host = HeaderValue::from_static("a.test");
    let request = SignableRequest { method: &method, uri: &uri, host: &host, body: b"" };
    let value = HeaderValue::from_bytes(b"\xff").unwrap();
    let headers = HeaderMap::from_iter([(HeaderName::from_static("x-odd"), value)]);
    let fault = signer("s3").sign_at(time(), &request, &headers).unwrap_err();
    assert!(fault.to_string().contains("x-odd"), "{fault}");
}
