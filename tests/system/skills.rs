//! Skills of real servers of both eras, loaded by real hosts of both eras: the Skills extension's
//! own library verifies each file against its digest.

use std::path::Path;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::Value;
use tokio::process::Command;

use super::peers::{file, folder};
use super::support::Gateway;

#[tokio::test]
async fn skills_reach_a_host_as_their_server_sent_them() {
    file("node_modules/.installed-from");
    let server = format!("command = \"node\"\nargs = [{:?}]\n", file("skills_server.mjs"));
    let gateway = Gateway::with("legacy", format!("{server}era = \"legacy\"\n"))
        .server("modern", format!("{server}era = \"modern\"\n"))
        .start()
        .await;
    gateway.ready("legacy").await;
    gateway.ready("modern").await;
    for era in ["legacy", "modern"] {
        let told = host(&gateway, era).await;
        assert_eq!(told["supports"], serde_json::json!([true, true]), "{era}");
        assert_eq!(told["refusal"], -32602, "{era}");
        let skills = told["skills"].as_array().unwrap();
        assert_eq!(skills.len(), 4, "{era}: two of each server");
        for (at, skill) in skills.iter().enumerate() {
            assert_eq!(skill["listed"], skill["entry"], "{era}");
            let prefix = if at < 2 { "mcp://legacy/skill://" } else { "mcp://modern/skill://" };
            let files = skill["files"].as_object().unwrap();
            for (uri, read) in files {
                let path = uri.strip_prefix(prefix).unwrap_or_else(|| panic!("{era} {uri}"));
                let expected = std::fs::read(folder().join("skills").join(path)).unwrap();
                let read = read.as_str().unwrap();
                let bytes = match Path::new(path).extension().unwrap().to_str() {
                    Some("bin") => STANDARD.decode(read).unwrap(),
                    _ => read.as_bytes().to_vec(),
                };
                assert_eq!(bytes, expected, "{era} {uri}");
            }
            let mut walked: Vec<_> = skill["walked"].as_array().unwrap().iter().collect();
            walked.sort_by_key(|uri| uri.as_str());
            let mut listed: Vec<_> = files.keys().collect();
            listed.sort();
            assert_eq!(walked, listed, "{era}: the directories have the same files");
        }
    }
    gateway.stop().await;
}

/// Returns a host's result for all skills.
async fn host(gateway: &Gateway, era: &str) -> Value {
    let url = format!("http://{}/mcp", gateway.running.address);
    let mut command = Command::new("node");
    command.args([&file("clients/skills.mjs"), url.as_str(), era]).kill_on_drop(true);
    let output = command.output().await.unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{era}: {said}");
    serde_json::from_slice(&output.stdout).unwrap()
}
