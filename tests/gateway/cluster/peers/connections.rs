//! The connection between two replicas, which many clients share.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use bytes::Bytes;
use futures_util::StreamExt as _;
use futures_util::stream::FuturesUnordered;
use http::{Method, Request, Uri};
use http_body_util::BodyExt as _;
use serde_json::json;
use tokio::net::TcpListener;
use tokio::runtime::Builder;
use trunkline::call::{Endpoint, PeerAddress, Principal};
use trunkline::cluster::{
    Cluster, ENVELOPE_HEADER, Envelope, ForwardedRequest, PeerLink, RequestLine, SessionKey,
};

use crate::cluster::peers::envelopes::{Owner, replica};
use crate::cluster::peers::frames::{
    DATA, END_STREAM, Frame, Frames, GOAWAY, HEADERS, RST_STREAM, WINDOW_UPDATE,
};
use crate::cluster::sessions::failures::{session_of, silent_replica};
use crate::cluster::{
    RedisServer, free_port, knows, peer_address, replica_at, start_replicas, through,
};
use crate::support::{Gateway, Step, Upstream, client_table, poll_for, within};

#[tokio::test]
async fn requests_that_are_reset_at_once_leave_the_connection_to_others() {
    let (redis, upstream) = (RedisServer::start().await, Upstream::legacy().await);
    let gateway = replica(&upstream, &redis).await;
    let owner = Owner::of(&gateway).await;
    let mut frames = Frames::connect(owner.address).await;
    let get = |stream: u32| {
        let envelope = owner.seal(owner.envelope_of("GET", ""));
        Frame::get(stream, (ENVELOPE_HEADER.as_str(), &envelope))
    };
    let last = 401;
    // More than `h2_resets` is for other clients.
    let h2_resets = (0..200).map(|number| 2 * number + 1);
    let mut all: Vec<_> = h2_resets.flat_map(|it| [get(it), Frame::reset(it)]).collect();
    all.push(get(last));
    frames.send(&all).await;
    let answer = within(async {
        loop {
            let frame = frames.next().await.expect("the connection is open");
            assert_ne!(frame.kind, GOAWAY, "{frame:?}");
            if (frame.kind, frame.stream) == (HEADERS, last) {
                return frame;
            }
        }
    });
    assert!(!answer.await.payload.is_empty());
}

#[tokio::test]
async fn faults_of_single_streams_leave_the_connection_to_others() {
    let (redis, upstream) = (RedisServer::start().await, Upstream::legacy().await);
    let gateway = replica(&upstream, &redis).await;
    let owner = Owner::of(&gateway).await;
    let mut frames = Frames::connect(owner.address).await;
    for stream in [1_u32, 3] {
        let envelope = owner.seal(owner.envelope_of("GET", ""));
        let get = Frame::get(stream, (ENVELOPE_HEADER.as_str(), &envelope));
        frames.send(&[get]).await;
        let ended = within(async {
            loop {
                let frame = frames.next().await.expect("the connection is open");
                assert_ne!(frame.kind, GOAWAY, "{frame:?}");
                let is_end = frame.flags & END_STREAM != 0;
                if is_end && frame.stream == stream {
                    return;
                }
            }
        });
        ended.await;
        // Data of a stream that has ended: a fault of the stream.
        let late: Vec<_> = (0..1_100).map(|_| Frame::new(DATA, 0, 1, [1])).collect();
        frames.send(&late).await;
    }
}

#[tokio::test]
async fn the_connection_has_room_for_large_bodies_of_many_requests() {
    let (redis, upstream) = (RedisServer::start().await, Upstream::legacy().await);
    let gateway = replica(&upstream, &redis).await;
    let mut frames = Frames::connect(peer_address(&gateway).await).await;
    let update = within(async {
        loop {
            let frame = frames.next().await.expect("the connection is open");
            if (frame.kind, frame.stream) == (WINDOW_UPDATE, 0) {
                return frame;
            }
        }
    });
    let h2_window = u32::from_be_bytes(update.await.payload.try_into().unwrap()) + 65_535;
    // A stream has 256 KiB.
    assert_eq!(h2_window, 16 << 20);
}

