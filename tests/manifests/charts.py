"""Renders the chart with Helm."""

import os
import pathlib
import subprocess
import tempfile

from manifests import ManifestSet

HERE = pathlib.Path(__file__).resolve().parent
HELM = HERE / ".helm" / "helm"
CHART = HERE.parents[1] / "packaging" / "helm" / "trunkline"


class ChartRefused(Exception):
    """Helm does not render the chart with these values."""


def render(values=""):
    """Returns the objects of the chart for values in YAML, in the namespace `default`."""
    return ManifestSet.parse(run_helm("template", "trunkline", str(CHART), "--namespace", "default", values=values))


def lint(values=""):
    return run_helm("lint", "--strict", str(CHART), values=values)


def run_helm(*arguments, values):
    with tempfile.TemporaryDirectory() as home:
        file = pathlib.Path(home) / "values.yaml"
        file.write_text(values, encoding="utf-8")
        command = [str(HELM), *arguments, "--values", str(file), "--kube-version", "1.30.0"]
        environment = {**os.environ, "HOME": home}
        done = subprocess.run(command, capture_output=True, text=True, timeout=60, env=environment)
    if done.returncode != 0:
        raise ChartRefused(done.stdout + done.stderr)
    return done.stdout
