use super::*;

#[test]
fn a_host_is_served_when_it_is_this_machine_or_allowed() {
    let guard = guard(&["gw.example.com", "one.example.com:8443", "*.corp.example"], &[]);
    let foreign = |host: &str| Err(AdmissionError::ForeignHost(QuotedExcerpt::of(host)));
    let yes = || Ok(Admission { origin: None });
    for (host, wanted) in [
        ("localhost:8080", yes()),
        ("127.0.0.1:8080", yes()),
        ("[::1]:9", yes()),
        ("a.localhost", yes()),
        ("10.0.0.7:8080", yes()),
        ("gw.example.com", yes()),
        ("GW.example.com:1234", yes()),
        ("one.example.com:8443", yes()),
        ("a.b.corp.example", yes()),
        ("one.example.com", foreign("one.example.com")),
        ("one.example.com:8080", foreign("one.example.com:8080")),
        ("corp.example", foreign("corp.example")),
        ("xcorp.example", foreign("xcorp.example")),
        ("evil.example.com", foreign("evil.example.com")),
        ("10.0.0.8:8080", foreign("10.0.0.8:8080")),
        ("0.0.0.0:8080", foreign("0.0.0.0:8080")),
        ("user@localhost", Err(AdmissionError::MalformedHost)),
        ("localhost\u{e9}", Err(AdmissionError::MalformedHost)),
        ("", Err(AdmissionError::MalformedHost)),
    ] {
        assert_eq!(guard.admit(&get("/mcp", &[("host", host)]), local()), wanted, "{host}");
    }
}

#[test]
fn a_page_of_this_machine_is_foreign_if_local_pages_are() {
    let guard = guard(&[], &["http://localhost:3000"]).with_local_pages(LocalPages::Foreign);
    for (origin, is_trusted) in [
        ("http://localhost:3000", true),
        ("http://localhost:8080", true),
        ("http://localhost:4000", false),
        ("http://127.0.0.1:3000", false),
    ] {
        let request = get("/status", &[("host", "localhost:8080"), ("origin", origin)]);
        assert_eq!(guard.admit(&request, local()).is_ok(), is_trusted, "{origin}");
    }
}

#[test]
fn http_1_needs_exactly_one_host_and_http_2_an_authority() {
    let guard = Guard::default();
    let admit = |request: Request<()>| guard.admit(&request, local()).map(|_| ());
    let twice = get("/", &[("host", "localhost"), ("host", "localhost")]);
    let absolute = get("http://localhost/", &[("host", "localhost")]);
    let differing = get("http://evil.example.com/", &[("host", "localhost")]);
    assert_eq!(admit(get("/", &[])), Err(AdmissionError::MissingHost));
    assert_eq!(admit(get("http://localhost/", &[])), Err(AdmissionError::MissingHost));
    assert_eq!(admit(twice), Err(AdmissionError::AmbiguousHost));
    assert_eq!(admit(absolute), Ok(()));
    assert_eq!(admit(differing), Err(AdmissionError::AmbiguousHost));

    assert_eq!(admit(h2(get("http://localhost/", &[]))), Ok(()));
    assert_eq!(admit(h2(get("/", &[("host", "localhost")]))), Ok(()));
    let foreign = AdmissionError::ForeignHost(QuotedExcerpt::of("evil.example.com"));
    assert_eq!(admit(h2(get("http://evil.example.com/", &[]))), Err(foreign));
    let differing = get("http://evil.example.com/", &[("host", "localhost")]);
    assert_eq!(admit(h2(differing)), Err(AdmissionError::AmbiguousHost));
}

