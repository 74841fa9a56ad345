//! The Kubernetes manifests in the documentation fit the gateway.

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use serde_json::Value;
use trunkline::codec::file::FileError;
use trunkline::config::{Config, ConfigSource, Environment};

use crate::support::Gateway;
use crate::support::gateway::key_digest;

/// Returns the manifests in the section about Kubernetes of a page, parsed.
fn manifests(page: &str) -> Vec<Value> {
    let (_, section) = page.split_once("\n## Kubernetes\n").unwrap();
    let (_, block) = section.split_once("```yaml\n").unwrap();
    let (text, _) = block.split_once("```\n").unwrap();
    text.split("---\n").map(|manifest| serde_saphyr::from_str(manifest).unwrap()).collect()
}

/// A pod with the variables and the mounted secrets of its manifest.
struct Pod {
    variables: Vec<String>,
    secrets: Vec<PathBuf>,
}

impl Pod {
    fn of(container: &Value) -> Self {
        let items = |list: &Value| list.as_array().cloned().unwrap_or_default();
        let variables = items(&container["env"]);
        let mounts = items(&container["volumeMounts"]);
        let secrets = mounts.iter().filter(|mount| mount["name"] != "config");
        Self {
            variables: variables.iter().map(|it| text(&it["name"]).to_owned()).collect(),
            secrets: secrets.map(|mount| text(&mount["mountPath"]).into()).collect(),
        }
    }
}

impl Environment for Pod {
    fn variable(&self, name: &str) -> Option<OsString> {
        self.variables.iter().any(|known| known == name).then(|| "trunkline-0".into())
    }

    fn text(&self, path: &Path) -> Result<String, FileError> {
        let is_mounted = self.secrets.iter().any(|folder| path.starts_with(folder));
        assert!(is_mounted, "{} is not mounted", path.display());
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

fn text(value: &Value) -> &str {
    value.as_str().unwrap_or_else(|| panic!("{value} is no text"))
}

/// Returns the number of a named port of the container.
fn port(container: &Value, name: &str) -> u64 {
    named(&container["ports"], name)["containerPort"].as_u64().unwrap()
}

/// Checks the parts that one gateway and several have in common. Returns the configuration.
async fn check_pod(map: &Value, pod: &Value) -> Config {
    let container = &pod["containers"][0];
    let mount = |name| Path::new(text(&named(&container["volumeMounts"], name)["mountPath"]));
    // The image reads this file.
    assert_eq!(mount("config"), Path::new("/etc/trunkline"));
    assert!(container["volumeMounts"].as_array().unwrap().iter().all(|it| it["subPath"].is_null()));
    let volume = named(&pod["volumes"], "config");
    assert_eq!(volume["configMap"]["name"], map["metadata"]["name"]);
    let source = ConfigSource {
        name: "gateway.toml".into(),
        folder: "/etc/trunkline".into(),
        bytes: text(&map["data"]["gateway.toml"]).into(),
    };
    let config = Config::read(&source, &Pod::of(container));
    let config = config.unwrap_or_else(|faults| panic!("{faults}"));
    let admin = config.admin.listen.unwrap();
    assert_eq!(port(container, "mcp"), u64::from(config.gateway.listen.port()));
    assert_eq!(port(container, "admin"), u64::from(admin.port()));
    assert!(config.gateway.listen.ip().is_unspecified() && admin.ip().is_unspecified());
    let longest = config.servers.iter().map(|server| server.stop_timeout).max().unwrap();
    let before = container["lifecycle"]["preStop"]["sleep"]["seconds"].as_u64().unwrap_or(0);
    let grace = pod["terminationGracePeriodSeconds"].as_u64().unwrap();
    assert!(grace > before + (config.gateway.drain + 2 * longest).as_secs());
    let gateway = Gateway::alone().start().await;
    for (probe, path) in [("livenessProbe", "/healthz"), ("readinessProbe", "/readyz")] {
        let request = &container[probe]["httpGet"];
        assert_eq!((&request["path"], &request["port"]), (&path.into(), &"admin".into()));
        assert_eq!(gateway.admin(text(&request["path"])).await.status, 200, "{probe}");
    }
    config
}

#[tokio::test]
async fn the_manifests_in_the_documentation_fit_the_gateway() {
    let manifests = manifests(include_str!("../../docs/running.md"));
    let [map, deployment] = &manifests[..] else { panic!("two manifests") };
    check_pod(map, &deployment["spec"]["template"]["spec"]).await;
}

#[tokio::test]
async fn the_manifests_for_replicas_fit_the_gateway_and_each_other() {
    let manifests = manifests(include_str!("../../docs/cluster.md"));
    let [map, clients, replicas, budget, set] = &manifests[..] else { panic!("five manifests") };
    let (spec, template) = (&set["spec"], &set["spec"]["template"]);
    let config = check_pod(map, &template["spec"]).await;
    let container = &template["spec"]["containers"][0];
    let cluster = config.cluster.as_ref().unwrap();
    // Each replica has a name of its own, in the service of all.
    assert_eq!(port(container, "replicas"), u64::from(cluster.listen.port()));
    assert!(cluster.listen.ip().is_unspecified());
    let name = text(&replicas["metadata"]["name"]);
    let host = format!("trunkline-0.{name}.default.svc.cluster.local");
    assert_eq!(
        (cluster.advertise.host(), cluster.advertise.port()),
        (&*host, cluster.listen.port())
    );
    assert_eq!(spec["serviceName"], name);
    assert_eq!(replicas["spec"]["clusterIP"], "None");
    assert_eq!(
        named(&container["env"], "POD_NAME")["valueFrom"]["fieldRef"]["fieldPath"],
        "metadata.name"
    );
    // One selector finds the pods everywhere, and ports are those of the container.
    let labels = &template["metadata"]["labels"];
    for selector in [
        &clients["spec"]["selector"],
        &replicas["spec"]["selector"],
        &budget["spec"]["selector"]["matchLabels"],
        &spec["selector"]["matchLabels"],
    ] {
        assert_eq!(selector, labels);
    }
    for service in [clients, replicas] {
        let target = text(&service["spec"]["ports"][0]["targetPort"]);
        port(container, target);
    }
    assert_eq!(replicas["spec"]["ports"][0]["port"], port(container, "replicas"));
    assert!(budget["spec"]["maxUnavailable"].as_u64() < spec["replicas"].as_u64());
    // The certificates are mounted, and the secrets exist as volumes.
    let mounts = container["volumeMounts"].as_array().unwrap();
    for mount in mounts {
        named(&template["spec"]["volumes"], text(&mount["name"]));
    }
    for file in [&cluster.cert, &cluster.key, &cluster.ca].map(|file| file.as_ref().unwrap()) {
        assert!(mounts.iter().any(|it| file.starts_with(text(&it["mountPath"]))), "{file:?}");
    }
}
