//! The audit log of a gateway with a syslog receiver that is available, gone, and available again.

use std::os::unix::net::UnixDatagram;
use std::time::Duration;

use serde_json::{Value, json};
use trunkline::telemetry::metrics::ReloadOutcome;

use super::{KEY, auditing, counted};
use crate::support::{Gateway, Upstream, until};

/// Returns the records of a receiver, at least `least`; panics if none arrives for a while.
fn received(receiver: &UnixDatagram, least: usize) -> Vec<Value> {
    let mut records = Vec::new();
    let mut buffer = [0; 8192];
    while records.len() < least {
        let length = receiver.recv(&mut buffer).expect("a record");
        let message = std::str::from_utf8(&buffer[..length]).unwrap();
        assert!(message.starts_with("<110>1 "), "{message}");
        records.push(serde_json::from_str(&message[message.find('{').unwrap()..]).unwrap());
    }
    records
}

fn listen(path: &std::path::Path) -> UnixDatagram {
    let receiver = UnixDatagram::bind(path).unwrap();
    receiver.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
    receiver
}

#[tokio::test(flavor = "multi_thread")]
async fn a_dead_syslog_delays_no_call_and_lost_records_are_counted() {
    let upstream = Upstream::modern().await;
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("log");
    let receiver = listen(&path);
    let audit = format!("[audit]\nsyslog = \"unix:{}\"\nqueue_size = \"4KiB\"\n", path.display());
    let gateway = auditing(&upstream, &audit).start().await;
    let client = gateway.modern().key(KEY);
    let call = async || assert!(!client.call("s__echo", json!({})).await.is_error());
    call().await;
    let first = received(&receiver, 1).remove(0);
    assert_eq!((&first["seq"], &first["principal"]), (&json!(1), &json!("ann")), "{first}");
    drop(receiver);
    std::fs::remove_file(&path).unwrap();
    for _ in 0..30 {
        call().await;
    }
    let dropped = counted(&gateway.metrics().await, "dropped");
    assert!((10..30).contains(&dropped), "{dropped}");
    let status = gateway.status().await;
    assert_eq!(status["audit"]["dropped"], dropped, "{status}");
    assert!(status["audit"]["error"].is_string(), "{status}");
    // It is back: the rest arrives in order, with the number of missing records at their position.
    let receiver = listen(&path);
    let (mut next, mut calls, mut lost) = (2, 1, 0);
    while calls + lost < 31 {
        let record = received(&receiver, 1).remove(0);
        assert_eq!(record["seq"], next, "{record}");
        next += 1;
        match record["event"].as_str().unwrap() {
            "lost" => lost += record["records"].as_u64().unwrap(),
            _ => calls += 1,
        }
    }
    assert_eq!((calls + lost, lost), (31, dropped));
    until(|| is_written(&gateway)).await;
    // By UDP as well.
    let by_udp = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
    by_udp.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
    let udp = format!("[audit]\nsyslog = \"udp://{}\"\n", by_udp.local_addr().unwrap());
    assert_eq!(gateway.reload(auditing(&upstream, &udp)).await, ReloadOutcome::Applied);
    call().await;
    let mut buffer = [0; 8192];
    for part in ["\"operation\":\"reload\"", "\"tool\":\"s__echo\""] {
        let length = by_udp.recv(&mut buffer).unwrap();
        let message = std::str::from_utf8(&buffer[..length]).unwrap();
        assert!(message.contains(part), "{message}");
    }
}

/// Returns true if the log is written again.
fn is_written(gateway: &Gateway) -> bool {
    gateway.running.gateway.audit.overview().is_some_and(|it| it.fault.is_none())
}