/// Returns a cluster's link to another one.
async fn link(from: &Cluster, to: &Cluster) -> Arc<PeerLink> {
    let (principal, endpoint) = (Principal::Anonymous, Endpoint::default());
    let session = to.new_session_id(&principal, &endpoint).unwrap();
    let key = SessionKey { id: &session, principal: &principal, endpoint: &endpoint };
    poll_for(async || from.known_place(key, None)).await
}

/// Forwards a GET.
async fn forward(
    from: &Cluster,
    link: &PeerLink,
    patience: Duration,
) -> Result<http::Response<hyper::body::Incoming>, trunkline::cluster::ForwardError> {
    let addr = ([127, 0, 0, 1], 1).into();
    let peer = PeerAddress { addr, local: addr, tls: false, stdio: false };
    let (method, uri) = (Method::GET, Uri::from_static("/mcp"));
    let envelope =
        Envelope::new(RequestLine { method: &method, uri: &uri }, Bytes::new(), peer, "x");
    let head = Request::get("/mcp").body(()).unwrap().into_parts().0;
    let request = ForwardedRequest { head, body: Bytes::new(), patience };
    from.forward(link, request, envelope).await
}

#[tokio::test]
async fn responses_that_are_cancelled_leave_the_connection_to_others() {
    const CANCELLED: u32 = 1_200;
    let redis = RedisServer::start().await;
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let owner = silent_replica(&redis, listener.local_addr().unwrap().port());
    let from = silent_replica(&redis, free_port());
    let link = link(&from, &owner).await;
    // Answers each request with a head, and with data once so many of them were reset.
    let serving = tokio::spawn(async move {
        let mut frames = Frames::accept(listener.accept().await.unwrap().0).await;
        let mut reset = Vec::new();
        while let Some(frame) = frames.next().await {
            match frame.kind {
                HEADERS => frames.send(&[Frame::ok(frame.stream)]).await,
                RST_STREAM => reset.push(frame.stream),
                _ => {}
            }
            if reset.len() == CANCELLED as usize {
                let late = reset.drain(..).map(|stream| Frame::new(DATA, 0, stream, [1]));
                let mut all: Vec<_> = late.collect();
                all.push(Frame::new(DATA, END_STREAM, 1, *b"kept"));
                frames.send(&all).await;
            }
        }
    });
    let patience = Duration::from_secs(30);
    let kept = within(forward(&from, &link, patience)).await.unwrap();
    for _ in 0..CANCELLED {
        drop(within(forward(&from, &link, patience)).await.unwrap());
    }
    let body = within(kept.into_body().collect()).await.expect("the connection is open");
    assert_eq!(body.to_bytes(), "kept");
    serving.abort();
}

#[tokio::test]
async fn each_runtime_has_one_connection_of_its_own() {
    let redis = RedisServer::start().await;
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let owner = silent_replica(&redis, listener.local_addr().unwrap().port());
    let from = silent_replica(&redis, free_port());
    let link = link(&from, &owner).await;
    let connections = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&connections);
    // Answers each request with a head.
    let serving = tokio::spawn(async move {
        loop {
            let mut frames = Frames::accept(listener.accept().await.unwrap().0).await;
            counted.fetch_add(1, Ordering::Relaxed);
            tokio::spawn(async move {
                while let Some(frame) = frames.next().await {
                    if frame.kind == HEADERS {
                        frames.send(&[Frame::ok(frame.stream)]).await;
                    }
                }
            });
        }
    });
    let patience = Duration::from_secs(30);
    for _ in 0..3 {
        drop(within(forward(&from, &link, patience)).await.unwrap());
    }
    assert_eq!(connections.load(Ordering::Relaxed), 1);
    // Another thread, as those of the workers are.
    let forwarding = tokio::task::spawn_blocking(move || {
        let runtime = Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            for _ in 0..3 {
                drop(within(forward(&from, &link, patience)).await.unwrap());
            }
        });
    });
    within(forwarding).await.unwrap();
    assert_eq!(connections.load(Ordering::Relaxed), 2);
    serving.abort();
}

