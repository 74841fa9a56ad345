"""The chart under packaging/helm, rendered by Helm."""

import pathlib
import textwrap
import tomllib
import unittest

import manifests
from charts import CHART, ChartRefused, lint, render
from manifests import check_config, find_faults

ROOT = pathlib.Path(__file__).resolve().parents[2]
PROGRAM = str(ROOT / "target" / "debug" / "trunkline")

CONFIG = """
config: |
  [gateway]
  public_url = "https://mcp.example.com"
  state_keys = ["${file:/run/secrets/trunkline/state.key}"]
  drain = "20s"
  [clients.ci]
  key = "${file:/run/secrets/trunkline/ci.sha256}"
  [servers.docs]
  url = "https://docs.example.com/mcp"
secret: trunkline
"""
REPLICAS = CONFIG + """
replicas: 3
cluster:
  enabled: true
  store: "rediss://:${file:/run/secrets/trunkline/store.password}@valkey:6379"
  certificate: trunkline-replicas
"""
PERSISTENT = """
persistence: { enabled: true, storageClass: fast }
secret: trunkline
config: |
  [gateway]
  state_dir = "/var/lib/trunkline/state"
  [clients.ci]
  key = "${file:/run/secrets/trunkline/ci.sha256}"
  [servers.docs]
  url = "https://docs.example.com/mcp"
"""
EVERYTHING = REPLICAS + """
imagePullSecrets: [{ name: registry }]
image: { repository: registry.example.com/trunkline, tag: "1", pullPolicy: Always }
env: [{ name: DOCS_TOKEN, valueFrom: { secretKeyRef: { name: docs, key: token } } }]
envFrom: [{ secretRef: { name: more } }]
ingress: { enabled: true, className: nginx, host: mcp.example.com, tlsSecret: mcp-tls, annotations: { a: b } }
networkPolicy: { admin: [{ namespaceSelector: { matchLabels: { name: monitoring } } }] }
service: { type: LoadBalancer, port: 8080, annotations: { a: b } }
podAnnotations: { a: b }
podLabels: { team: platform }
nodeSelector: { disk: ssd }
tolerations: [{ key: a, operator: Exists }]
affinity: { nodeAffinity: {} }
serviceAccountName: gateway
"""
# The values of the chart name the Secret in their configuration, so it has to be given.
DEFAULTS = "secret: trunkline\n"