#[test]
fn an_origin_is_trusted_when_it_is_local_its_own_or_allowed() {
    let hosts = ["gw.example.com"];
    let guard = guard(&hosts, &["https://app.example.com", "vscode-webview://abc"]);
    let foreign = |origin: &str| Err(AdmissionError::ForeignOrigin(QuotedExcerpt::of(origin)));
    for (host, origin, wanted) in [
        ("localhost:8080", "http://localhost:6274", Ok(())),
        ("localhost:8080", "http://127.0.0.1:6274", Ok(())),
        ("127.0.0.1:8080", "http://[::1]", Ok(())),
        ("127.0.0.1:8080", "https://app.example.com", Ok(())),
        ("127.0.0.1:8080", "https://APP.example.com:443", Ok(())),
        ("127.0.0.1:8080", "vscode-webview://abc", Ok(())),
        ("gw.example.com", "https://gw.example.com", Ok(())),
        ("10.0.0.7:8080", "http://10.0.0.7:8080", Ok(())),
        ("127.0.0.1:8080", "http://app.example.com", foreign("http://app.example.com")),
        ("127.0.0.1:8080", "https://app.example.com:8", foreign("https://app.example.com:8")),
        ("127.0.0.1:8080", "http://evil.example.com", foreign("http://evil.example.com")),
        ("127.0.0.1:8080", "chrome-extension://localhost", foreign("chrome-extension://localhost")),
        ("gw.example.com", "http://localhost:3000", foreign("http://localhost:3000")),
        ("gw.example.com:8080", "http://gw.example.com", foreign("http://gw.example.com")),
        ("localhost", "null", Err(AdmissionError::OpaqueOrigin)),
        ("localhost", "", Err(AdmissionError::OpaqueOrigin)),
        ("localhost", "http://localhost/page", Err(AdmissionError::OpaqueOrigin)),
    ] {
        let request = get("/mcp", &[("host", host), ("origin", origin)]);
        let got = guard.admit(&request, local()).map(|_| ());
        assert_eq!(got, wanted, "{origin} at {host}");
    }
    let two = [("host", "localhost"), ("origin", "http://localhost"), ("origin", "http://evil")];
    assert_eq!(guard.admit(&get("/", &two), local()), Err(AdmissionError::OpaqueOrigin));
}

#[test]
fn every_entry_that_cannot_be_used_is_reported() {
    let hosts = ["*", "https://gw", "ok.example", "*.10.0.0.1", "a b", "*.x:80"].map(String::from);
    let origins = ["*", "null", "app.example.com", "https://app/", "https://ok"].map(String::from);
    let faults = Guard::new(&hosts, &origins).unwrap_err();
    let hosts = ["*", "https://gw", "*.10.0.0.1", "a b", "*.x:80"];
    let origins = ["*", "null", "app.example.com", "https://app/"];
    let wanted = hosts.map(|it| GuardError::Host(it.into())).into_iter();
    let wanted = wanted.chain(origins.map(|it| GuardError::Origin(it.into())));
    assert_eq!(faults, wanted.collect::<Vec<_>>());
}

#[test]
fn a_refusal_says_which_setting_would_allow_the_request() {
    let long = "e".repeat(200);
    let refusal = Guard::default().admit(&get("/", &[("host", &long)]), local()).unwrap_err();
    let body: serde_json::Value = serde_json::from_slice(&refusal.body()).unwrap();
    let message = body["error"]["message"].as_str().unwrap();
    assert_eq!(refusal.status(), StatusCode::FORBIDDEN);
    assert!(message.contains("`allowed_hosts`"), "{message}");
    assert!(
        message.contains(&"e".repeat(MAX_EXCERPT_BYTES))
            && !message.contains(&"e".repeat(MAX_EXCERPT_BYTES + 1))
    );
    assert_eq!(body["error"]["code"], INVALID_REQUEST);
    assert!(body.get("id").is_none());
}

fn guard(hosts: &[&str], origins: &[&str]) -> Guard {
    let owned = |list: &[&str]| list.iter().map(|&it| it.to_owned()).collect::<Vec<_>>();
    Guard::new(&owned(hosts), &owned(origins)).unwrap()
}

fn get(target: &str, headers: &[(&str, &str)]) -> Request<()> {
    let mut request = http::Request::get(target);
    for (name, value) in headers {
        request = request.header(*name, *value);
    }
    request.body(()).unwrap()
}

fn h2(mut request: Request<()>) -> Request<()> {
    *request.version_mut() = Version::HTTP_2;
    request
}

fn local() -> SocketAddr {
    ([10, 0, 0, 7], 8080).into()
}
