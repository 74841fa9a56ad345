#!/usr/bin/env python3
"""Servers that list the tools of corpora/tools.json and do nothing else.

    corpus_server.py SERVER            one server, over standard streams
    corpus_server.py --corpus CORPUS   all tools of a corpus as one server, named SERVER__TOOL
    corpus_server.py --port N          every server, each at http://127.0.0.1:N/SERVER, and without annotations at
                                       /bare/SERVER; prints {"port": N}

They speak Legacy MCP. A call of a tool is answered with the tool's name.
"""

from __future__ import annotations

import argparse
import json
import sys
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

CORPORA = Path(__file__).resolve().parent / "corpora"
METHOD_NOT_FOUND = -32601

Json = dict[str, Any]


def load_servers() -> dict[str, list[Json]]:
    """The tools of each server."""
    return {it["name"]: it["tools"] for it in json.loads((CORPORA / "tools.json").read_text())["servers"]}


def servers_of(corpus: str) -> list[str]:
    return list(json.loads((CORPORA / "corpora.json").read_text())[corpus])


def corpus_tools(corpus: str) -> list[Json]:
    """All tools of a corpus, with the server's name before each."""
    servers = load_servers()
    chosen = ((name, tool) for name in servers_of(corpus) for tool in servers[name])
    return [{**tool, "name": f"{name}__{tool['name']}"} for name, tool in chosen]


def answer(request: Json, name: str, tools: list[Json]) -> Json | None:
    """The response to a message; `None` for a notification."""
    if "id" not in request:
        return None
    head = {"jsonrpc": "2.0", "id": request["id"]}
    params = request.get("params") or {}
    match request.get("method"):
        case "initialize":
            opened = {"protocolVersion": params["protocolVersion"], "capabilities": {"tools": {}}}
            return {**head, "result": {**opened, "serverInfo": {"name": name, "version": "1.0.0"}}}
        case "tools/list":
            return {**head, "result": {"tools": tools}}
        case "tools/call":
            return {**head, "result": {"content": [{"type": "text", "text": f"called {params['name']}"}]}}
        case "ping":
            return {**head, "result": {}}
    return {**head, "error": {"code": METHOD_NOT_FOUND, "message": "Method not found"}}


def serve_streams(name: str, tools: list[Json]) -> None:
    for line in sys.stdin:
        if line.strip() and (response := answer(json.loads(line), name, tools)):
            print(json.dumps(response), flush=True)


def serve_http(port: int) -> None:
    servers = load_servers()
    for name, tools in list(servers.items()):
        servers[f"bare/{name}"] = [{key: tool[key] for key in tool if key != "annotations"} for tool in tools]

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self) -> None:
            name = self.path.strip("/")
            body = self.rfile.read(int(self.headers["Content-Length"]))
            response = answer(json.loads(body), name, servers[name]) if name in servers else None
            self.reply(404 if name not in servers else 200 if response else 202, response)

        def do_GET(self) -> None:
            self.reply(405, None)

        do_DELETE = do_GET

        def reply(self, status: int, response: Json | None) -> None:
            body = json.dumps(response).encode() if response else b""
            self.send_response(status)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            pass

    class Server(ThreadingHTTPServer):
        daemon_threads = True
        request_queue_size = 512

        def handle_error(self, *_: object) -> None:
            """A client that has gone needs no answer."""

    with Server(("127.0.0.1", port), Handler) as server:
        print(json.dumps({"port": server.server_port}), flush=True)
        server.serve_forever()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    which = parser.add_mutually_exclusive_group(required=True)
    which.add_argument("server", nargs="?")
    which.add_argument("--corpus")
    which.add_argument("--port", type=int)
    options = parser.parse_args()
    if options.port is not None:
        serve_http(options.port)
    elif options.corpus:
        serve_streams(options.corpus, corpus_tools(options.corpus))
    else:
        serve_streams(options.server, load_servers()[options.server])


if __name__ == "__main__":
    main()
