#!/usr/bin/env python3
"""What the SDKs' clients make of an error, by the HTTP status that it comes with.

    statuses.py                 prints the table
    statuses.py --write         also writes it into docs/errors.md
    statuses.py --only PATTERN  clients whose name fits, such as "python*"

Each client connects to a small server of this file's own, which is no gateway. One call
is answered with a JSON-RPC error and a status, the call after it with a result. The
clients are those of tests/peers, and mcp-remote under the TypeScript SDK 1.x, as a
desktop host uses it. `setup.sh` installs what they need.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import threading
import uuid
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
PEERS = HERE.parent / "peers"
PAGE = HERE.parents[1] / "docs/errors.md"
MARK = "<!-- Below: written by tests/frameworks/statuses.py --write. -->\n"
STATUSES = (200, 400, 404, 429, 500, 502, 503, 504)
ERROR = {"code": 42900, "message": "over the limit server:NAME: try again in 1.0 s", "data": {"retryAfterMs": 1000}}
MODERN, LEGACY = "2026-07-28", "2025-11-25"

Json = dict[str, Any]


@dataclass
class Client:
    """A driver of tests/peers in one era; `bridge` stands between it and the URL."""

    name: str
    era: str
    command: list[str]
    bridge: list[str] = field(default_factory=list)


def clients() -> list[Client]:
    python, node = str(PEERS / ".venv-v{}/bin/python"), str(PEERS / "clients/ts_v{}.mjs")
    remote = HERE / "node_modules/mcp-remote/dist/proxy.js"
    drivers = {
        "python-1": [python.format(1), str(PEERS / "clients/py_v1.py")],
        "python-2": [python.format(2), str(PEERS / "clients/py_v2.py")],
        "typescript-1": ["node", node.format(1)],
        "typescript-2": ["node", node.format(2)],
    }
    found = [Client(name, "legacy", command) for name, command in drivers.items()]
    found.append(Client("mcp-remote", "legacy", drivers["typescript-1"], ["node", str(remote)]))
    found += [Client(name, "modern", drivers[name]) for name in ("python-2", "typescript-2")]
    return found


class Handler(BaseHTTPRequestHandler):
    """One server for both eras: what it saw is in `server.seen`."""

    protocol_version = "HTTP/1.1"
    server: "Server"

    def log_message(self, *_: object) -> None:
        pass

    def do_GET(self) -> None:
        self.reply(405)

    def do_DELETE(self) -> None:
        self.reply(200)

    def do_POST(self) -> None:
        message = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        self.server.seen.append(message.get("method", "a response"))
        if "id" not in message:
            return self.reply(202)
        name = message.get("params", {}).get("name")
        if message["method"] == "tools/call" and name == "limited":
            self.server.seen[-1] = "limited"
            return self.reply(self.server.status, {"error": ERROR}, message["id"], {"Retry-After": "1"})
        result = self.result(message["method"], message.get("params", {}))
        headers = {"Mcp-Session-Id": uuid.uuid4().hex} if message["method"] == "initialize" else {}
        if result is None:
            return self.reply(404 if self.server.era == "modern" else 200, {"error": NOT_FOUND}, message["id"], headers)
        self.reply(200, {"result": result}, message["id"], headers)

    def result(self, method: str, params: Json) -> Json | None:
        about = {"name": "statuses", "version": "1"}
        if self.server.era == "legacy":
            complete: Json = {}
            opening = {"protocolVersion": params.get("protocolVersion", LEGACY), "serverInfo": about}
        else:
            complete = {"resultType": "complete", "_meta": {"io.modelcontextprotocol/serverInfo": about}}
            opening = {"supportedVersions": [MODERN], "ttlMs": 0, "cacheScope": "public", **complete}
        hint = {"ttlMs": 0, "cacheScope": "public"} if self.server.era == "modern" else {}
        match method:
            case "initialize" if self.server.era == "legacy":
                return {**opening, "capabilities": {"tools": {}}}
            case "server/discover" if self.server.era == "modern":
                return {**opening, "capabilities": {"tools": {}}}
            case "tools/list":
                schema = {"type": "object"}
                return {"tools": [{"name": name, "inputSchema": schema} for name in ("limited", "fine")], **hint, **complete}
            case "tools/call":
                return {"content": [{"type": "text", "text": "fine"}], **complete}
            case "ping":
                return complete
        return None

    def reply(self, status: int, body: Json | None = None, id: Any = None, headers: Json | None = None) -> None:
        raw = b"" if body is None else json.dumps({"jsonrpc": "2.0", "id": id, **body}).encode()
        self.send_response(status)
        for name, value in {**(headers or {}), "Content-Length": str(len(raw))}.items():
            self.send_header(name, value)
        if body is not None:
            self.send_header("Content-Type", "application/json")
        self.end_headers()
        self.wfile.write(raw)


NOT_FOUND = {"code": -32601, "message": "method not found"}


class Server(ThreadingHTTPServer):
    daemon_threads = True

    def __init__(self, era: str, status: int) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.era, self.status = era, status
        self.seen: list[str] = []

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}/mcp"


@contextmanager
def serving(era: str, status: int) -> Iterator[Server]:
    server = Server(era, status)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield server
    finally:
        server.shutdown()
        server.server_close()


def try_status(client: Client, status: int) -> Json:
    """What the client's program saw, and what the server did."""
    steps = [{"op": "list"}, *({"op": "call", "name": name} for name in ("limited", "fine", "limited", "fine"))]
    with serving(client.era, status) as server:
        target = f"stdio:{json.dumps([*client.bridge, server.url])}" if client.bridge else server.url
        command = [*client.command, target, "--era", client.era]
        done = subprocess.run(command, input=json.dumps(steps), capture_output=True, text=True, timeout=200)
        lines = [json.loads(line) for line in done.stdout.splitlines()]
        seen = list(server.seen)
    if len(lines) != 6 or not lines[1]["ok"]:
        raise SystemExit(f"{client.name} {client.era} {status} did not get as far as the call:\n{done.stdout}{done.stderr}")
    return {
        "client": client.name,
        "era": client.era,
        "status": status,
        "error": lines[2].get("error"),
        "calls_after": [line["ok"] for line in (lines[3], lines[5])],
        "attempts": seen.count("limited"),
        # Only those after the error: mcp-remote tries the URL before it connects.
        "reopened": any(method in ("initialize", "server/discover") for method in seen[seen.index("limited") :]),
    }


