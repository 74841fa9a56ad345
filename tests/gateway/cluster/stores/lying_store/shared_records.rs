//! Records of accepted definitions, lists and disabled servers.

use super::{Lie, key_of_record, next_key, warnings};
use crate::cluster::records::definitions::{holding_lines, holds, sees};
use crate::cluster::records::disabled::{act, with_server};
use crate::cluster::records::lists::{has_lists, servers};
use crate::cluster::{RedisServer, free_port, replica_at};
use crate::pins::server;
use crate::support::{Gateway, Upstream, until_async};

#[tokio::test]
async fn a_wrong_baseline_accepts_nothing() {
    warnings();
    for lie in Lie::ALL {
        let (redis, s, t) = (RedisServer::start().await, server().await, server().await);
        let start = async || {
            let builder = Gateway::with("s", holding_lines(&s)).server("t", holding_lines(&t));
            replica_at(builder, &redis.url(), free_port(), "").start().await
        };
        let a = start().await;
        sees(&a.modern(), &["s__add", "t__add"]).await;
        drop(a.stop().await);
        let [of_s, of_t] = ["s", "t"].map(|server| key_of_record("definitions", server));
        lie.tell(&redis, &of_s, &of_t).await;
        let b = start().await;
        holds(&b, 2).await;
        lie.expect_line(&redis, "definitions").await;
        // The record of the other server is used.
        sees(&b.modern(), &["t__add"]).await;
    }
}

#[tokio::test]
async fn wrong_lists_give_a_replica_no_names() {
    warnings();
    for lie in Lie::ALL {
        let (redis, [x, y]) = (RedisServer::start().await, servers().await);
        let replica = || {
            let builder = Gateway::with("x", x.http()).server("y", y.http());
            replica_at(builder, &redis.url(), free_port(), "")
        };
        let a = replica().start().await;
        has_lists(&redis, 2).await;
        drop(a.stop().await);
        let [of_x, of_y] = ["x", "y"].map(|server| key_of_record("lists", server));
        lie.tell(&redis, &of_x, &of_y).await;
        for server in [&x, &y] {
            server.answers(Some((503, "")));
        }
        let b = replica().start_at_once().await;
        assert_eq!(b.modern().tool_names().await, ["y__same"], "{lie:?}");
        lie.expect_line(&redis, "lists").await;
    }
}

#[tokio::test]
async fn a_wrong_list_of_disabled_servers_enables_none_that_is_stopped() {
    warnings();
    let upstream = Upstream::modern().await;
    for lie in Lie::ALL {
        let redis = RedisServer::start().await;
        let start = async || {
            replica_at(with_server(&upstream), &redis.url(), free_port(), "").start().await
        };
        let a = start().await;
        let other = next_key(&redis, "lists", &[]).await;
        assert_eq!(act(&a, "disable").await.status, 200);
        let disabled = key_of_record("disabled", "all");
        lie.tell(&redis, &disabled, &other).await;
        let is_read = !matches!(lie, Lie::TooLong | Lie::OtherType);
        let refused = act(&a, "enable").await;
        assert_eq!(refused.status, if is_read { 500 } else { 503 }, "{lie:?}: {refused:?}");
        lie.expect_line(&redis, "disabled").await;
        assert_eq!(a.server("s").await["state"], "disabled", "{lie:?}");
        // A replica that starts does without the list until it is back.
        let b = start().await;
        assert_eq!(b.server("s").await["state"], "ready", "{lie:?}");
        redis.command(&format!("DEL {disabled}")).await;
        b.in_state("s", "disabled").await;
        until_async(async || act(&b, "enable").await.status == 200).await;
        a.ready("s").await;
    }
}
