"""A small server on the Python SDK 1.30, which knows nothing of the Modern era.

    add    two numbers in, structured content out (the everything-server has one too)
    slow   progress at an even pace; notices that it was cancelled
    grow   adds a tool by the given name and says that the list has changed

A cancelled `slow` appends a line to the file that the environment variable
EVERYTHING_CANCEL_LOG names.

    legacy_server.py --stdio
    legacy_server.py --port N    http://127.0.0.1:N/mcp; 0 takes a free port
    legacy_server.py --sse N     http://127.0.0.1:N/sse, the transport of 2024-11-05

Over HTTP one line of JSON on standard output says which port it is, once the
socket listens.
"""

from __future__ import annotations

import argparse
import json
import os
import socket
import sys
from typing import Any

import anyio
import uvicorn
from mcp import types
from mcp.server.lowlevel import NotificationOptions, Server
from mcp.server.models import InitializationOptions
from mcp.server.sse import SseServerTransport
from mcp.server.stdio import stdio_server
from mcp.server.streamable_http_manager import StreamableHTTPSessionManager
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Mount, Route

CANCEL_LOG = "EVERYTHING_CANCEL_LOG"


class LegacyServer(Server[Any, Any]):
    """The SDK's server, but saying to its clients that its tools may change."""

    def create_initialization_options(
        self,
        notification_options: NotificationOptions | None = None,
        experimental_capabilities: dict[str, dict[str, Any]] | None = None,
    ) -> InitializationOptions:
        return super().create_initialization_options(
            notification_options or NotificationOptions(tools_changed=True), experimental_capabilities
        )


server = LegacyServer("trunkline-legacy", version="1.0.0")


def schema(required: tuple[str, ...] = (), **properties: str) -> dict[str, Any]:
    fields = {name: {"type": kind} for name, kind in properties.items()}
    return {"type": "object", "properties": fields, "required": list(required)}


tools: dict[str, types.Tool] = {
    tool.name: tool
    for tool in (
        types.Tool(
            name="add",
            description="Add two numbers.",
            inputSchema=schema(("a", "b"), a="number", b="number"),
            outputSchema=schema(("sum",), sum="number"),
        ),
        types.Tool(
            name="slow",
            description="Report progress `steps` times, `delay_ms` apart; write a line if cancelled.",
            inputSchema=schema(steps="integer", delay_ms="integer", label="string"),
        ),
        types.Tool(
            name="grow",
            description="Add a tool by this name.",
            inputSchema=schema(("name",), name="string"),
        ),
    )
}


@server.list_tools()
async def list_tools() -> list[types.Tool]:
    return list(tools.values())


@server.call_tool()
async def call_tool(name: str, arguments: dict[str, Any]) -> Any:
    if name == "add":
        total = arguments["a"] + arguments["b"]
        return [text(str(total))], {"sum": total}
    if name == "slow":
        return [text(await slow(**arguments))]
    if name == "grow":
        added = arguments["name"]
        tools[added] = types.Tool(name=added, description="Was added while the server ran.", inputSchema=schema())
        await server.request_context.session.send_tool_list_changed()
        return [text(f"{len(tools)} tools")]
    if name in tools:
        return [text(f"{name} was added while the server ran")]
    raise ValueError(f"Unknown tool: {name}")


def text(words: str) -> types.TextContent:
    return types.TextContent(type="text", text=words)


async def slow(steps: int = 10, delay_ms: int = 100, label: str = "") -> str:
    context = server.request_context
    token = context.meta.progressToken if context.meta else None
    try:
        for step in range(1, steps + 1):
            if token is not None:
                await context.session.send_progress_notification(
                    token, step, steps, f"step {step} of {steps}", related_request_id=str(context.request_id)
                )
            # Behind it: a client that reads the last step together with the answer may drop the step.
            await anyio.sleep(delay_ms / 1000)
    except anyio.get_cancelled_exc_class():
        note_cancelled(f"slow {label}".strip())
        raise
    return f"done after {steps} steps"


def note_cancelled(what: str) -> None:
    path = os.environ.get(CANCEL_LOG)
    if path:
        with open(path, "a", encoding="utf-8") as log:
            log.write(f"cancelled {what}\n")


async def serve_http(port: int) -> None:
    """Streamable HTTP."""
    manager = StreamableHTTPSessionManager(server)

    class Endpoint:
        async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
            await manager.handle_request(scope, receive, send)

    await listen(Starlette(routes=[Mount("/", app=Endpoint())], lifespan=lambda _: manager.run()), port)


async def serve_sse(port: int) -> None:
    """HTTP with SSE, the transport of 2024-11-05: `/sse`, and nothing at `/mcp`."""
    transport = SseServerTransport("/messages/")

    async def stream(request: Request) -> Response:
        async with transport.connect_sse(request.scope, request.receive, request._send) as (read, write):
            await server.run(read, write, server.create_initialization_options())
        return Response()

    routes = [Route("/sse", endpoint=stream, methods=["GET"]), Mount("/messages/", app=transport.handle_post_message)]
    await listen(Starlette(routes=routes), port)


async def listen(app: Starlette, port: int) -> None:
    listener = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    listener.bind(("127.0.0.1", port))
    listener.listen(128)
    print(json.dumps({"port": listener.getsockname()[1]}), flush=True)
    config = uvicorn.Config(app, log_level="warning", timeout_graceful_shutdown=1)
    await uvicorn.Server(config).serve(sockets=[listener])


async def serve_stdio() -> None:
    async with stdio_server() as (read, write):
        await server.run(read, write, server.create_initialization_options())


def main() -> None:
    parser = argparse.ArgumentParser(description="A small Legacy server.")
    way = parser.add_mutually_exclusive_group(required=True)
    way.add_argument("--port", type=int, help="serve HTTP on this port of 127.0.0.1; 0 takes a free one")
    way.add_argument("--sse", type=int, metavar="PORT", help="the same on the transport of 2024-11-05, at /sse")
    way.add_argument("--stdio", action="store_true", help="serve standard input and output")
    options = parser.parse_args()
    try:
        if options.stdio:
            anyio.run(serve_stdio)
        elif options.sse is not None:
            anyio.run(serve_sse, options.sse)
        else:
            anyio.run(serve_http, options.port)
    except KeyboardInterrupt:
        sys.exit(130)


if __name__ == "__main__":
    main()
