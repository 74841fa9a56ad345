//! The searches for a route that one call makes.

use std::time::Duration;

use bytes::Bytes;
use tokio::time::timeout;

use super::*;
use crate::call::{Answer, Client, Event, Params};
use crate::mcp::ProtocolVersion;
use crate::pipeline::Gateway;
use crate::pipeline::route::FINDS;
use crate::policy::DefinitionGuard;
use crate::snapshot::{DisabledAtStart, Snapshots, StartUp};
use crate::telemetry::audit::AuditTrail;
use crate::telemetry::metrics::{AuditCounts, Metrics};
use crate::upstream::tests::{config, surroundings};

fn size<A, B, C, F>(_: impl Fn(A, B, C) -> F) -> usize {
    size_of::<F>()
}

/// The future's size costs every call: memory, and bytes copied within it.
#[test]
fn a_calls_future_is_small() {
    let size = size(await_reply);
    assert!(size <= 3712, "{size} bytes");
}

/// Starts a gateway with one server, and waits until that has listed.
async fn listed() -> Arc<Gateway> {
    let snapshots = Snapshots::start(StartUp {
        shared_limits: None,
        config: config(&[("a", "")]),
        surroundings: surroundings(),
        info: Bytes::from_static(b"{}"),
        definitions: DefinitionGuard::default(),
        quotas: Arc::default(),
        disabled: DisabledAtStart::default(),
    });
    tokio::spawn(Arc::clone(&snapshots).follow());
    let mut changes = snapshots.changes();
    let wait = async {
        while snapshots.load().lacks_lists() {
            changes.changed().await.unwrap();
        }
    };
    timeout(Duration::from_secs(30), wait).await.expect("it is listed");
    let audit = AuditTrail::new(AuditCounts::default());
    Arc::new(Gateway::new(snapshots, Arc::new(Metrics::new("0")), audit))
}

fn client(version: ProtocolVersion, capabilities: &'static [u8]) -> Arc<Client> {
    Arc::new(Client::new(version, None, Bytes::from_static(capabilities)))
}

/// Calls the gateway with these params. Returns the answer, and the number of searches for a route.
async fn call(
    gateway: &Arc<Gateway>,
    client: &Arc<Client>,
    params: &'static str,
) -> (Result<Answer, Failure>, usize) {
    let mut call = crate::upstream::tests::call("echo");
    call.params = Params::parse(Some(params.into())).unwrap();
    call.context.client = Arc::clone(client);
    FINDS.set(0);
    let answered = async {
        let mut active = gateway.call(gateway.snapshots.load_full(), Box::new(call)).await;
        loop {
            match active.next().await.expect("an answer") {
                Event::Answer(answer) => return answer,
                Event::Passing(passing) => return passing.whole().await.map(Answer::Result),
                _ => {}
            }
        }
    };
    let answer = timeout(Duration::from_secs(30), answered).await.expect("it is answered");
    (answer, FINDS.get())
}

const ABLE: &[u8] = br#"{"elicitation":{},"sampling":{}}"#;

#[tokio::test]
async fn the_call_of_any_client_is_routed_once() {
    let gateway = listed().await;
    for version in [ProtocolVersion::LATEST_LEGACY, ProtocolVersion::LATEST_MODERN] {
        for capabilities in [b"{}", ABLE] {
            let client = client(version, capabilities);
            let params = "{\"name\":\"echo\",\"arguments\":{}}";
            let (answer, finds) = call(&gateway, &client, params).await;
            assert!(matches!(answer, Ok(Answer::Result(_))), "{version:?} {answer:?}");
            assert_eq!(finds, 1, "{version:?} {capabilities:?}");
        }
    }
    gateway.snapshots.stop().await;
}

#[tokio::test]
async fn a_call_of_an_unknown_name_is_routed_once_more_after_each_wait_for_lists() {
    let gateway = listed().await;
    let params = "{\"name\":\"nothing\"}";
    for (version, capabilities, expected) in [
        // There are no lists for clients like this one.
        (ProtocolVersion::LATEST_MODERN, &b"{}"[..], 1),
        (ProtocolVersion::LATEST_MODERN, ABLE, 2),
        (ProtocolVersion::LATEST_LEGACY, b"{}", 2),
    ] {
        let (answer, finds) = call(&gateway, &client(version, capabilities), params).await;
        assert!(matches!(answer, Err(Failure::UnknownTool { .. })), "{version:?} {answer:?}");
        assert_eq!(finds, expected, "{version:?} {capabilities:?}");
    }
    gateway.snapshots.stop().await;
}

#[tokio::test]
async fn a_call_that_no_list_can_route_waits_for_none() {
    let gateway = listed().await;
    let client = client(ProtocolVersion::LATEST_LEGACY, ABLE);
    let (answer, finds) = call(&gateway, &client, "{}").await;
    assert!(matches!(answer, Err(Failure::InvalidParams(_))), "{answer:?}");
    assert_eq!(finds, 1);
    gateway.snapshots.stop().await;
}
