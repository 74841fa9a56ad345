//! A profile's resource patterns in front of a server on the official TypeScript SDK, which deletes
//! tabs and line ends from URIs: the server may read another resource than the one that the gateway
//! permits.

use super::peers::file;
use super::support::Gateway;

#[tokio::test]
async fn a_server_that_deletes_characters_reads_and_tells_of_nothing_outside_a_pattern() {
    file("node_modules/.installed-from");
    let server = format!("command = \"node\"\nargs = [{:?}]\n", file("files_server.mjs"));
    for spoken in ["", "era = \"legacy\"\n", "era = \"modern\"\n"] {
        let profile = "[profiles.pub]\nresources = [\"mcp://ts/file:///pub/*\"]";
        let lines = format!("{server}{spoken}");
        let gateway = Gateway::with("ts", lines).toml(profile).start().await;
        gateway.ready("ts").await;
        for endpoint in ["/mcp/pub", "/mcp?resources=mcp://ts/file:///pub/*"] {
            for (era, client) in gateway.both_at(endpoint).await {
                let shown = "mcp://ts/file:///pub/a";
                let said = client.read_resource(shown).await.answer().clone();
                let text = &said["result"]["contents"][0]["text"];
                assert_eq!(text, "read file:///pub/a", "{era} {endpoint} {said}");
                assert!(client.subscribes(shown).await, "{era} {endpoint}");
                for deleted in ["\t", "\n", "\r"] {
                    let uri = format!("mcp://ts/file:///pub/.{deleted}./secret/b");
                    let said = client.read_resource(&uri).await.answer().clone();
                    assert!(said.get("error").is_some(), "{era} {endpoint} {uri:?} {said}");
                    assert!(!client.subscribes(&uri).await, "{era} {endpoint} {uri:?}");
                }
            }
        }
        gateway.stop().await;
    }
}
