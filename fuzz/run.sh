#!/usr/bin/env bash
# Builds the fuzz targets with coverage on the stable compiler, runs each over its
# seeds, then for some time:
#
#     fuzz/run.sh [SECONDS] [TARGET…]      30 seconds of each target unless said otherwise
#     fuzz/run.sh --hours N [TARGET…]      N hours of processor time, shared by the targets;
#
# FUZZ_JOBS targets run at a time, 2 unless said otherwise. What was discovered grows in
# fuzz/corpus, from which the next run goes on; a finding is written to fuzz/findings, becomes
# a seed, is told, and makes the script fail.
set -euo pipefail
cd "$(dirname "$0")"

usage() {
    sed -n 's/^#     //p' run.sh >&2
    exit 2
}

hours='' seconds=30 # of each target: processor time with --hours, else the clock's
if [ "${1:-}" = --hours ]; then
    hours=${2:-}
    [[ $hours =~ ^[0-9]+(\.[0-9]+)?$ ]] || usage
    shift 2
elif [ $# -gt 0 ]; then
    seconds=$1
    [[ $seconds =~ ^[0-9]+$ ]] || usage
    shift
fi
targets=("$@")
if [ ${#targets[@]} -eq 0 ]; then
    for program in fuzz_targets/*.rs; do targets+=("$(basename "$program" .rs)"); done
fi
if [ -n "$hours" ]; then
    seconds=$(awk -v hours="$hours" -v targets=${#targets[@]} 'BEGIN { print int(hours * 3600 / targets) }')
fi
mkdir -p findings

# What cargo-fuzz sets, but for the sanitizers, which only a nightly compiler has.
# The flags are for the target alone, so that build scripts stay as they are.
triple=$(rustc -vV | sed -n 's/^host: //p')
flags="-Cpasses=sancov-module"
for option in level=4 inline-8bit-counters pc-table trace-compares; do
    flags+=" -Cllvm-args=-sanitizer-coverage-$option"
done
# shellcheck disable=SC2046 # one word each
RUSTFLAGS="$flags --cfg fuzzing" cargo build --release --target "$triple" \
    $(printf -- '--bin %s ' "${targets[@]}")

# Sets `spent` to the processor time of this shell's ended children, in whole seconds. (A
# subshell would count its own children.)
count_time() {
    times >"$log.times"
    spent=$(awk -F '[ms ]+' 'NR == 2 { print int(60 * ($1 + $3) + $2 + $4) }' "$log.times")
    rm "$log.times"
}

# One target: every seed once, then whatever the fuzzer makes of them. On a busy machine the
# clock runs ahead of the processor: with --hours the fuzzer goes on until it has had its time.
fuzz() {
    local target=$1 program=target/$triple/release/$1 log=findings/$1.log
    local left=$seconds runs=0 spent
    local options=(-timeout=10 -rss_limit_mb=2048 -max_len=8192 -dict=mcp.dict
        -artifact_prefix="findings/$target-" -print_final_stats=1)
    mkdir -p "corpus/$target"
    "$program" "${options[@]}" -runs=0 "seeds/$target" >"$log" 2>&1 || failed "$target" || return 1
    while [ "$left" -gt 0 ]; do
        "$program" "${options[@]}" -max_total_time="$left" "corpus/$target" "seeds/$target" >"$log" 2>&1 ||
            failed "$target" || return 1
        runs=$((runs + $(awk '/^Done/ { print $2 }' "$log")))
        count_time
        [ -n "$hours" ] || break
        left=$((seconds - spent))
    done
    printf '%s: %s runs in %s s of processor time\n' "$target" "$runs" "$spent"
    rm "$log"
}

# Keeps a finding as a seed, and says what was found.
failed() {
    printf '%s: FAILED\n' "$1"
    find findings -name "$1-*" -exec cp -t "seeds/$1" {} +
    grep -v '^#' "$log" | tail -n 60
    return 1
}
export -f fuzz count_time failed
export triple seconds hours

# An error of any target is an error of xargs.
printf '%s\n' "${targets[@]}" | xargs -P "${FUZZ_JOBS:-2}" -I{} bash -c 'fuzz {}'
