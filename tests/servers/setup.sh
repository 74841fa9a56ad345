#!/usr/bin/env bash
# Installs the servers of servers.json into this folder. Takes no arguments; a second run takes
# no time. No package runs a script of its own while it is installed.
set -euo pipefail
cd "$(dirname "$0")"
../peers/setup.sh
. ../peers/install.sh

check_tools
lock_setup
install_both
