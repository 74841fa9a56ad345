#!/usr/bin/env bash
# The whole of the official conformance suite against the gateway:
#
#     all.sh GATEWAY_BIN      what passes directly must pass through the gateway
#     all.sh --direct         the everything-server alone, without a gateway
#
# Starts tests/peers/everything_server.py, runs the suite's server scenarios
# against it and then through GATEWAY_BIN in front of it, at three revisions, and
# lets check.py judge. Direct results are kept in .direct/ for as long as the server
# and the suite stay as they are; those through the gateway, with its log, are in
# .gateway/ until the next run. Extra arguments go to check.py (--propose).
set -euo pipefail

if [ $# -lt 1 ]; then
    sed -n '2,12p' "$0" >&2
    exit 2
fi
gateway=$1
shift
if [ "$gateway" != --direct ] && [ ! -x "$gateway" ]; then
    echo "all.sh: $gateway is no program" >&2
    exit 2
fi

here=$(cd "$(dirname "$0")" && pwd)
peers="$here/../peers"
revisions=(2025-06-18 2025-11-25 2026-07-28)
"$peers/setup.sh"

temporary=$(mktemp -d)
started=()
finish() {
    local pid tries
    for pid in "${started[@]}"; do
        kill "$pid" 2>/dev/null || continue
        for ((tries = 0; tries < 50; tries++)); do
            kill -0 "$pid" 2>/dev/null || break
            sleep 0.1
        done
        kill -KILL "$pid" 2>/dev/null || true
    done
    rm -rf "$temporary"
}
trap finish EXIT
trap 'exit 130' INT TERM

wait_until() { # what for, seconds, pid that must live on, command...
    local what=$1 deadline=$((SECONDS + $2)) pid=$3
    shift 3
    until "$@" >/dev/null 2>&1; do
        if ! kill -0 "$pid" 2>/dev/null || [ "$SECONDS" -ge "$deadline" ]; then
            echo "all.sh: $what did not come up" >&2
            return 1
        fi
        sleep 0.1
    done
}

# --- The server, and what it does without a gateway ---------------------------

"$peers/.venv-v2/bin/python" "$peers/everything_server.py" --port 0 \
    >"$temporary/port.json" 2>"$temporary/server.log" </dev/null &
server=$!
started+=("$server")
wait_until "the everything-server" 60 "$server" grep -q '"port"' "$temporary/port.json" ||
    { cat "$temporary/server.log" >&2; exit 1; }
port=$(python3 -c 'import json, sys; print(json.load(open(sys.argv[1]))["port"])' "$temporary/port.json")

key=$(cat "$peers/everything_server.py" "$peers/requirements-v2.txt" "$peers/package-lock.json" "$here/run.sh" |
    sha256sum | cut -c1-16)
direct="$here/.direct/$key"
for revision in "${revisions[@]}"; do
    if [ ! -d "$direct/$revision" ]; then
        "$here/run.sh" "http://127.0.0.1:$port/mcp" "$revision" "$temporary/direct/$revision"
        mkdir -p "$direct"
        mv "$temporary/direct/$revision" "$direct/$revision"
    fi
done
for old in "$here/.direct"/*; do
    [ "$old" = "$direct" ] || rm -rf "$old"
done

if [ "$gateway" = --direct ]; then
    echo '[]' >"$temporary/baseline.json"
    python3 "$here/check.py" "$direct" "$direct" --baseline "$temporary/baseline.json"
    exit
fi

# --- The gateway in front of it -----------------------------------------------

read -r client_port admin_port < <(python3 - <<'PYTHON'
import socket
held = [socket.create_server(("127.0.0.1", 0)) for _ in range(2)]
print(*(listener.getsockname()[1] for listener in held))
PYTHON
)
cat >"$temporary/gateway.toml" <<TOML
[gateway]
listen = "127.0.0.1:$client_port"
naming = "none"

[admin]
listen = "127.0.0.1:$admin_port"

[servers.everything]
url = "http://127.0.0.1:$port/mcp"
TOML

results="$here/.gateway"
rm -rf "$results"
mkdir -p "$results"
"$gateway" serve --config "$temporary/gateway.toml" >"$results/gateway.log" 2>&1 </dev/null &
running=$!
started+=("$running")
is_ready() {
    python3 -c 'import sys, urllib.request as r; r.urlopen(sys.argv[1], timeout=2)' "http://127.0.0.1:$admin_port/readyz"
}
wait_until "the gateway" 60 "$running" is_ready || { tail -n 30 "$results/gateway.log" >&2; exit 1; }

for revision in "${revisions[@]}"; do
    "$here/run.sh" "http://127.0.0.1:$client_port/mcp" "$revision" "$results/$revision"
    kill -0 "$running" 2>/dev/null || { echo "all.sh: the gateway died at $revision" >&2; tail -n 30 "$results/gateway.log" >&2; exit 1; }
done
python3 "$here/check.py" "$direct" "$results" "$@"
