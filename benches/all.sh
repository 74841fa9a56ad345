#!/usr/bin/env bash
# Everything that docs/benchmarks.md tells, measured again on this machine and written down there:
# instructions, targets, times, and other gateways, which are installed into target/peers/. Takes
# about a quarter of an hour on a quiet machine, and the builds. Arguments go on to the bench:
# `benches/all.sh --quick` for a trial.
set -euo pipefail
cd "$(dirname "$0")/.."

missing=()
command -v valgrind >/dev/null || missing+=(valgrind)
command -v taskset >/dev/null || missing+=(util-linux)
{ command -v perf || command -v strace; } >/dev/null || missing+=(strace)
PATH=$PATH:/usr/sbin command -v nginx >/dev/null || missing+=(nginx-light)
if [ "${#missing[@]}" -gt 0 ]; then
    if [ "$(id -u)" -ne 0 ]; then
        echo "install these first: sudo apt-get install ${missing[*]}" >&2
        exit 1
    fi
    # The runlevel keeps the package from starting a server of its own.
    apt-get update -qq
    RUNLEVEL=1 DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends "${missing[@]}"
fi
python3 benches/peers/install.py
cargo bench --locked --bench gateway -- --report "$@"
