"""A client on the Python SDK 2.3, which speaks both eras."""

from __future__ import annotations

import os
import warnings
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager

import anyio
import httpx2
import mcp_types as types
from driver import GetStream, Json, OnProgress, Options, command_in, drive, wire
from mcp import Client
from mcp.client.stdio import StdioServerParameters, stdio_client
from mcp.client.streamable_http import streamable_http_client
from mcp.client.subscriptions import Subscription
from mcp_types.version import MODERN_PROTOCOL_VERSIONS

warnings.simplefilter("ignore")  # ping is deprecated, and we mean to send it


class NotModern(Exception):
    code = None


class Peer:
    def __init__(self, client: Client, info: Json) -> None:
        self.client = client
        self.info = info

    async def list_tools(self) -> list[Json]:
        tools: list[Json] = []
        cursor: str | None = None
        while True:
            page = await self.client.list_tools(cursor=cursor, cache_mode="refresh")
            tools += [wire(tool) for tool in page.tools]
            cursor = page.next_cursor
            if cursor is None:
                return tools

    async def call(self, name: str, arguments: Json, on_progress: OnProgress | None) -> Json:
        return wire(await self.client.call_tool(name, arguments, progress_callback=on_progress))

    async def cancel(self, scope: anyio.CancelScope) -> None:
        """Leave the call: the SDK tells the server in the way of its era."""
        scope.cancel()

    async def ping(self) -> Json:
        return wire(await self.client.send_ping())


async def count(subscription: Subscription, options: Options) -> None:
    async for _ in subscription:
        options.list_changed.arrived()


@asynccontextmanager
async def connect(options: Options) -> AsyncIterator[Peer]:
    async def on_message(message: object) -> None:
        if isinstance(message, types.ToolListChangedNotification) and not modern:
            options.list_changed.arrived()

    modern = False
    async with AsyncExitStack() as stack:
        get_stream = GetStream()
        if command := command_in(options.url):
            server = StdioServerParameters(command=command[0], args=command[1:], env=dict(os.environ))
            transport = stdio_client(server)
        else:
            timeout = httpx2.Timeout(30, read=300)
            hooks = {"response": [get_stream.hook]}
            http = await stack.enter_async_context(
                httpx2.AsyncClient(headers=options.headers, timeout=timeout, event_hooks=hooks)
            )
            transport = streamable_http_client(options.url, http_client=http)
        client = await stack.enter_async_context(
            Client(
                transport,
                # A pinned version would not ask the server who it is; 'auto' does.
                mode="legacy" if options.era == "legacy" else "auto",
                message_handler=on_message,
                client_info=types.Implementation(name="trunkline-py-v2", version="1.0.0"),
            )
        )
        modern = client.protocol_version in MODERN_PROTOCOL_VERSIONS
        if options.era == "modern" and not modern:
            raise NotModern(f"the server speaks {client.protocol_version}")
        if modern and options.listens:
            tasks = await stack.enter_async_context(anyio.create_task_group())
            stack.callback(tasks.cancel_scope.cancel)
            subscription = await stack.enter_async_context(client.listen(tools_list_changed=True))
            tasks.start_soon(count, subscription, options)
        elif options.listens and not command:
            await get_stream.opened()
        yield Peer(
            client,
            {
                "era": "modern" if modern else "legacy",
                "protocolVersion": client.protocol_version,
                "sessionId": None,
                "serverInfo": wire(client.server_info) if client.server_info else None,
                "capabilities": wire(client.server_capabilities),
                "instructions": client.instructions,
            },
        )


if __name__ == "__main__":
    drive(("legacy", "modern", "auto"), connect)