#[tokio::test]
async fn an_owner_that_does_not_answer_in_time_is_given_up() {
    let redis = RedisServer::start().await;
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let owner = silent_replica(&redis, listener.local_addr().unwrap().port());
    let from = silent_replica(&redis, free_port());
    let link = link(&from, &owner).await;
    // It answers pings, and no request.
    let serving = tokio::spawn(async move {
        let mut frames = Frames::accept(listener.accept().await.unwrap().0).await;
        while let Some(frame) = frames.next().await {
            if frame.kind == RST_STREAM {
                return;
            }
        }
    });
    let late = within(forward(&from, &link, Duration::from_millis(50))).await.unwrap_err();
    assert!(late.was_sent(), "it may have been executed: {late}");
    assert!(late.to_string().contains("did not answer within 50ms"), "{late}");
    within(serving).await.expect("the request is cancelled");
}

#[tokio::test]
async fn one_client_leaves_room_on_the_connection_to_others() {
    // 1 % of 16,384.
    const SHARE: usize = 163;
    let (redis, upstream) = (RedisServer::start().await, Upstream::legacy().await);
    let builder = Gateway::with("s", upstream.http())
        .gateway("limits.share = \"1%\"")
        .toml(&client_table("one", "key-one", ""))
        .toml(&client_table("two", "key-two", ""));
    let a = replica_at(builder, &redis.url(), free_port(), "").start().await;
    // It accepts connections, and never answers.
    let hanging = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let owner = silent_replica(&redis, hanging.local_addr().unwrap().port());
    knows(&a, 1).await;
    let client = |name: &str| {
        let principal = Principal::Client(name.into());
        let kind = session_of(&owner, &principal);
        a.plain().becomes(kind).key(&format!("key-{name}")).h2()
    };
    // A connection has 128 streams.
    let clients = [client("one"), client("one")];
    let asks = (0..=SHARE).map(|number| clients[number % 2].ask("ping", json!({})).send());
    let mut asks: FuturesUnordered<_> = asks.collect();
    let refused = asks.next().await.unwrap();
    assert_eq!((refused.status(), refused.header("retry-after").as_deref()), (503, Some("1")));
    let said = refused.said().await;
    let message = said.error()["message"].as_str().unwrap();
    assert!(message.contains("too many open streams, the limit is 163"), "{message}");
    // The other client's request reaches the connection, and ends with it.
    let other = client("two");
    assert_eq!(other.ask("ping", json!({})).send().await.status(), 502);
    // Places are given back.
    while asks.next().await.is_some() {}
    assert_eq!(clients[0].ask("ping", json!({})).send().await.status(), 502);
}

#[tokio::test]
async fn a_cancelled_call_leaves_that_of_another_client_in_progress() {
    let (redis, upstream) = (RedisServer::start().await, Upstream::legacy().await);
    upstream.does("wait", |_| vec![Step::Progress(1), Step::Hold, Step::text("waited")]);
    let builder = || {
        Gateway::with("s", upstream.http())
            .toml(&client_table("one", "key-one", ""))
            .toml(&client_table("two", "key-two", ""))
    };
    let [a, b] = start_replicas(&redis.url(), builder).await;
    let session = async |key: &str| {
        let client = crate::support::Client::sessionless(a.running.address, "2025-11-25");
        through(&b, &client.key(key).initialized().await, Some(key))
    };
    let (one, two) = (session("key-one").await, session("key-two").await);
    let mut waiting = two.ask_call("s__wait", json!({})).token(json!("t")).send().await;
    waiting.message().await.expect("progress");
    for _ in 0..50 {
        let mut cancelled = one.ask_call("s__wait", json!({})).token(json!("t")).send().await;
        cancelled.message().await.expect("progress");
    }
    upstream.release(51);
    assert_eq!(waiting.said().await.text(), "waited");
}
