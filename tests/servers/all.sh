#!/usr/bin/env bash
# Real servers from the registries, listed directly and through the gateway:
#
#     all.sh GATEWAY_BIN [OPTIONS]
#
# Installs them and lets compare.py list and compare: that file says how, and which options there
# are (--only PATTERN, --write). Needs root, for a network namespace without a network.
set -euo pipefail

if [ $# -lt 1 ]; then
    sed -n '2,7p' "$0" >&2
    exit 2
fi
here=$(cd "$(dirname "$0")" && pwd)
"$here/setup.sh"
exec python3 "$here/compare.py" "$@"
