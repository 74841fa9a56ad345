//! Foreign hosts and pages, and permitted browsers.

use http::{Method, Request, StatusCode};
use http_body_util::Empty;
use trunkline::listener::{Guard, Settings};

use crate::door::{Door, get, get_h2, text, within};

#[tokio::test]
async fn a_foreign_host_is_refused_on_both_protocols_and_the_connection_stays() {
    let door = Door::open(Settings::default()).await;
    let (mut h1, mut h2) = (door.h1().await, door.h2().await);

    let mut foreign = get("/");
    foreign.headers_mut().insert("host", "evil.example.com".parse().unwrap());
    let refused = within(h1.send_request(foreign)).await.unwrap();
    assert_eq!(refused.status(), StatusCode::FORBIDDEN);
    assert_eq!(refused.headers()["content-type"], "application/json");
    let body: serde_json::Value = serde_json::from_str(&text(refused).await).unwrap();
    assert_eq!(body["error"]["code"], -32600);
    assert!(body["error"]["message"].as_str().unwrap().contains("`allowed_hosts`"));
    assert_eq!(h1.send_request(get("/")).await.unwrap().status(), StatusCode::OK);

    let foreign = Request::get("http://evil.example.com/").body(Empty::new()).unwrap();
    let refused = within(h2.send_request(foreign)).await.unwrap();
    assert_eq!(refused.status(), StatusCode::FORBIDDEN);
    assert_eq!(h2.send_request(get_h2("/")).await.unwrap().status(), StatusCode::OK);
}

#[tokio::test]
async fn a_host_that_is_missing_or_doubled_is_a_bad_request() {
    let door = Door::open(Settings::default()).await;
    for hosts in ["", "Host: localhost\r\nHost: localhost\r\n", "Host: a b\r\n"] {
        let raw = format!("GET / HTTP/1.1\r\n{hosts}Connection: close\r\n\r\n");
        let answer = door.exchange(raw).await;
        assert!(answer.starts_with("HTTP/1.1 400"), "{hosts:?}: {answer}");
    }
}

#[tokio::test]
async fn a_foreign_page_is_refused_and_reads_nothing() {
    let door = Door::open(Settings::default()).await;
    for origin in ["http://evil.example.com", "null"] {
        for method in [Method::POST, Method::OPTIONS] {
            let refused = ask(&door, method, origin).await;
            assert_eq!(refused.status(), StatusCode::FORBIDDEN, "{origin}");
            assert!(!refused.headers().contains_key("access-control-allow-origin"));
        }
    }
}

#[tokio::test]
async fn a_trusted_page_may_ask_and_read() {
    let page = "https://app.example.com";
    let guard = Guard::new(&[], &[page.to_owned()]).unwrap();
    let door = Door::open(Settings { guard, ..Settings::default() }).await;
    for origin in [page, "http://localhost:6274"] {
        let preflight = ask(&door, Method::OPTIONS, origin).await;
        assert_eq!(preflight.status(), StatusCode::OK);
        let header = |name: &str| preflight.headers()[name].to_str().unwrap();
        assert_eq!(header("access-control-allow-origin"), origin);
        assert_eq!(header("access-control-allow-methods"), "GET,POST,DELETE");
        assert!(header("access-control-allow-headers").contains("mcp-protocol-version"));

        let answer = ask(&door, Method::POST, origin).await;
        assert_eq!(answer.status(), StatusCode::OK);
        assert_eq!(answer.headers()["access-control-allow-origin"], origin);
        assert!(answer.headers()["vary"].to_str().unwrap().starts_with("origin"));
        let exposed = answer.headers()["access-control-expose-headers"].to_str().unwrap();
        assert!(exposed.contains("mcp-session-id"), "{exposed}");
    }
}

#[tokio::test]
async fn the_guard_can_be_changed_under_an_open_connection() {
    let door = Door::open(Settings::default()).await;
    let mut h1 = door.h1().await;
    let named = || {
        let mut request = get("/");
        request.headers_mut().insert("host", "gw.example.com".parse().unwrap());
        request
    };
    let refused = h1.send_request(named()).await.unwrap();
    assert_eq!(refused.status(), StatusCode::FORBIDDEN);
    text(refused).await;

    let guard = Guard::new(&["gw.example.com".to_owned()], &[]).unwrap();
    door.live.publish(Settings { guard, ..Settings::default() });

    assert_eq!(h1.send_request(named()).await.unwrap().status(), StatusCode::OK);
}

#[tokio::test]
async fn every_request_of_a_kept_connection_is_judged() {
    let (named, page) = ("gw.example.com", "https://app.example.com");
    let guard = Guard::new(&[named.to_owned()], &[page.to_owned()]).unwrap();
    let door = Door::open(Settings { guard, ..Settings::default() }).await;
    let mut h1 = door.h1().await;
    let mut status = async |host: &str, origin: Option<&str>| {
        let mut request = get("/");
        request.headers_mut().insert("host", host.parse().unwrap());
        if let Some(origin) = origin {
            request.headers_mut().insert("origin", origin.parse().unwrap());
        }
        let answer = within(h1.send_request(request)).await.unwrap();
        let status = answer.status().as_u16();
        text(answer).await;
        status
    };
    for (host, origin, wanted) in [
        (named, None, 200),
        (named, None, 200),
        ("evil.example.com", None, 403),
        (named, None, 200),
        (named, Some("http://evil.example.com"), 403),
        (named, Some("null"), 403),
        (named, Some(page), 200),
        (named, None, 200),
        ("gw.example.com.evil.example.com", None, 403),
    ] {
        assert_eq!(status(host, origin).await, wanted, "{host} {origin:?}");
    }
    // Tightened, on the same connection: a host that was admitted before is foreign now.
    assert_eq!(status(named, None).await, 200);
    door.live.publish(Settings::default());
    assert_eq!(status(named, None).await, 403);
    assert_eq!(status("localhost", None).await, 200);
    assert_eq!(status("localhost", Some(page)).await, 403);
}

#[tokio::test]
async fn a_host_that_was_admitted_does_not_vouch_for_another_target() {
    let good = "GET /none HTTP/1.1\r\nHost: localhost\r\n\r\n";
    for second in [
        "GET http://evil.example.com/ HTTP/1.1\r\nHost: localhost\r\n",
        "GET http://evil.example.com/ HTTP/1.1\r\nHost: evil.example.com\r\n",
        "GET / HTTP/1.1\r\nHost: localhost\r\nHost: evil.example.com\r\n",
        "GET / HTTP/1.1\r\n",
    ] {
        let door = Door::open(Settings::default()).await;
        let both = door.exchange(format!("{good}{second}Connection: close\r\n\r\n")).await;
        let lines = both.lines().filter_map(|line| line.strip_prefix("HTTP/1.1 "));
        let statuses: Vec<_> = lines.filter_map(|line| line.get(..3)).collect();
        assert_eq!((statuses.len(), statuses[0]), (2, "204"), "{both}");
        assert!(["400", "403"].contains(&statuses[1]), "{second}: {both}");
    }
}

async fn ask(door: &Door, method: Method, origin: &str) -> http::Response<hyper::body::Incoming> {
    let mut request = get("/");
    *request.method_mut() = method;
    request.headers_mut().insert("origin", origin.parse().unwrap());
    request.headers_mut().insert("access-control-request-method", "POST".parse().unwrap());
    within(door.h1().await.send_request(request)).await.unwrap()
}
