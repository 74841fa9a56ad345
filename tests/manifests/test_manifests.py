"""The manifests of the pages: `tests/manifests/.venv/bin/python -m unittest discover -s tests/manifests`."""

import copy
import pathlib
import unittest

import manifests
from manifests import ManifestSet, check_config, find_faults, read_page

ROOT = pathlib.Path(__file__).resolve().parents[2]
PAGES = ["cluster.md", "running.md"]
PROGRAM = ROOT / "target" / "debug" / "trunkline"


def sets_of(page):
    return read_page((ROOT / "docs" / page).read_text(encoding="utf-8"))


class Pages(unittest.TestCase):
    def test_every_page_with_manifests_is_checked(self):
        with_manifests = [it.name for it in (ROOT / "docs").glob("*.md") if read_page(it.read_text(encoding="utf-8"))]
        self.assertEqual(sorted(with_manifests), PAGES)

    def test_a_cluster_accepts_the_manifests_and_stops_their_replicas_in_order(self):
        for page in PAGES:
            for found in sets_of(page):
                self.assertEqual(find_faults(found), [], page)

    def test_the_gateway_accepts_their_configurations(self):
        for page in PAGES:
            for found in sets_of(page):
                self.assertTrue(found.configs, page)
                for text in found.configs.values():
                    status, report = check_config(str(PROGRAM), text)
                    self.assertEqual(status, 0, report)

    def test_the_configuration_is_where_the_image_reads_it(self):
        image = (ROOT / "Dockerfile").read_text(encoding="utf-8")
        self.assertIn(f'"--config", "{manifests.CONFIG_FOLDER}/gateway.toml"', image)


class Faults(unittest.TestCase):
    """Each fault is found that the manifests of docs/cluster.md would have after a change."""

    def setUp(self):
        (self.set,) = sets_of("cluster.md")

    def find(self, change):
        objects = copy.deepcopy(self.set.objects)
        change({f"{it['kind']} {it['metadata']['name']}": it for it in objects})
        return find_faults(ManifestSet(objects))

    def expect(self, fault, change):
        found = self.find(change)
        self.assertEqual(len(found), 1, found)
        self.assertIn(fault, found[0])

    @staticmethod
    def pod(objects):
        return objects["StatefulSet trunkline"]["spec"]["template"]["spec"]

    def container(self, objects):
        return self.pod(objects)["containers"][0]

    def config(self, objects, old, new):
        data = objects["ConfigMap trunkline"]["data"]
        self.assertIn(old, data["gateway.toml"])
        data["gateway.toml"] = data["gateway.toml"].replace(old, new)

    def test_unknown_fields(self):
        found = self.find(lambda it: self.container(it).update({"prestop": {}}))
        self.assertTrue(found and all("prestop" in fault for fault in found), found)

    def test_a_pod_that_is_killed_while_it_drains(self):
        self.expect("which takes 35 s", lambda it: self.pod(it).update({"terminationGracePeriodSeconds": 35}))
        slow = '[servers.docs]\nstop_timeout = "20s"'
        self.expect("which takes 65 s", lambda it: self.config(it, "[servers.docs]", slow))

    def test_a_replica_that_stops_at_once(self):
        self.expect("has no preStop", lambda it: self.container(it).pop("lifecycle"))

    def test_probes_of_other_paths_or_ports(self):
        get = lambda it, probe: self.container(it)[probe]["httpGet"]
        self.expect("no livenessProbe", lambda it: get(it, "livenessProbe").update({"path": "/readyz"}))
        self.expect("no readinessProbe", lambda it: get(it, "readinessProbe").update({"port": "mcp"}))

    def test_ports_that_nothing_listens_on(self):
        self.expect("has no port admin", lambda it: self.config(it, ":8081", ":9999"))
        self.expect("has no port replicas", lambda it: self.config(it, '"0.0.0.0:7070"', '"0.0.0.0:7071"'))
        ports = lambda it: it["Service trunkline"]["spec"]["ports"]
        self.expect("which pods do not have", lambda it: ports(it)[0].update({"targetPort": "http"}))

    def test_services_and_budgets_of_other_pods(self):
        spec = lambda it, name: it[name]["spec"]
        other = {"app": "other"}
        self.expect("Service trunkline selects no", lambda it: spec(it, "Service trunkline").update({"selector": other}))
        budget = "PodDisruptionBudget trunkline"
        selector = {"selector": {"matchLabels": other}}
        self.expect("Budget trunkline selects no", lambda it: spec(it, budget).update(selector))
        self.expect("more than one replica", lambda it: spec(it, budget).update({"maxUnavailable": 2}))

    def test_replicas_without_names_of_their_own(self):
        service = lambda it: it["Service trunkline-replicas"]["spec"]
        self.expect("no headless service", lambda it: service(it).pop("clusterIP"))
        self.expect("that are not ready", lambda it: service(it).pop("publishNotReadyAddresses"))
        self.expect("do not advertise", lambda it: self.config(it, "${env:POD_NAME}.", "gateway."))

    def test_mounts_and_volumes_that_do_not_match(self):
        self.expect("the volume secrets", lambda it: self.container(it)["volumeMounts"].pop(1))
        mount = lambda it: self.container(it)["volumeMounts"][0]
        self.expect("mounts no gateway.toml", lambda it: mount(it).update({"subPath": "gateway.toml"}))

    def test_several_replicas_without_a_cluster(self):
        (alone,) = sets_of("running.md")
        alone.workloads[0]["spec"]["replicas"] = 2
        self.assertEqual(find_faults(alone), ["Deployment trunkline has several replicas without [cluster]"])

    def test_a_configuration_with_a_fault(self):
        text = next(iter(self.set.configs.values())).replace("[cluster]", "[clusters]")
        status, report = check_config(str(PROGRAM), text)
        self.assertNotEqual(status, 0)
        self.assertIn("clusters", report)
