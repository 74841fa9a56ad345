# What the setup scripts share; to be sourced in the folder to install into. A folder is done when
# it holds the digest of what it was installed from: what is there already and unchanged is left
# alone, and a half-done one is done again.

digest() { cat "$@" | sha256sum | cut -d' ' -f1; }
is_done() { [ -f "$1/.installed-from" ] && [ "$(cat "$1/.installed-from")" = "$2" ]; }

check_tools() {
    local tool
    for tool in node npm python3 sha256sum; do
        command -v "$tool" >/dev/null || { echo "setup.sh: $tool is needed" >&2; exit 1; }
    done
    node -e 'process.exit(+process.versions.node.split(".")[0] >= 20 ? 0 : 1)' ||
        { echo "setup.sh: Node 20 or later is needed, this is $(node --version)" >&2; exit 1; }
    python3 -c 'import sys; sys.exit(sys.version_info < (3, 10))' ||
        { echo "setup.sh: Python 3.10 or later is needed, this is $(python3 --version)" >&2; exit 1; }
}

# Two tests may ask at once: the second waits for the first.
lock_setup() {
    exec 9>.setup.lock
    if command -v flock >/dev/null; then flock 9; fi
}

install_python() { # environment, requirements
    local want
    want=$(digest "$2")
    is_done "$1" "$want" && return
    echo "setup.sh: installing $1"
    rm -rf "$1"
    python3 -m venv "$1"
    "$1/bin/python" -m pip install --quiet --disable-pip-version-check --requirement "$2"
    echo "$want" >"$1/.installed-from"
}

install_node() {
    local want
    want=$(digest package.json package-lock.json)
    is_done node_modules "$want" && return
    echo "setup.sh: installing node_modules"
    npm ci --ignore-scripts --no-audit --no-fund --loglevel=error
    echo "$want" >node_modules/.installed-from
}

collect() { # jobs...
    local job failed=0
    for job in "$@"; do wait "$job" || failed=1; done
    if [ "$failed" -ne 0 ]; then
        echo "setup.sh: an installation failed, see above" >&2
        exit 1
    fi
}

# One Python environment and the Node packages, of the folder's requirements.txt and package.json.
install_both() {
    install_python .venv requirements.txt & local py=$!
    install_node & local js=$!
    collect "$py" "$js"
}