def verdict(cell: Json) -> str:
    """The words of the table."""
    error = cell["error"] or {}
    if cell["calls_after"] != [True, True]:
        return "**connection ends**"
    if (error.get("code"), error.get("data")) == (ERROR["code"], ERROR["data"]):
        words = "error"
    else:
        words = "text" if ERROR["message"] in error.get("message", "") else f"\"{error.get('message')}\""
    words += ", new session" if cell["reopened"] else ""
    return words + (", sent again" if cell["attempts"] > 2 else "")


def table(cells: list[Json]) -> str:
    rows: dict[tuple[str, str], dict[int, str]] = {}
    for cell in cells:
        rows.setdefault((cell["client"], cell["era"]), {})[cell["status"]] = verdict(cell)
    head = ["client", "era", *(str(status) for status in STATUSES)]
    lines = [head, ["---"] * len(head)]
    lines += [[NAMES[name], era.capitalize(), *(row[status] for status in STATUSES)] for (name, era), row in rows.items()]
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)


NAMES = {
    "python-1": "Python SDK 1.x",
    "python-2": "Python SDK 2.x",
    "typescript-1": "TypeScript SDK 1.x",
    "typescript-2": "TypeScript SDK 2.x",
    "mcp-remote": "mcp-remote",
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--only", default="*", metavar="PATTERN")
    parser.add_argument("--write", action="store_true")
    options = parser.parse_args()
    chosen = [client for client in clients() if fnmatchcase(client.name, options.only)]
    with ThreadPoolExecutor(2) as pool:
        jobs = [pool.submit(try_status, client, status) for client in chosen for status in STATUSES]
        cells = [job.result() for job in jobs]
    for cell in cells:
        print(json.dumps(cell), file=sys.stderr)
    print(table(cells), end="")
    if options.write:
        own = PAGE.read_text(encoding="utf-8").split(MARK)[0]
        PAGE.write_text(own + MARK + SECTION + table(cells), encoding="utf-8")


SECTION = """
## What clients make of the status

The same JSON-RPC error (code 42900, `data.retryAfterMs`, `Retry-After: 1`) in answer to one call, with each
status, and what the program that uses the client saw of it:

- *error*: the JSON-RPC error, with its code and `data`.
- *text*: an error of the client's own, with the JSON-RPC error in its text. The connection remains in use.
- *connection ends*: this call and all later ones fail, until the program connects anew.

So 200 alone gives every Legacy client the error, and the gateway sends it in a session. No status ends the
connection of a Modern client, which keeps those of the table above: the Python SDK has the error, the TypeScript SDK
an `SdkHttpError` with the status and the text.

"""

if __name__ == "__main__":
    main()