class Charts(unittest.TestCase):
    def test_a_cluster_accepts_every_variant(self):
        for values in [DEFAULTS, CONFIG, REPLICAS, PERSISTENT, EVERYTHING]:
            lint(values)
            self.assertEqual(find_faults(render(values)), [], values)

    def test_the_gateway_accepts_the_configuration_of_every_variant(self):
        for values in [DEFAULTS, CONFIG, REPLICAS, PERSISTENT]:
            (text,) = render(values).configs.values()
            status, report = check_config(PROGRAM, text)
            self.assertEqual(status, 0, report)

    def test_there_is_no_definition_of_other_kinds_of_objects(self):
        kinds = {it["kind"] for it in render(EVERYTHING).objects}
        builtin = {"ConfigMap", "Ingress", "NetworkPolicy", "PodDisruptionBudget", "Service", "StatefulSet"}
        self.assertEqual(kinds, builtin)
        self.assertFalse((CHART / "crds").exists())

    def test_replicas_have_a_budget_and_a_gateway_alone_has_none(self):
        self.assertEqual(len(render(REPLICAS).budgets), 1)
        self.assertEqual(render(CONFIG).budgets, [])

    def test_replicas_advertise_the_names_of_their_certificate(self):
        (text,) = render(REPLICAS).configs.values()
        cluster = tomllib.loads(text)["cluster"]
        name = "${env:POD_NAME}.trunkline-replicas.default.svc.cluster.local:7070"
        self.assertEqual(cluster["advertise"], name)

    def test_a_container_has_no_rights_that_it_does_not_need(self):
        for values in [DEFAULTS, EVERYTHING]:
            (workload,) = render(values).workloads
            pod = workload["spec"]["template"]["spec"]
            self.assertFalse(pod["automountServiceAccountToken"])
            self.assertTrue(pod["securityContext"]["runAsNonRoot"])
            own = pod["containers"][0]["securityContext"]
            self.assertFalse(own["allowPrivilegeEscalation"])
            self.assertTrue(own["readOnlyRootFilesystem"])
            self.assertEqual(own["capabilities"], {"drop": ["ALL"]})

    def test_the_command_is_that_of_the_image(self):
        container = render(CONFIG).workloads[0]["spec"]["template"]["spec"]["containers"][0]
        image = (ROOT / "Dockerfile").read_text(encoding="utf-8")
        command = ", ".join(f'"{it}"' for it in container["args"])
        self.assertIn(f"CMD [{command}]", image)

    def test_only_replicas_reach_the_port_of_the_replicas(self):
        for values, expected in [(DEFAULTS, ["mcp"]), (EVERYTHING, ["mcp", "admin", "replicas"])]:
            (policy,) = render(values).of_kind("NetworkPolicy")
            rules = {rule["ports"][0]["port"]: rule.get("from") for rule in policy["spec"]["ingress"]}
            self.assertEqual(list(rules), expected)
            self.assertTrue(all(rules[port] for port in expected[1:]), rules)

    def test_the_state_is_on_a_volume_of_each_pod(self):
        (workload,) = render(PERSISTENT).workloads
        (claim,) = workload["spec"]["volumeClaimTemplates"]
        self.assertEqual(claim["spec"]["storageClassName"], "fast")
        (text,) = render(PERSISTENT).configs.values()
        state = pathlib.PurePath(tomllib.loads(text)["gateway"]["state_dir"])
        mounts = {it["name"]: it["mountPath"] for it in manifests.container_of(workload)["volumeMounts"]}
        # The volume's own folder belongs to root.
        self.assertEqual(str(state.parent), mounts["state"])


class Refusals(unittest.TestCase):
    """Values that would not run are refused by name, before anything is applied."""

    def expect(self, fault, values):
        with self.assertRaises(ChartRefused) as refused:
            render(values)
        self.assertIn(fault, str(refused.exception))

    def config(self, text):
        return "config: |\n" + textwrap.indent(text, "  ")

    def test_several_replicas_without_a_store(self):
        self.expect("several replicas need cluster.enabled", DEFAULTS + "replicas: 2")

    def test_a_cluster_without_store_or_certificate(self):
        self.expect("store", CONFIG + "cluster: { enabled: true, certificate: a }")
        self.expect("certificate", CONFIG + "cluster: { enabled: true, store: 'rediss://a' }")
        self.expect("store", CONFIG + "cluster: { enabled: true, store: 'http://a', certificate: a }")

    def test_replicas_with_keys_of_their_own(self):
        values = self.config('[gateway]\npublic_url = "https://a.example"\n')
        self.expect("the same gateway.state_keys", values + "cluster: { enabled: true, store: 'rediss://a', certificate: a }")

    def test_tables_that_the_chart_adds(self):
        for header in ["[admin]", "[cluster]", "  [ admin ]", "[admin.tls]"]:
            self.expect("which the chart adds itself", self.config(f"[gateway]\n{header}\n"))

    def test_a_volume_that_the_gateway_does_not_use(self):
        self.expect("gateway.state_dir", CONFIG + "persistence: { enabled: true }")

    def test_files_of_a_secret_that_is_not_named(self):
        self.expect("set secret to the name", "")
        self.expect("set secret to the name", REPLICAS.replace("secret: trunkline", "secret: ''"))

    def test_unknown_values(self):
        self.expect("replica", "replica: 3")
        self.expect("tls", "ingress: { enabled: true, host: a.example, tlsSecret: '' }")
