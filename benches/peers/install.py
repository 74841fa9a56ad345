#!/usr/bin/env python3
"""Installs the peers of peers.toml into target/peers/, each into a folder of its own.

A peer that cannot be installed is told, and missing in the report; nothing is
installed for the whole machine. Names as arguments choose folders.
"""

import pathlib
import subprocess
import sys
import tomllib

HERE = pathlib.Path(__file__).resolve().parent
TARGET = HERE.parent.parent / "target" / "peers"


def commands(peer, folder):
    """What installs it, one command after the other."""
    package, version = peer["package"], peer["version"]
    match peer["from"]:
        case "npm":
            yield ["npm", "install", "--prefix", folder, "--no-audit", "--no-fund",
                   "--loglevel=error", f"{package}@{version}"]
        case "pypi":
            yield [sys.executable, "-m", "venv", folder]
            yield [folder / "bin" / "pip", "install", "--quiet", f"{package}=={version}"]
        case "crates":
            features = peer.get("features", [])
            yield ["cargo", "install", package, "--version", version, "--locked", "--quiet",
                   "--features", ",".join(features), "--root", folder,
                   "--target-dir", TARGET / "build"]
        case other:
            raise ValueError(other)


def install(peer):
    folder = TARGET / peer["folder"]
    mark = folder / "installed"
    wanted = f"{peer['package']} {peer['version']}\n"
    if mark.exists() and mark.read_text() == wanted:
        print(f"{peer['name']} {peer['version']}: there")
        return
    print(f"{peer['name']} {peer['version']}: installing", flush=True)
    folder.mkdir(parents=True, exist_ok=True)
    for command in commands(peer, folder):
        done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True)
        if done.returncode != 0:
            last = (done.stderr.strip() or done.stdout.strip()).splitlines()[-1:]
            print(f"{peer['name']}: not installed: {' '.join(last)[:300]}", file=sys.stderr)
            return
    mark.write_text(wanted)


def main(chosen):
    for peer in tomllib.loads((HERE / "peers.toml").read_text())["peer"]:
        if "left_out" not in peer and (not chosen or peer["folder"] in chosen):
            install(peer)


if __name__ == "__main__":
    main(sys.argv[1:])
