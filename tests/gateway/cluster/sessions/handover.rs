//! Requests at the moment at which a replica leaves, and those that a connection does not take.

use serde_json::json;
use tokio::net::TcpListener;
use trunkline::call::Principal;

use crate::cluster::peers::frames::{END_STREAM, Frame, Frames, GOAWAY, HEADERS, RST_STREAM};
use crate::cluster::sessions::failures::{session_of, silent_replica};
use crate::cluster::sessions::revival::{
    ReplicaProcess, gateway_of, keys, recorded, revived_together, sessions,
};
use crate::cluster::{RedisServer, forwarded, free_port, knows, start_replicas, through};
use crate::support::{Upstream, poll_for, within};

#[tokio::test]
async fn a_replica_that_has_left_has_its_requests_answered_by_others() {
    let (redis, upstream) = (RedisServer::start().await, Upstream::legacy().await);
    let [a, b, c] = start_replicas(&redis.url(), || gateway_of(&upstream)).await;
    let client = a.legacy().await;
    recorded(&redis, 1).await;
    a.running.mcp.cluster().unwrap().hand_over().await;
    for number in 0..3 {
        let arguments = json!({ "x": number });
        assert_eq!(client.call("s__echo", arguments.clone()).await.text(), arguments.to_string());
    }
    assert_eq!(revived_together(&[&b, &c]).await, 1);
    assert_eq!(sessions(&b).await + sessions(&c).await, 1);
    // A new session.
    let new = a.legacy().await;
    assert_eq!(sessions(&b).await + sessions(&c).await, 2);
    recorded(&redis, 2).await;
    for client in [&new, &through(&b, &new, None), &through(&c, &new, None)] {
        assert_eq!(client.call("s__echo", json!({})).await.text(), "{}");
    }
    // One that another replica than the first choice has revived.
    let moved = b.legacy().await;
    recorded(&redis, 3).await;
    b.running.mcp.cluster().unwrap().hand_over().await;
    assert_eq!(through(&c, &moved, None).call("s__echo", json!({})).await.text(), "{}");
    for replica in [&a, &b] {
        let client = through(replica, &moved, None);
        assert_eq!(client.call("s__echo", json!({})).await.text(), "{}");
        let client = through(replica, &client, None);
        assert_eq!(client.request("ping", json!({})).await.status, 200);
    }
}

#[tokio::test]
async fn the_last_replica_that_leaves_refuses_its_sessions() {
    let (redis, upstream) = (RedisServer::start().await, Upstream::legacy().await);
    let [a] = start_replicas(&redis.url(), || gateway_of(&upstream)).await;
    let client = a.legacy().await;
    recorded(&redis, 1).await;
    a.running.mcp.cluster().unwrap().hand_over().await;
    let refused = client.request("ping", json!({})).await;
    assert_eq!((refused.status, refused.header("retry-after")), (503, Some("1")), "{refused:?}");
    // A session of its own is known to no other replica.
    let new = a.legacy().await;
    assert_eq!(new.call("s__echo", json!({})).await.text(), "{}");
}

#[tokio::test]
async fn a_request_is_held_until_its_session_can_be_revived() {
    let (redis, upstream) = (RedisServer::start().await, Upstream::legacy().await);
    let [a] = start_replicas(&redis.url(), || gateway_of(&upstream)).await;
    let own = keys(&redis, "replicas").await;
    let mut killed = ReplicaProcess::start(gateway_of(&upstream), &redis.url(), free_port()).await;
    knows(&a, 1).await;
    let client = killed.client(None).await;
    recorded(&redis, 1).await;
    let mut leases = keys(&redis, "replicas").await;
    leases.retain(|lease| !own.contains(lease));
    killed.kill();
    let at_a = through(&a, &client, None);
    let leaves = async {
        poll_for(async || (forwarded(&a, "owner_gone").await > 0).then_some(())).await;
        redis.command(&format!("DEL {}", leases[0])).await;
    };
    let (said, ()) = tokio::join!(at_a.call("s__echo", json!({})), leaves);
    assert_eq!(said.text(), "{}");
    assert_eq!(revived_together(&[&a]).await, 1);
}

/// The end of a request that a replica has not processed.
enum Refusal {
    /// The connection ends with an earlier stream.
    GoAway,
    /// The stream is refused.
    RefusedStream,
    /// The stream is reset, and may have been processed.
    Cancelled,
}

/// Returns the status of a request whose first attempt ends so, and whose second one is answered.
async fn status_after(refusal: Refusal) -> u16 {
    let (redis, upstream) = (RedisServer::start().await, Upstream::legacy().await);
    let [a] = start_replicas(&redis.url(), || gateway_of(&upstream)).await;
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let owner = silent_replica(&redis, listener.local_addr().unwrap().port());
    knows(&a, 1).await;
    let client = a.plain().becomes(session_of(&owner, &Principal::Anonymous));
    let serving = tokio::spawn(async move {
        let mut frames = Frames::accept(listener.accept().await.unwrap().0).await;
        let first = next_head(&mut frames).await;
        let reset = |code: u32| Frame::new(RST_STREAM, 0, first, code.to_be_bytes());
        match refusal {
            Refusal::GoAway => frames.send(&[Frame::new(GOAWAY, 0, 0, [0; 8])]).await,
            Refusal::RefusedStream => frames.send(&[reset(7)]).await,
            Refusal::Cancelled => frames.send(&[reset(8)]).await,
        }
        // The earlier connection stays open.
        let mut frames = Frames::accept(listener.accept().await.unwrap().0).await;
        let second = next_head(&mut frames).await;
        let mut answer = Frame::ok(second);
        answer.flags |= END_STREAM;
        frames.send(&[answer]).await;
        while frames.next().await.is_some() {}
    });
    let status = within(client.ask("ping", json!({})).send()).await.status();
    serving.abort();
    status
}

/// Returns the stream of the next request.
async fn next_head(frames: &mut Frames) -> u32 {
    loop {
        let frame = within(frames.next()).await.expect("the connection is open");
        if frame.kind == HEADERS {
            return frame.stream;
        }
    }
}

#[tokio::test]
async fn a_request_that_a_replica_has_not_processed_is_sent_again_and_no_other_one() {
    assert_eq!(status_after(Refusal::GoAway).await, 200);
    assert_eq!(status_after(Refusal::RefusedStream).await, 200);
    assert_eq!(status_after(Refusal::Cancelled).await, 502);
}
