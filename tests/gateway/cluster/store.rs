//! The store in a Redis server.

use std::time::Duration;

use trunkline::cluster::{ClusterStore as _, RedisStore};
use trunkline::config::StoreUrl;

use super::RedisServer;

const LEASE: Duration = Duration::from_secs(60);

#[tokio::test]
async fn a_list_has_so_many_values_of_a_limited_size() {
    let redis = RedisServer::start().await;
    let store = RedisStore::new(&StoreUrl::parse(&redis.url()).unwrap()).unwrap();
    let put = async |name: &str, bytes: usize| {
        store.put("values", name, vec![7; bytes], LEASE).await.unwrap();
    };
    let listed = async |most| {
        let values = store.list("values", most).await.unwrap();
        let mut values: Vec<_> = values.into_iter().map(|it| (it.name, it.bytes.len())).collect();
        values.sort();
        values
    };
    put("aa", 4096).await;
    put("bb", 4097).await;
    put("cc", 1).await;
    assert_eq!(listed(9).await, [("aa".to_owned(), 4096), ("cc".to_owned(), 1)]);
    store.remove("values", "bb").await.unwrap();
    put("dd", 1).await;
    assert_eq!(listed(2).await.len(), 2);
    // Names of other programs.
    for member in ["not-a-name", &"e".repeat(65)] {
        put(member, 1).await;
    }
    let names: Vec<_> = listed(9).await.into_iter().map(|(name, _)| name).collect();
    assert_eq!(names, ["aa", "cc", "dd"]);
}
