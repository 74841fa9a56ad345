#!/usr/bin/env bash
# Builds the fuzz targets with coverage on the stable compiler and runs them, one
# after the other:
#
#     fuzz/run.sh [SECONDS] [TARGET…]      30 seconds of each unless said otherwise
#
# What was found grows in fuzz/corpus; a finding is written to fuzz/findings, told,
# and makes the script fail. FUZZ_JOBS=N runs N processes of each target.
set -euo pipefail
cd "$(dirname "$0")"

seconds=${1:-30}
[ $# -gt 0 ] && shift
targets=("$@")
[ ${#targets[@]} -gt 0 ] || targets=(frames sse lift lower)
jobs=${FUZZ_JOBS:-1}

# What cargo-fuzz sets, but for the sanitizers, which only a nightly compiler has.
# The flags are for the target alone, so that build scripts stay as they are.
triple=$(rustc -vV | sed -n 's/^host: //p')
flags="-Cpasses=sancov-module"
for option in level=4 inline-8bit-counters pc-table trace-compares; do
    flags+=" -Cllvm-args=-sanitizer-coverage-$option"
done
RUSTFLAGS="$flags --cfg fuzzing" cargo build --release --target "$triple" \
    $(printf -- '--bin %s ' "${targets[@]}")

status=0
for target in "${targets[@]}"; do
    mkdir -p "corpus/$target" findings
    echo "=== $target, $seconds s"
    "target/$triple/release/$target" "corpus/$target" "seeds/$target" \
        -max_total_time="$seconds" -timeout=5 -rss_limit_mb=2048 -max_len=8192 \
        -dict=mcp.dict -artifact_prefix="findings/$target-" -print_final_stats=1 \
        -fork="$jobs" -ignore_crashes=0 2>&1 | tail -n "${FUZZ_TAIL:-20}" || status=1
done
exit $status
