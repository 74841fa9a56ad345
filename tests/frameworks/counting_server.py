"""The everything-server of tests/peers over HTTP, which also counts its Legacy sessions.

Prints {"port": N} once it listens. `GET /sessions` answers with the number of sessions that
were opened and not deleted.
"""

import json
import socket
import sys
from pathlib import Path

import anyio
import uvicorn

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "peers"))

import everything_server

ID = b"mcp-session-id"


class Counting:
    """An ASGI application in front of the server's own."""

    def __init__(self, app):
        self.app = app
        self.opened, self.deleted = set(), set()

    async def __call__(self, scope, receive, send):
        if scope["type"] != "http":
            return await self.app(scope, receive, send)
        if scope["path"] == "/sessions":
            body = json.dumps(len(self.opened - self.deleted)).encode()
            await send({"type": "http.response.start", "status": 200, "headers": []})
            return await send({"type": "http.response.body", "body": body})
        if scope["method"] == "DELETE":
            self.deleted.update(value for name, value in scope["headers"] if name == ID)

        async def watch(message):
            if scope["method"] == "POST" and message["type"] == "http.response.start":
                self.opened.update(value for name, value in message["headers"] if name.lower() == ID)
            await send(message)

        await self.app(scope, receive, watch)


async def main():
    app = everything_server.build().streamable_http_app()
    listener = socket.socket()
    listener.bind(("127.0.0.1", 0))
    listener.listen(128)
    print(json.dumps({"port": listener.getsockname()[1]}), flush=True)
    config = uvicorn.Config(Counting(app), log_level="warning", timeout_graceful_shutdown=1)
    await uvicorn.Server(config).serve(sockets=[listener])


anyio.run(main)
