#!/usr/bin/env bash
# Agent frameworks and clients through the gateway:
#
#     all.sh GATEWAY_BIN [OPTIONS]
#
# Installs them and lets matrix.py run them: that file says what is run, and which options there
# are (--only PATTERN, --direct, --write). statuses.py, beside it, takes no gateway.
set -euo pipefail

if [ $# -lt 1 ]; then
    sed -n '2,7p' "$0" >&2
    exit 2
fi
here=$(cd "$(dirname "$0")" && pwd)
"$here/setup.sh"
exec python3 "$here/matrix.py" "$@"
