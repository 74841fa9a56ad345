#!/usr/bin/env bash
# Installs the schemas of Kubernetes' objects into this folder. Takes no arguments; a second run takes no
# time.
set -euo pipefail
cd "$(dirname "$0")"
. ../peers/install.sh

check_tools
lock_setup
install_python .venv requirements.txt
