//! The tools of many servers in one list, and calls that reach the right one.

use serde_json::json;

use crate::support::{Gateway, Upstream};

#[tokio::test]
async fn tools_of_servers_of_both_eras_and_transports_stand_in_one_list_in_file_order() {
    let [modern, legacy] = Upstream::both().await;
    let gateway = Gateway::with("z", modern.http())
        .server("a", legacy.stdio())
        .example("clock")
        .server("m", modern.stdio())
        .server("b", legacy.http())
        .start()
        .await;
    for (era, client) in gateway.both().await {
        let names = client.tool_names().await;
        let servers: Vec<&str> =
            names.iter().map(|name| name.split_once("__").unwrap().0).collect();
        let mut once = servers.clone();
        once.dedup();
        assert_eq!(once, ["z", "a", "clock", "m", "b"], "{era}");
        for server in ["z", "a", "m", "b"] {
            let said = client.call(&format!("{server}__echo"), json!({ "to": server })).await;
            assert_eq!(said.text(), json!({ "to": server }).to_string(), "{era} {said:?}");
        }
    }
    gateway.stop().await;
}
