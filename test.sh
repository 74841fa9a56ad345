#!/usr/bin/env bash
# Everything that has to hold, from an empty clone: installs what the tests need, runs them all,
# and closes with one line, `N passed, M failed`. Continuous integration runs this and nothing else.
# Takes no arguments. TEST_FROM=SECTION begins there (packages, format, lint, docs, build, peers,
# test, python, conformance, bench, fuzz).
#
# Takes three quarters of an hour on two processors. What compiles for long on one of them runs beside
# something else: the release build and the downloads beside clippy, the fuzz targets, at the lowest
# priority, beside the tests, which mostly wait.
set -uo pipefail
cd "$(dirname "$0")" || exit 1
# Everything is compiled once: what a second compilation would read is half of what it writes.
export CARGO_INCREMENTAL=0

passed=0 failed=0 faults=()
began=$SECONDS from=${TEST_FROM:-packages}
log=$(mktemp)
beside=$(mktemp -d)
sections=" packages format lint docs build peers test python conformance bench fuzz "
case $sections in
    *" $from "*) rest=" $from ${sections#*" $from "}" ;;
    *) echo "test.sh: TEST_FROM is one of$sections" >&2 && exit 1 ;;
esac

# Jobs that were started and not collected end with the script.
finish() {
    local id
    for id in "$beside"/*.id; do
        [ -e "$id" ] && kill -TERM -- "-$(cat "$id")" 2>/dev/null
    done
    rm -rf "$log" "$beside"
}
trap finish EXIT

wanted() { # whether a section is to be run: it does not come before the one to begin with
    [[ $rest == *" $1 "* ]]
}

section() { # name, what it does; false where it is to be left out
    wanted "$1" || return 1
    printf '\n=== %s: %s  (%ds)\n' "$1" "$2" $((SECONDS - began))
}

count() { # passed, failed, what
    passed=$((passed + $1)) failed=$((failed + $2))
    if [ "$2" -gt 0 ]; then faults+=("$3"); fi
}

# One thing that holds or does not.
one() {
    if "$@"; then count 1 0; else count 0 1 "$*"; fi
}

# Starts a command in the background, in a process group of its own.
start_beside() { # name, command...
    local name=$1
    shift
    set -m
    ("$@") >"$beside/$name.log" 2>&1 </dev/null &
    echo $! >"$beside/$name.id"
    set +m
}

# Waits for it, shows what it printed, and gives its status.
collect() { # name
    local id status
    id=$(cat "$beside/$1.id")
    wait "$id"
    status=$?
    rm "$beside/$1.id"
    cat "$beside/$1.log"
    return "$status"
}

# Something whose own output says how many passed and failed: `sums` is an awk
# program that prints both. A command that fails without saying how often counts as one.
many() { # what, sums, command...
    local what=$1 sums=$2 status good bad
    shift 2
    "$@" 2>&1 | tee "$log"
    status=${PIPESTATUS[0]}
    read -r good bad < <(awk "$sums" "$log")
    if [ "$status" -ne 0 ] && [ "$bad" -eq 0 ]; then bad=1; fi
    if [ "$status" -eq 0 ] && [ "$good" -eq 0 ]; then bad=1; fi
    count "$good" "$bad" "$what"
}

# --- What the machine must have -----------------------------------------------

lacking() { # prints the Debian packages that are missing
    command -v cc >/dev/null || echo build-essential
    command -v curl >/dev/null || echo curl
    command -v node >/dev/null || echo nodejs
    command -v npm >/dev/null || echo npm
    command -v python3 >/dev/null || echo python3
    python3 -c 'import ensurepip, venv' 2>/dev/null || echo python3-venv
    command -v valgrind >/dev/null || echo valgrind
    command -v chromium-headless-shell >/dev/null || command -v chromium >/dev/null ||
        echo chromium-headless-shell
    # Debian puts it where only root looks.
    PATH=$PATH:/usr/sbin command -v nginx >/dev/null || echo nginx-light
}

packages() {
    if ! command -v cargo >/dev/null; then
        echo "test.sh: cargo is needed: https://rustup.rs installs it, rust-toolchain.toml says which" >&2
        return 1
    fi
    local missing
    missing=$(lacking)
    [ -z "$missing" ] && return
    # shellcheck disable=SC2086 # one word each
    if [ "$(id -u)" -eq 0 ] && command -v apt-get >/dev/null; then
        echo "installing" $missing
        apt-get update -qq && DEBIAN_FRONTEND=noninteractive apt-get install -y -qq $missing
    fi
    missing=$(lacking)
    [ -z "$missing" ] && return
    # shellcheck disable=SC2086
    echo "test.sh: install these first: sudo apt-get install" $missing >&2
    return 1
}

if section packages "compilers and interpreters"; then
    packages || exit 1
fi
# Of the agent frameworks one on the Python SDK 1.x and one on 2.x: all of them take ten minutes.
peers() {
    tests/frameworks/setup.sh langchain openai && tests/apis/setup.sh && tests/agents/setup.sh
}
if wanted peers; then
    start_beside peers peers
fi

# --- The code -------------------------------------------------------------------

if wanted build; then
    start_beside release cargo build --release --locked
fi
if section format "cargo fmt"; then
    one cargo fmt --all --check
fi
if section lint "cargo clippy, every warning an error"; then
    one cargo clippy --quiet --locked --workspace --all-targets -- -D warnings
fi
if section docs "cargo doc, every warning an error"; then
    RUSTDOCFLAGS="-D warnings" one cargo doc --quiet --locked --workspace --no-deps
fi
# The README's first command, as it stands there, on ports of its own: both example servers have to
# be ready, and SIGTERM has to end it well.
first_command() {
    local command folder gateway=0 ready=1
    command=$(awk '/^```sh$/ { getline; print; exit }' README.md)
    folder=$(mktemp -d)
    sed 's/^\[gateway\]$/[admin]\nlisten = "127.0.0.1:0"\n\n&/' gateway.toml >"$folder/gateway.toml"
    echo "$command"
    # shellcheck disable=SC2086 # a command and its arguments
    TRUNKLINE_CONFIG=$folder/gateway.toml $command --listen 127.0.0.1:0 >"$folder/log" 2>&1 &
    gateway=$!
    for _ in $(seq 1200); do
        [ "$(grep -c 'ready: trunkline-' "$folder/log")" -ge 2 ] && ready=0 && break
        kill -0 "$gateway" 2>/dev/null || break
        sleep 0.1
    done
    kill -TERM "$gateway" 2>/dev/null
    wait "$gateway" || ready=1
    [ "$ready" -eq 0 ] || cat "$folder/log"
    rm -rf "$folder"
    return "$ready"
}

if section build "the release build, begun beside the lint; the README's first command"; then
    one collect release
    one first_command
fi
if section peers "official SDKs, reference servers, the conformance suite, two agent frameworks, plain HTTP APIs, scripted agents; begun beside the lint"; then
    collect peers || exit 1
fi
if wanted fuzz; then
    # The time of each is by the clock: at this priority it delays no test. Hardly optimised, the
    # targets are built in half the time, which is what this takes.
    start_beside fuzz env CARGO_PROFILE_RELEASE_OPT_LEVEL=1 nice -n 19 fuzz/run.sh 20
fi
if section test "unit tests, the gateway on real sockets, with real peers, the README's commands"; then
    many "cargo test" '/^test result:/ { good += $4; bad += $6 } END { print good + 0, bad + 0 }' \
        cargo test --locked --workspace --no-fail-fast
fi

# --- What is not Rust -----------------------------------------------------------

unittests='/^Ran / { ran += $2 } /^FAILED/ { gsub(/[^0-9]+/, " "); n = split($0, all, " "); for (i = 1; i <= n; i++) bad += all[i] }
    END { if (bad > ran) bad = ran; print ran - bad, bad + 0 }'
if section python "the judges, the peers among themselves, and agent frameworks, which mostly wait"; then
    one cargo build --quiet --locked --bin trunkline
    start_beside frameworks python3 tests/frameworks/matrix.py target/debug/trunkline --jobs 4 \
        --only langchain-mcp-adapters --only openai-agents
    many "tests/conformance" "$unittests" python3 -m unittest discover -s tests/conformance
    many "tests/frameworks" "$unittests" python3 -m unittest discover -s tests/frameworks
    many "tests/servers" "$unittests" python3 -m unittest discover -s tests/servers
    many "tests/peers" "$unittests" python3 -m unittest discover -s tests/peers
    many "tests/agents" "$unittests" python3 -m unittest discover -s tests/agents
    one collect frameworks
fi
if section conformance "the official suite through the gateway"; then
    one cargo build --quiet --locked --bin trunkline --example everything_server
    many "conformance" '/^conformance-/ { good += $2; bad += $4 } /^stale/ { bad++ } END { print good + 0, bad + 0 }' \
        tests/conformance/all.sh target/debug/trunkline
    many "logins of the conformance suite" '/^auth:/ { good = $2; bad = $4 } END { print good + 0, bad + 0 }' \
        tests/conformance/auth.py target/debug/trunkline
    many "clients with a fault in the logins of the suite" \
        '/^broken clients:/ { good = $3; bad = $5 - $3 } END { print good + 0, bad + 0 }' \
        tests/conformance/auth.py --broken
fi
if section bench "the benches, a few calls of each kind; the instructions of a call, held"; then
    one cargo test --quiet --locked --benches
    # Of the release build, which is there by now; fails where a figure moved by more than was written down.
    one cargo test --quiet --locked --bench gateway -- --gate
fi
# Last: what the targets take is what everything before leaves them.
if section fuzz "every fuzz target over its seeds, and 20 s more, begun beside the tests"; then
    one collect fuzz
fi

# --- The end --------------------------------------------------------------------

printf '\n'
for fault in "${faults[@]}"; do printf 'failed: %s\n' "$fault"; done
printf '%d passed, %d failed\n' "$passed" "$failed"
[ "$failed" -eq 0 ] && [ "$passed" -gt 0 ]
