use std::path::Path;
use std::time::Duration;

use super::*;
use crate::policy::CallTarget;
use crate::upstream::tests::{call, config, succeeds, surroundings};

fn start(servers: &[(&str, &str)]) -> Arc<Snapshots> {
    start_with(servers, DisabledAtStart::default())
}

fn start_with(servers: &[(&str, &str)], disabled: DisabledAtStart) -> Arc<Snapshots> {
    let info = Bytes::from_static(b"{}");
    let snapshots = Snapshots::start(StartUp {
        shared_limits: None,
        config: config(servers),
        surroundings: surroundings(),
        info,
        definitions: DefinitionGuard::default(),
        quotas: Arc::default(),
        disabled,
    });
    tokio::spawn(Arc::clone(&snapshots).follow());
    snapshots
}

/// Waits until a server's tools are in the catalog.
async fn listed(snapshots: &Snapshots) -> Arc<Snapshot> {
    let mut changes = snapshots.changes();
    let wait = async {
        while snapshots.load().plain.catalog.entries().len() == 0 {
            changes.changed().await.unwrap();
        }
    };
    tokio::time::timeout(Duration::from_secs(30), wait).await.expect("it is listed");
    snapshots.load_full()
}

async fn send(snapshot: &Snapshot, tool: &str) -> Result<crate::call::Reply, crate::call::Failure> {
    let route = snapshot.find_tool(&snapshot.plain, tool).unwrap();
    let target = CallTarget::tool(&route.entry.server, &route.entry.tool, Box::default());
    let permitted = snapshot.policy.admit(Box::new(call(tool)), target).await?;
    route.member.server.call(permitted, &route.member.config).await
}

#[tokio::test]
async fn a_call_in_a_snapshot_of_before_finds_its_server_though_it_was_removed() {
    let snapshots = start(&[("a", "")]);
    let before = listed(&snapshots).await;
    let plan = snapshots.apply(config(&[])).await;
    assert_eq!(plan.removed.len(), 1);
    // The call may have waited for a slot until now: paused time passes once the server's stop has
    // begun and nothing else is to do.
    tokio::time::pause();
    tokio::time::sleep(Duration::from_millis(50)).await;
    tokio::time::resume();
    succeeds(send(&before, "echo").await).await;
    drop(before);
    snapshots.stop().await;
}

#[tokio::test]
async fn the_gateways_end_is_the_end_of_servers_that_finish_their_calls_as_well() {
    let snapshots = start(&[("a", "")]);
    let before = listed(&snapshots).await;
    let reply = send(&before, "hang").await.unwrap();
    let server = Arc::clone(&before.servers().next().unwrap().server);
    drop(before);
    snapshots.apply(config(&[])).await;
    assert_eq!(server.view().state, upstream::LifeState::Ready, "its call goes on");
    tokio::time::timeout(Duration::from_secs(30), snapshots.stop()).await.expect("it stops");
    assert_eq!(server.view().state, upstream::LifeState::Stopped);
    drop(reply);
}

#[tokio::test]
async fn two_gateways_with_one_file_share_their_disabled_servers() {
    let folder = tempfile::tempdir().unwrap();
    let servers = [("a", ""), ("b", ""), ("c", "")];
    let file = || DisabledFile::open(folder.path(), Path::new("gateway.toml")).unwrap();
    let gateway = || {
        let servers_at_start = file().read().unwrap();
        let (servers_at_start, file) = (servers_at_start, Some(file()));
        start_with(&servers, DisabledAtStart { servers: servers_at_start, file, shared: None })
    };
    let (one, two) = (gateway(), gateway());
    let [a, b] = ["a", "b"].map(|name| ServerName::new(name).unwrap());
    let running = |snapshots: &Snapshots| -> Vec<String> {
        let snapshot = snapshots.load();
        snapshot.servers().map(|it| it.config.name.to_string()).collect()
    };
    one.disable(&a, "first").await.unwrap();
    two.disable(&b, "second").await.unwrap();
    assert_eq!(running(&two), ["c"], "it has read the other one's entry");
    let both = file().read().unwrap();
    assert_eq!((&*both.find(&a).unwrap().by, &*both.find(&b).unwrap().by), ("first", "second"));
    // A reload finds the other one's entry, with another configuration and with the same.
    one.apply(config(&[("a", ""), ("b", ""), ("c", ""), ("d", "")])).await;
    assert_eq!(running(&one), ["c", "d"]);
    two.enable(&a).await.unwrap();
    assert_eq!(running(&two), ["a", "c"]);
    one.read_disabled().await;
    assert_eq!(running(&one), ["a", "c", "d"]);
    let three = gateway();
    assert_eq!(running(&three), ["a", "c"]);
    for snapshots in [one, two, three] {
        snapshots.stop().await;
    }
}

#[tokio::test]
async fn a_gateway_keeps_the_entries_of_servers_that_only_a_newer_configuration_has() {
    let folder = tempfile::tempdir().unwrap();
    let file = || DisabledFile::open(folder.path(), Path::new("gateway.toml")).unwrap();
    let gateway = |servers: &[(&str, &str)]| {
        start_with(servers, DisabledAtStart { file: Some(file()), ..DisabledAtStart::default() })
    };
    let (newer, older) = (gateway(&[("a", ""), ("b", "")]), gateway(&[("a", "")]));
    let [a, b] = ["a", "b"].map(|name| ServerName::new(name).unwrap());
    newer.disable(&b, "first").await.unwrap();
    older.read_disabled().await;
    assert!(older.load().disabled.find(&b).is_none(), "it has no such server");
    older.disable(&a, "second").await.unwrap();
    older.apply(config(&[("a", ""), ("c", "")])).await;
    assert!(file().read().unwrap().find(&b).is_some(), "the newer one has it");
    newer.read_disabled().await;
    assert_eq!(newer.load().servers().count(), 0);
    // A removed server is forgotten.
    newer.apply(config(&[("a", "")])).await;
    assert!(file().read().unwrap().find(&b).is_none());
    for snapshots in [newer, older] {
        snapshots.stop().await;
    }
}
