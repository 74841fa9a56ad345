use super::super::tests::{Folder, HTTP, known, large, server};
use super::*;
use crate::cluster::MemoryStore;
use crate::cluster::SealedRecordsInTests;
use crate::upstream::lists::store::KnownServer;

fn at(listed_at: u64, tool: &str) -> KnownServer {
    KnownServer { listed_at, ..known(tool) }
}

/// Returns the first tool in the lists that a replica without files begins with.
async fn first_tool(store: &Arc<MemoryStore>, config: &Arc<ServerConfig>) -> Option<String> {
    let store = Folder::open_shared(None, SealedRecordsInTests::in_tests(store), config).await;
    store.take(config).map(|known| known.base.tools[0].native.to_string())
}

#[tokio::test]
async fn earlier_lists_never_replace_later_ones() {
    let (store, config) = (Arc::new(MemoryStore::default()), server(HTTP));
    let a = Folder::open_shared(None, SealedRecordsInTests::in_tests(&store), &config).await;
    let b = Folder::open_shared(None, SealedRecordsInTests::in_tests(&store), &config).await;
    assert_eq!(first_tool(&store, &config).await, None);
    for (replica, listed_at, tool, first) in [
        (&a, 5, "five", "five"),
        (&b, 3, "three", "five"),
        (&b, 6, "six", "six"),
        (&a, 5, "x", "six"),
    ] {
        assert_eq!(replica.keep(&config, at(listed_at, tool)).await, KeepOutcome::Done);
        assert_eq!(first_tool(&store, &config).await.as_deref(), Some(first));
    }
}

#[tokio::test]
async fn a_replica_with_files_begins_with_the_lists_of_all_and_adds_those_that_are_missing() {
    let (store, config, folder) = (Arc::new(MemoryStore::default()), server(HTTP), Folder::new());
    let alone = folder.open_with(&["key"], &config).await;
    alone.keep(&config, at(5, "file")).await;
    let replica =
        Folder::open_shared(Some(&folder), SealedRecordsInTests::in_tests(&store), &config).await;
    let tool = |known: Option<KnownServer>| known.unwrap().base.tools[0].native.to_string();
    assert_eq!(tool(replica.take(&config)), "file");
    assert_eq!(first_tool(&store, &config).await.as_deref(), Some("file"));
    let later = u64::try_from(crate::clock::unix_now().as_millis()).unwrap() + 1;
    let other = Folder::open_shared(None, SealedRecordsInTests::in_tests(&store), &config).await;
    other.keep(&config, at(later, "shared")).await;
    let replica =
        Folder::open_shared(Some(&folder), SealedRecordsInTests::in_tests(&store), &config).await;
    assert_eq!(tool(replica.take(&config)), "shared");
}

#[tokio::test]
async fn lists_of_another_configuration_are_not_used_and_not_removed() {
    let (store, config) = (Arc::new(MemoryStore::default()), server(HTTP));
    let a = Folder::open_shared(None, SealedRecordsInTests::in_tests(&store), &config).await;
    a.keep(&config, at(5, "one")).await;
    let changed = server(&HTTP.replace("/mcp", "/mcq"));
    assert_eq!(first_tool(&store, &changed).await, None);
    assert_eq!(first_tool(&store, &config).await.as_deref(), Some("one"));
}

#[tokio::test]
async fn lists_that_are_too_large_for_the_store_are_removed_from_it() {
    let (store, config) = (Arc::new(MemoryStore::default()), server(HTTP));
    let a = Folder::open_shared(None, SealedRecordsInTests::in_tests(&store), &config).await;
    a.keep(&config, at(5, "one")).await;
    assert_eq!(a.keep(&config, large(&config, 200)).await, KeepOutcome::Done);
    assert_eq!(first_tool(&store, &config).await, None);
}

#[tokio::test]
async fn without_the_store_lists_are_shared_later() {
    let (store, config) = (Arc::new(MemoryStore::default()), server(HTTP));
    let a = Folder::open_shared(None, SealedRecordsInTests::in_tests(&store), &config).await;
    store.fail(true);
    assert_eq!(a.keep(&config, at(5, "one")).await, KeepOutcome::TryAgain);
}
