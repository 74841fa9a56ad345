#!/usr/bin/env python3
"""Real servers from the registries, listed directly and through the gateway, and compared byte for byte.

    compare.py GATEWAY_BIN                  all of servers.json; fails if a list differs
    compare.py GATEWAY_BIN --only "mcp-*"   those whose name fits
    compare.py GATEWAY_BIN --write          also writes docs/servers.md

Everything runs in a network namespace with nothing but loopback, with credentials that are
made up. Each server is started by itself and listed by plain JSON-RPC; then all that answered
are put behind one gateway, which is listed as a Legacy and as a Modern client does. Every tool,
prompt, resource and template has to be the same, byte for byte; only the gateway's prefix is
taken off the names. Differences are in .results/.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import shutil
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from fnmatch import fnmatchcase
from pathlib import Path

from listing import (
    HERE,
    LEGACY,
    LISTS,
    RESULTS,
    START_SECONDS,
    Json,
    Lists,
    Server,
    list_all,
    list_directly,
    members,
    servers,
)

PAGE = HERE.parents[1] / "docs/servers.md"
MODERN = "2026-07-28"


# --- Through the gateway ----------------------------------------------------------------


def toml_of(chosen: list[Server]) -> str:
    text = '[gateway]\nlisten = "127.0.0.1:18080"\nuris = "original"\n\n[admin]\nlisten = "127.0.0.1:18081"\n'
    text += '\n[log]\naccess = false\n'
    for server in chosen:
        command, *args = server.words
        env = ", ".join(f"{key} = {json.dumps(value)}" for key, value in server.environment.items())
        text += f"\n[servers.{server.name}]\ncommand = {json.dumps(command)}\nargs = {json.dumps(args)}\n"
        text += f'env = {{ {env} }}\ncwd = {json.dumps(server.environment["HOME"])}\nstart_timeout = "{START_SECONDS}s"\n'
    return text


@contextmanager
def gateway_of(binary: str, chosen: list[Server]) -> Iterator[None]:
    """A gateway with these servers, once each is ready or time is up."""
    config = RESULTS / "gateway.toml"
    config.write_text(toml_of(chosen))
    with (RESULTS / "gateway.log").open("w") as log:
        child = subprocess.Popen([binary, "serve", "--config", str(config)], stderr=log, stdin=subprocess.DEVNULL)
        try:
            wait_for_servers(child, binary)
            yield
        finally:
            child.terminate()
            child.wait(60)


def fetch_status(binary: str) -> Json:
    config = str(RESULTS / "gateway.toml")
    return json.loads(subprocess.run([binary, "status", "--json", config], capture_output=True, timeout=30).stdout)


def wait_for_servers(child: subprocess.Popen[bytes], binary: str) -> None:
    deadline = time.monotonic() + 4 * START_SECONDS
    while child.poll() is None:
        try:
            waiting = [it for it in fetch_status(binary)["servers"] if it["state"] != "ready"]
        except ValueError:
            waiting = [{}]
        if not waiting or time.monotonic() > deadline:
            return
        time.sleep(0.5)
    raise SystemExit(f"the gateway has ended, see {RESULTS / 'gateway.log'}")


def post(message: Json, headers: Json) -> tuple[str, str | None]:
    body = json.dumps({"jsonrpc": "2.0", **message}).encode()
    headers = {"Content-Type": "application/json", "Accept": "application/json", **headers}
    request = urllib.request.Request("http://127.0.0.1:18080/mcp", body, headers)
    with urllib.request.urlopen(request, timeout=60) as response:
        return response.read().decode(), response.headers.get("Mcp-Session-Id")


def list_gateway(era: str) -> Lists:
    everything = {"tools": {}, "prompts": {}, "resources": {}}
    if era == "modern":
        meta = {"io.modelcontextprotocol/protocolVersion": MODERN, "io.modelcontextprotocol/clientCapabilities": {}}

        def ask_modern(method: str, params: Json) -> str:
            headers = {"MCP-Protocol-Version": MODERN, "Mcp-Method": method}
            return post({"id": 1, "method": method, "params": {**params, "_meta": meta}}, headers)[0]

        return list_all(ask_modern, everything)
    opening = {"protocolVersion": LEGACY, "capabilities": {}, "clientInfo": {"name": "compare", "version": "1"}}
    _, session = post({"id": 1, "method": "initialize", "params": opening}, {})
    headers = {"Mcp-Session-Id": session, "MCP-Protocol-Version": LEGACY}
    post({"method": "notifications/initialized"}, headers)
    return list_all(lambda method, params: post({"id": 1, "method": method, "params": params}, headers)[0], everything)


# --- The comparison -----------------------------------------------------------------------


def of_server(server: str, kind: str, entries: list[str], own: list[str]) -> list[str]:
    """A server's part of the gateway's list, under the server's own names."""
    if kind in ("tools", "prompts"):
        prefix = f"{server}__"
        return [without_prefix(entry, prefix) for entry in entries if key_of(kind, entry).startswith(prefix)]
    uris = {key_of(kind, entry) for entry in own}
    return [entry for entry in entries if key_of(kind, entry) in uris]


