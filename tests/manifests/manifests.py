"""The Kubernetes manifests of a page, and the rules that a schema cannot express."""

import json
import os
import re
import subprocess
import tempfile
import tomllib

import kubernetes_validate
import yaml

# `sleep` of `preStop` is in 1.30 and later.
OLDEST_VERSION = "1.30"
# The pod's configuration, as the image's command names it.
CONFIG_FOLDER = "/etc/trunkline"
DEFAULT_STOP_TIMEOUT = 5
DEFAULT_DRAIN = 10


class ManifestSet:
    """The objects that are applied together: one block of a page, or one rendered chart."""

    def __init__(self, objects):
        self.objects = objects
        self.services = self.of_kind("Service")
        self.budgets = self.of_kind("PodDisruptionBudget")
        self.workloads = self.of_kind("Deployment") + self.of_kind("StatefulSet")
        self.configs = {it["metadata"]["name"]: it["data"]["gateway.toml"] for it in self.of_kind("ConfigMap")}

    @classmethod
    def parse(cls, text):
        return cls([it for it in yaml.safe_load_all(text) if it is not None])

    def of_kind(self, kind):
        return [it for it in self.objects if it["kind"] == kind]


def read_page(text):
    """Returns the sets of a page in Markdown: its YAML blocks with objects of Kubernetes."""
    blocks = re.findall(r"^```yaml\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)
    return [ManifestSet.parse(block) for block in blocks if re.search(r"^apiVersion:", block, re.MULTILINE)]


def find_faults(manifests):
    """Returns the faults of a set, as texts; none if a cluster would run it as the page says."""
    faults = [fault for it in manifests.objects for fault in schema_faults(it)]
    for workload in manifests.workloads:
        faults += workload_faults(manifests, workload)
    labels = [it["spec"]["template"]["metadata"]["labels"] for it in manifests.workloads]
    for service in manifests.services:
        if not any(selects(service["spec"]["selector"], it) for it in labels):
            faults.append(f"{name_of(service)} selects no pod")
    for budget in manifests.budgets:
        if not any(selects(budget["spec"]["selector"]["matchLabels"], it) for it in labels):
            faults.append(f"{name_of(budget)} selects no pod")
        if budget["spec"].get("maxUnavailable") != 1:
            faults.append(f"{name_of(budget)} allows more than one replica to be stopped at a time, or none")
    return faults


def schema_faults(item):
    faults = []
    for version in kubernetes_validate.utils.all_versions():
        if parse_version(version) < parse_version(OLDEST_VERSION):
            continue
        try:
            kubernetes_validate.validate(item, version, strict=True)
        except kubernetes_validate.ValidationError as error:
            path = ".".join(str(part) for part in error.path)
            faults.append(f"{name_of(item)} in Kubernetes {version}: {path}: {error.message}")
    return faults


def workload_faults(manifests, workload):
    name, pod = name_of(workload), workload["spec"]["template"]["spec"]
    container = container_of(workload)
    ports = {it["name"]: it["containerPort"] for it in container["ports"]}
    config = config_of(manifests, pod, container)
    if config is None:
        return [f"{name} mounts no gateway.toml at {CONFIG_FOLDER}"]
    config = tomllib.loads(config)
    faults = []
    labels = workload["spec"]["template"]["metadata"]["labels"]
    if not selects(workload["spec"]["selector"]["matchLabels"], labels):
        faults.append(f"{name} does not select its own pods")

    arguments = container.get("args", [])
    named = arguments[arguments.index("--listen") + 1] if "--listen" in arguments else config["gateway"]["listen"]
    listened = {"mcp": named, "admin": config["admin"]["listen"]}
    if "cluster" in config:
        listened["replicas"] = config["cluster"]["listen"]
    for port, address in listened.items():
        if ports.get(port) != int(address.rpartition(":")[2]):
            faults.append(f"{name} has no port {port} for {address}")

    for probe, path in [("livenessProbe", "/healthz"), ("readinessProbe", "/readyz")]:
        get = container.get(probe, {}).get("httpGet", {})
        if (get.get("path"), get.get("port")) != (path, "admin"):
            faults.append(f"{name} has no {probe} of {path} on the admin listener")

    for service in manifests.services:
        if not selects(service["spec"]["selector"], labels):
            continue
        for port in service["spec"]["ports"]:
            if port["targetPort"] not in ports:
                faults.append(f"{name_of(service)} sends to the port {port['targetPort']}, which pods do not have")

    mounted = {it["name"] for it in container.get("volumeMounts", [])}
    claims = workload["spec"].get("volumeClaimTemplates", [])
    volumes = {it["name"] for it in pod.get("volumes", [])} | {it["metadata"]["name"] for it in claims}
    for volume in mounted ^ volumes:
        faults.append(f"{name} has the volume {volume} without a mount, or a mount without the volume")

    sleep = container.get("lifecycle", {}).get("preStop", {}).get("sleep", {}).get("seconds", 0)
    stop = max([seconds(it.get("stop_timeout"), DEFAULT_STOP_TIMEOUT) for it in config["servers"].values()])
    needed = sleep + seconds(config["gateway"].get("drain"), DEFAULT_DRAIN) + 2 * stop
    if pod.get("terminationGracePeriodSeconds", 30) <= needed:
        faults.append(f"{name} is killed while it stops, which takes {needed} s")
    if "cluster" in config:
        faults += replica_faults(manifests, workload, config["cluster"], sleep)
    elif workload["spec"]["replicas"] != 1:
        faults.append(f"{name} has several replicas without [cluster]")
    return faults


def replica_faults(manifests, workload, cluster, sleep):
    name, governing = name_of(workload), workload["spec"].get("serviceName")
    faults = []
    if sleep < 1:
        faults.append(f"{name} has no preStop: load balancers send to a replica that has stopped")
    if not manifests.budgets:
        faults.append(f"{name} has no PodDisruptionBudget")
    headless = [it for it in manifests.services if it["metadata"]["name"] == governing]
    if not headless or headless[0]["spec"].get("clusterIP") != "None":
        faults.append(f"{name} has no headless service {governing}, so its replicas have no names")
    elif not headless[0]["spec"].get("publishNotReadyAddresses"):
        faults.append(f"{name_of(headless[0])} leaves out replicas that are not ready")
    if not cluster["advertise"].startswith("${env:POD_NAME}." + f"{governing}."):
        faults.append(f"{name}: replicas do not advertise the name that they have by {governing}")
    return faults


def container_of(workload):
    return next(it for it in workload["spec"]["template"]["spec"]["containers"] if it["name"] == "trunkline")


def config_of(manifests, pod, container):
    """Returns the text of the configuration that a container reads; `None` if there is none."""
    volumes = {it["name"]: it for it in pod.get("volumes", [])}
    for mount in container.get("volumeMounts", []):
        # A `subPath` mount would never be updated.
        if mount["mountPath"] == CONFIG_FOLDER and "subPath" not in mount:
            config = volumes.get(mount["name"], {}).get("configMap", {})
            return manifests.configs.get(config.get("name"))
    return None


def check_config(program, text):
    """Has the gateway check a configuration, with files for its secrets. Returns the report."""
    with tempfile.TemporaryDirectory() as folder:
        run(program, "cert", "--dir", folder, "--name", "*.trunkline-replicas.default.svc.cluster.local")
        key = json.loads(run(program, "key", "--json", "ci"))
        secrets = {"state.key": "5" * 64, "store.password": "password", "ci.sha256": key["hash"]}
        for path in set(re.findall(r"/run/secrets/[\w./-]+", text)):
            name = os.path.basename(path)
            made = {"tls.crt": "server.pem", "tls.key": "server.key", "ca.crt": "ca.pem"}.get(name, name)
            if name in secrets:
                with open(os.path.join(folder, name), "w", encoding="utf-8") as file:
                    file.write(secrets[name])
            text = text.replace(path, os.path.join(folder, made))
        config = os.path.join(folder, "gateway.toml")
        with open(config, "w", encoding="utf-8") as file:
            file.write(text)
        checked = subprocess.run(
            [program, "check", "--config", config],
            env={**os.environ, "POD_NAME": "trunkline-0"},
            capture_output=True,
            text=True,
            timeout=60,
        )
        return checked.returncode, checked.stdout + checked.stderr


def run(*command):
    return subprocess.run(command, check=True, capture_output=True, text=True, timeout=60).stdout


def selects(selector, labels):
    return bool(selector) and selector.items() <= labels.items()


def name_of(item):
    return f"{item['kind']} {item['metadata']['name']}"


def seconds(text, default):
    return default if text is None else int(re.fullmatch(r"(\d+)s", text)[1])


def parse_version(text):
    return tuple(int(part) for part in text.split(".")[:2])
