"""Where the frameworks connect to: a server behind the gateway, or alone.

Every process of a place carries its tag in the environment, so that what a client leaves behind is
found.
"""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import time
import urllib.request
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
PEERS = HERE.parent / "peers"
PYTHON = PEERS / ".venv-v2/bin/python"
TAG = "TRUNKLINE_FRAMEWORKS"

Json = dict[str, Any]


@dataclass
class Place:
    """A server to connect to, alone or behind the gateway."""

    target: str
    prefix: str
    # Adds a tool, and gives its name and arguments; None where the client's own call does.
    add: Callable[[], tuple[str, Json]] | None
    # What is left open in it; None where there is nothing to ask.
    count_open: Callable[[], Json] | None
    tag: str
    log: Path


def fetch(url: str) -> Any:
    return json.loads(urllib.request.urlopen(url, timeout=5).read())


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def wait_until(seconds: float, holds: Callable[[], Any]) -> Any:
    """The first true answer of `holds`, or its last one when time is up."""
    deadline = time.monotonic() + seconds
    while not (answer := holds()) and time.monotonic() < deadline:
        time.sleep(0.05)
    return answer


def tagged(tag: str) -> list[int]:
    """The processes that were started for a place and still run."""
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        try:
            alive = (process / "stat").read_text().rsplit(")", 1)[1].split()[0] != "Z"
            if alive and f"{TAG}={tag}".encode() in (process / "environ").read_bytes().split(b"\0"):
                found.append(int(process.name))
        except OSError:
            continue
    return found


def configuration(tag: str, admin: int) -> str:
    environment = f"env = {{ {TAG} = {json.dumps(tag)} }}"
    args = json.dumps([str(PEERS / "everything_server.py"), "--stdio"])
    server = f"[servers.everything]\ncommand = {json.dumps(str(PYTHON))}\nargs = {args}\n{environment}\n"
    # Beside other tests the server may need more than the default of 3 s for its start.
    waits = '[gateway]\nlist_wait = "30s"\n'
    return f'{waits}\n[admin]\nlisten = "127.0.0.1:{admin}"\n\n{server}'


def status(gateway: str, config: Path) -> Json | None:
    asked = subprocess.run([gateway, "status", "--json", str(config)], capture_output=True, timeout=30)
    return json.loads(asked.stdout) if asked.stdout else None


def is_ready(gateway: str, config: Path, name: str) -> bool:
    servers = (status(gateway, config) or {}).get("servers", [])
    return any(server["name"] == name and server["state"] == "ready" for server in servers)


def add_clock(gateway: str, config: Path, runs: Callable[[], bool]) -> tuple[str, Json]:
    """Adds a server to the running configuration and waits until the gateway lists its tools."""
    text = config.read_text() + '\n[servers.clock]\ncommand = "trunkline"\nargs = ["example", "clock"]\n'
    temporary = config.with_suffix(".new")
    temporary.write_text(text)
    temporary.rename(config)
    wait_until(20, lambda: is_ready(gateway, config, "clock") or not runs())
    return "clock__now", {"zone": "Europe/Berlin"}


@contextmanager
def process(command: list[str], tag: str, log: Path, **options: Any) -> Iterator[subprocess.Popen[str]]:
    environment = {**os.environ, TAG: tag}
    with log.open("w") as errors:
        child = subprocess.Popen(command, stderr=errors, text=True, env=environment, **options)
        try:
            yield child
        finally:
            stop(child)


def stop(child: subprocess.Popen[str]) -> None:
    child.terminate()
    try:
        child.wait(15)
    except subprocess.TimeoutExpired:
        child.kill()
        child.wait()


@contextmanager
def behind_gateway(gateway: str, way: str, folder: Path) -> Iterator[Place]:
    tag, admin, port = uuid.uuid4().hex, free_port(), free_port()
    config, log = folder / "gateway.toml", folder / "gateway.log"
    config.write_text(configuration(tag, admin))
    if way == "stdio":
        command = [gateway, "stdio", "--config", str(config), "--admin", f"127.0.0.1:{admin}"]
        runs = lambda: status(gateway, config) is not None
        add = lambda: add_clock(gateway, config, runs)
        yield Place(f"stdio:{json.dumps(command)}", "everything__", add, None, tag, log)
        return
    command = [gateway, "serve", "--config", str(config), "--listen", f"127.0.0.1:{port}"]
    with process(command, tag, log, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL) as child:
        if not wait_until(30, lambda: is_ready(gateway, config, "everything")):
            raise SystemExit(f"the gateway is not ready: {log.read_text()}")
        add = lambda: add_clock(gateway, config, lambda: child.poll() is None)

        def count_open() -> Json:
            told = status(gateway, config) or {}
            return {name: told.get(name) for name in ("sessions", "streams") if told.get(name) != 0}

        yield Place(f"http://127.0.0.1:{port}/mcp", "everything__", add, count_open, tag, log)


@contextmanager
def without_gateway(way: str, folder: Path) -> Iterator[Place]:
    tag, log = uuid.uuid4().hex, folder / "server.log"
    if way == "stdio":
        command = [str(PYTHON), str(PEERS / "everything_server.py"), "--stdio"]
        yield Place(f"stdio:{json.dumps(command)}", "", None, None, tag, log)
        return
    command = [str(PYTHON), str(HERE / "counting_server.py")]
    with process(command, tag, log, stdout=subprocess.PIPE) as child:
        port = json.loads(child.stdout.readline())["port"]

        def count_open() -> Json:
            left = fetch(f"http://127.0.0.1:{port}/sessions")
            return {"sessions": left} if left else {}

        yield Place(f"http://127.0.0.1:{port}/mcp", "", None, count_open, tag, log)


def end_all(tag: str) -> None:
    """Ends what a client left behind."""
    for left in tagged(tag):
        with suppress(ProcessLookupError):
            os.kill(left, signal.SIGKILL)
