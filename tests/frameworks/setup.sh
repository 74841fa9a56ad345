#!/usr/bin/env bash
# Installs the agent frameworks and clients of drivers/ into this folder, each Python one into an
# environment of its own. Takes names to install only those (`setup.sh openai langchain node`);
# a second run takes no time.
set -euo pipefail
cd "$(dirname "$0")"
../peers/setup.sh
. ../peers/install.sh

check_tools
lock_setup
if [ $# -eq 0 ]; then
    set -- node $(basename -s .txt requirements/*.txt)
fi
for name in "$@"; do
    case $name in
    node) install_node ;;
    *) install_python ".venv-$name" "requirements/$name.txt" ;;
    esac
done
