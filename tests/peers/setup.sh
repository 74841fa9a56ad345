#!/usr/bin/env bash
# Installs the peers that the tests talk to, all into this folder: the Python SDK
# 1.x and 2.x (an environment each), and from npm the TypeScript SDKs, the
# reference servers, the conformance suite and the Node 22 that it needs.
# Takes no arguments. What is there already and unchanged is left alone, so a
# second run takes no time; a half-done one is done again.
set -euo pipefail
cd "$(dirname "$0")"

for tool in node npm python3 sha256sum; do
    command -v "$tool" >/dev/null || { echo "setup.sh: $tool is needed" >&2; exit 1; }
done
node -e 'process.exit(+process.versions.node.split(".")[0] >= 20 ? 0 : 1)' ||
    { echo "setup.sh: Node 20 or later is needed, this is $(node --version)" >&2; exit 1; }
python3 -c 'import sys; sys.exit(sys.version_info < (3, 10))' ||
    { echo "setup.sh: Python 3.10 or later is needed, this is $(python3 --version)" >&2; exit 1; }

# A folder is done when it holds the digest of what it was installed from.
digest() { cat "$@" | sha256sum | cut -d' ' -f1; }
is_done() { [ -f "$1/.installed-from" ] && [ "$(cat "$1/.installed-from")" = "$2" ]; }

python_peer() { # environment, requirements
    local want
    want=$(digest "$2")
    is_done "$1" "$want" && return
    echo "setup.sh: installing $1"
    rm -rf "$1"
    python3 -m venv "$1"
    "$1/bin/python" -m pip install --quiet --disable-pip-version-check --requirement "$2"
    echo "$want" >"$1/.installed-from"
}

node_peers() {
    local want
    want=$(digest package.json package-lock.json)
    is_done node_modules "$want" && return
    echo "setup.sh: installing node_modules"
    npm ci --ignore-scripts --no-audit --no-fund --loglevel=error
    echo "$want" >node_modules/.installed-from
}

# Two tests may ask at once: the second waits for the first.
exec 9>.setup.lock
if command -v flock >/dev/null; then flock 9; fi

# Side by side, for each waits mostly for its registry.
python_peer .venv-v1 requirements-v1.txt & v1=$!
python_peer .venv-v2 requirements-v2.txt & v2=$!
node_peers & js=$!
failed=0
for job in "$v1" "$v2" "$js"; do wait "$job" || failed=1; done
if [ "$failed" -ne 0 ]; then
    echo "setup.sh: an installation failed, see above" >&2
    exit 1
fi
