//! The Kubernetes manifests in the documentation fit the gateway.

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use serde_json::Value;
use trunkline::codec::file::FileError;
use trunkline::config::{Config, ConfigSource, Environment};

use crate::support::Gateway;
use crate::support::gateway::key_digest;

/// The manifests in `docs/running.md`, parsed.
fn manifests() -> Vec<Value> {
    let page = include_str!("../../docs/running.md");
    let (_, section) = page.split_once("\n## Kubernetes\n").unwrap();
    let (_, block) = section.split_once("```yaml\n").unwrap();
    let (text, _) = block.split_once("```\n").unwrap();
    text.split("---\n").map(|manifest| serde_saphyr::from_str(manifest).unwrap()).collect()
}

/// A pod with the mounted secrets of a deployment.
struct Pod {
    secrets: PathBuf,
}

impl Environment for Pod {
    fn variable(&self, _: &str) -> Option<OsString> {
        None
    }

    fn text(&self, path: &Path) -> Result<String, FileError> {
        assert!(path.starts_with(&self.secrets), "{} is not mounted", path.display());
        Ok(key_digest("key"))
    }

    fn executable(&self) -> Option<PathBuf> {
        None
    }
}

/// Returns the member of a list with this name.
fn named<'a>(list: &'a Value, name: &str) -> &'a Value {
    list.as_array().unwrap().iter().find(|item| item["name"] == name).unwrap()
}

#[tokio::test]
async fn the_manifests_in_the_documentation_fit_the_gateway() {
    let [map, deployment] = &manifests()[..] else { panic!("two manifests") };
    let pod = &deployment["spec"]["template"]["spec"];
    let container = &pod["containers"][0];
    let mount =
        |name| Path::new(named(&container["volumeMounts"], name)["mountPath"].as_str().unwrap());
    // The image reads this file.
    assert_eq!(mount("config"), Path::new("/etc/trunkline"));
    assert!(container["volumeMounts"].as_array().unwrap().iter().all(|it| it["subPath"].is_null()));
    let volume = named(&pod["volumes"], "config");
    assert_eq!(volume["configMap"]["name"], map["metadata"]["name"]);
    let text = map["data"]["gateway.toml"].as_str().unwrap();
    let source = ConfigSource {
        name: "gateway.toml".into(),
        folder: "/etc/trunkline".into(),
        bytes: text.into(),
    };
    let secrets = mount("secrets").to_owned();
    let config =
        Config::read(&source, &Pod { secrets }).unwrap_or_else(|faults| panic!("{faults}"));
    let port = |name| named(&container["ports"], name)["containerPort"].as_u64().unwrap();
    let admin = config.admin.listen.unwrap();
    assert_eq!(port("mcp"), u64::from(config.gateway.listen.port()));
    assert_eq!(port("admin"), u64::from(admin.port()));
    assert!(config.gateway.listen.ip().is_unspecified() && admin.ip().is_unspecified());
    let longest = config.servers.iter().map(|server| server.stop_timeout).max().unwrap();
    let grace = pod["terminationGracePeriodSeconds"].as_u64().unwrap();
    assert!(grace > (config.gateway.drain + 2 * longest).as_secs());
    let gateway = Gateway::alone().start().await;
    for (probe, path) in [("livenessProbe", "/healthz"), ("readinessProbe", "/readyz")] {
        let request = &container[probe]["httpGet"];
        assert_eq!((&request["path"], &request["port"]), (&path.into(), &"admin".into()));
        assert_eq!(gateway.admin(request["path"].as_str().unwrap()).await.status, 200, "{probe}");
    }
}
