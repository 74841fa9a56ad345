"""A client on the Python SDK 1.30, which speaks Legacy only."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import anyio
import httpx
from driver import GetStream, Json, OnProgress, Options, command_in, drive, wire
from mcp import ClientSession, StdioServerParameters, stdio_client, types
from mcp.client.streamable_http import streamable_http_client


class Peer:
    def __init__(self, session: ClientSession, info: Json) -> None:
        self.session = session
        self.info = info
        self._in_flight: int | None = None

    async def list_tools(self) -> list[Json]:
        tools: list[Json] = []
        cursor: str | None = None
        while True:
            page = await self.session.list_tools(params=types.PaginatedRequestParams(cursor=cursor))
            tools += [wire(tool) for tool in page.tools]
            cursor = page.nextCursor
            if cursor is None:
                return tools

    async def call(self, name: str, arguments: Json, on_progress: OnProgress | None) -> Json:
        # The SDK numbers its requests itself and tells nobody; the next number is this call's.
        self._in_flight = self.session._request_id
        return wire(await self.session.call_tool(name, arguments, progress_callback=on_progress))

    async def cancel(self, scope: anyio.CancelScope) -> None:
        """Say so and wait for the answer: leaving the call would tell the server nothing."""
        params = types.CancelledNotificationParams(requestId=self._in_flight, reason="cancelled by the driver")
        await self.session.send_notification(
            types.ClientNotification(types.CancelledNotification(method="notifications/cancelled", params=params))
        )
        # The specification says that there need be no answer, so do not wait for ever.
        scope.deadline = anyio.current_time() + 1

    async def ping(self) -> Json:
        return wire(await self.session.send_ping())


@asynccontextmanager
async def transport(options: Options, get_stream: GetStream) -> AsyncIterator[tuple[Any, Any, Callable[[], str | None]]]:
    """What to read from, what to write to, and what tells the session's id."""
    if command := command_in(options.url):
        server = StdioServerParameters(command=command[0], args=command[1:], env=dict(os.environ))
        async with stdio_client(server) as (read, write):
            yield read, write, lambda: None
        return
    hooks = {"response": [get_stream.hook]}
    timeout = httpx.Timeout(30, read=300)
    async with (
        httpx.AsyncClient(headers=options.headers, timeout=timeout, event_hooks=hooks) as http,
        streamable_http_client(options.url, http_client=http) as streams,
    ):
        yield streams


@asynccontextmanager
async def connect(options: Options) -> AsyncIterator[Peer]:
    async def on_message(message: object) -> None:
        if isinstance(message, types.ServerNotification):
            if isinstance(message.root, types.ToolListChangedNotification):
                options.list_changed.arrived()

    get_stream = GetStream()
    async with (
        transport(options, get_stream) as (read, write, session_id),
        ClientSession(
            read,
            write,
            message_handler=on_message,
            client_info=types.Implementation(name="trunkline-py-v1", version="1.0.0"),
        ) as session,
    ):
        answer = await session.initialize()
        if options.listens and not command_in(options.url):
            await get_stream.opened()
        yield Peer(
            session,
            {
                "era": "legacy",
                "protocolVersion": answer.protocolVersion,
                "sessionId": session_id(),
                "serverInfo": wire(answer.serverInfo),
                "capabilities": wire(answer.capabilities),
                "instructions": answer.instructions,
            },
        )


if __name__ == "__main__":
    drive(("legacy", "auto"), connect)
