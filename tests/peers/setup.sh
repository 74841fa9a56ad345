#!/usr/bin/env bash
# Installs the peers that the tests talk to, all into this folder: the Python SDK
# 1.x and 2.x (an environment each), and from npm the TypeScript SDKs, the
# reference servers, the conformance suite and the Node 22 that it needs.
# Takes no arguments; a second run takes no time.
set -euo pipefail
cd "$(dirname "$0")"
. ./install.sh

check_tools
lock_setup
# Side by side, for each waits mostly for its registry.
install_python .venv-v1 requirements-v1.txt & v1=$!
install_python .venv-v2 requirements-v2.txt & v2=$!
install_node & js=$!
collect "$v1" "$v2" "$js"
