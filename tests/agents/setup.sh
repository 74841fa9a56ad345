#!/usr/bin/env bash
# Installs the servers of the agents' tasks that tests/peers does not have, and the tokenizer, into this
# folder. Takes no arguments; a second run takes no time.
set -euo pipefail
cd "$(dirname "$0")"
../peers/setup.sh
. ../peers/install.sh

check_tools
lock_setup
install_both
