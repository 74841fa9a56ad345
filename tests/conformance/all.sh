#!/usr/bin/env bash
# The whole of the official conformance suite against the gateway:
#
#     all.sh GATEWAY_BIN      what passes directly must pass through the gateway
#     all.sh --direct         the everything-servers and the clients alone
#
# Installs the peers and lets suites.py run it: that file says what is run, and takes
# more (--only PATTERN, --jobs N, --propose, --write). Next to GATEWAY_BIN it wants
# examples/everything_server: `cargo build --example everything_server`.
set -euo pipefail

if [ $# -lt 1 ]; then
    sed -n '2,9p' "$0" >&2
    exit 2
fi
here=$(cd "$(dirname "$0")" && pwd)
"$here/../peers/setup.sh"
exec python3 "$here/suites.py" "$@"
