//! Leases of replicas.

use super::{Lie, next_key, warnings};
use crate::cluster::sessions::failures::silent_replica;
use crate::cluster::{RedisServer, free_port, knows, replica_at};
use crate::support::{Gateway, Upstream};

#[tokio::test]
async fn a_lease_that_no_replica_has_written_makes_no_replica_known() {
    warnings();
    let upstream = Upstream::legacy().await;
    for lie in Lie::ALL {
        let redis = RedisServer::start().await;
        let _other = silent_replica(&redis, free_port());
        let lease = next_key(&redis, "replicas", &[]).await;
        let name = "00000000000000ee";
        redis.command(&format!("SADD trunkline:replicas {name}")).await;
        lie.tell(&redis, &format!("trunkline:replicas:{name}"), &lease).await;
        let builder = Gateway::with("s", upstream.http());
        let a = replica_at(builder, &redis.url(), free_port(), "").start().await;
        lie.expect_line(&redis, "replicas").await;
        knows(&a, 1).await;
        assert!(a.status().await["cluster"]["store_error"].is_null(), "{lie:?}");
    }
}