def key_of(kind: str, entry: str) -> str:
    key = {"resources": "uri", "templates": "uriTemplate"}.get(kind, "name")
    return json.loads(entry)[key]


def without_prefix(entry: str, prefix: str) -> str:
    """Takes the prefix off the entry's name and leaves every other byte as it is."""
    name = members(entry)["name"]
    # The member itself: the same text may be a value before it.
    at = re.search(rf'"name"\s*:\s*(?={re.escape(name)})', entry).end()
    return entry[:at] + '"' + entry[at + 1 + len(prefix) :]


def differences(server: str, own: Lists, through: Lists) -> list[Json]:
    found = []
    for kind in LISTS:
        here = {key_of(kind, entry): entry for entry in own[kind]}
        there = {key_of(kind, entry): entry for entry in of_server(server, kind, through[kind], own[kind])}
        for name in {**here, **there}:
            if here.get(name) != there.get(name):
                found.append({"kind": kind, "name": name, "direct": here.get(name), "gateway": there.get(name)})
    return found


def compare(binary: str, chosen: list[Server]) -> list[Json]:
    with ThreadPoolExecutor(2) as pool:
        direct = dict(zip((it.name for it in chosen), pool.map(list_directly, chosen)))
    answering = [it for it in chosen if direct[it.name][0]]
    with gateway_of(binary, answering):
        lists = {era: list_gateway(era) for era in ("legacy", "modern")}
        # Legacy listings may have shown that a server speaks both eras.
        states = {it["name"]: it for it in fetch_status(binary)["servers"]}
    results = []
    for it in chosen:
        own, why = direct[it.name]
        result: Json = {"name": it.name, "package": it.package, "registry": it.registry, "version": it.version}
        if own:
            state = states[it.name]
            result |= {kind: len(own[kind]) for kind in LISTS}
            result |= {"state": state["state"], "eras": state["eras"], "last_error": state["last_error"]}
            result["differences"] = [
                {"era": era, **each} for era, listed in lists.items() for each in differences(it.name, own, listed)
            ]
        else:
            result["why"] = why
        results.append(result)
    return results


def table(head: list[str], rows: list[list[str]]) -> str:
    lines = [head, ["---"] * len(head), *rows]
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)


def render(results: list[Json]) -> str:
    compared = [it for it in results if "why" not in it]
    rows = []
    for it in compared:
        counts = [str(it[kind]) for kind in LISTS]
        same = "yes" if not it["differences"] else f"**{len(it['differences'])} differ**"
        rows.append([f"`{it['package']}`", it["registry"], it["version"], ", ".join(it["eras"]), *counts, same])
    total = {kind: sum(it[kind] for it in compared) for kind in LISTS}
    text = BEGIN.format(servers=len(compared), **total) + table(["package", "registry", "version", "eras", *LISTS, "same"], rows)
    silent = [[f"`{it['package']}`", it["registry"], it["version"], it["why"]] for it in results if "why" in it]
    return text + (NOT_STARTED + table(["package", "registry", "version", "reason"], silent) if silent else "")


BEGIN = """<!-- Written by `tests/servers/all.sh GATEWAY_BIN --write`. Do not edit. -->

# Real servers

Servers from the registries, listed directly and through one gateway that runs all of them at once, and compared
byte for byte: every tool, prompt, resource and resource template, in both eras. The gateway's prefix is taken off
the names, and `uris = "original"` leaves the URIs as they are. There was no network but loopback, and the credentials
were made up.

{servers} servers with {tools} tools, {prompts} prompts, {resources} resources and {templates} templates:

"""
NOT_STARTED = """
## Not compared

These servers do not answer here, with the gateway or without it. No package ran a script while it was installed,
and there was no network:

"""


def enter_namespace() -> None:
    """Runs this program again where there is no network but loopback."""
    if os.environ.get("TRUNKLINE_NAMESPACE"):
        return
    if shutil.which("unshare") is None or subprocess.run(["unshare", "-n", "true"]).returncode != 0:
        raise SystemExit("compare.py: a network namespace is needed: run it as root, with unshare")
    os.environ["TRUNKLINE_NAMESPACE"] = "1"
    script = 'ip link set lo up && exec "$@"'
    os.execvp("unshare", ["unshare", "-n", "sh", "-c", script, "sh", sys.executable, *sys.argv])


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("gateway")
    parser.add_argument("--only", default="*", metavar="PATTERN")
    parser.add_argument("--write", action="store_true")
    options = parser.parse_args()
    enter_namespace()
    RESULTS.mkdir(exist_ok=True)
    chosen = [it for it in servers() if fnmatchcase(it.name, options.only)]
    results = compare(str(Path(options.gateway).resolve()), chosen)
    (RESULTS / "results.json").write_text(json.dumps(results, indent=2) + "\n")
    print(render(results), end="")
    if options.write:
        PAGE.write_text(render(results), encoding="utf-8")
    unequal = sum(bool(it.get("differences")) for it in results)
    print(f"\nservers: {len(results) - unequal} passed, {unequal} failed")
    return 1 if unequal or not results else 0


if __name__ == "__main__":
    sys.exit(main())
