"""A client on the Python SDK 1.30, which speaks Legacy only."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import anyio
import httpx
from driver import GetStream, Json, OnProgress, Options, command_in, drive, pages, sse_in, wire
from mcp import ClientSession, StdioServerParameters, stdio_client, types
from mcp.client.sse import sse_client
from mcp.client.streamable_http import streamable_http_client
from pydantic import AnyUrl


Page = tuple[list[Any], str | None]


def at(cursor: str | None) -> types.PaginatedRequestParams:
    return types.PaginatedRequestParams(cursor=cursor)


class Peer:
    def __init__(self, session: ClientSession, info: Json) -> None:
        self.session = session
        self.info = info
        self._in_flight: int | None = None

    async def list_tools(self) -> Json:
        async def page(cursor: str | None) -> Page:
            got = await self.session.list_tools(params=at(cursor))
            return got.tools, got.nextCursor

        return await pages(page)

    async def list_prompts(self) -> Json:
        async def page(cursor: str | None) -> Page:
            got = await self.session.list_prompts(params=at(cursor))
            return got.prompts, got.nextCursor

        return await pages(page)

    async def list_resources(self) -> Json:
        async def page(cursor: str | None) -> Page:
            got = await self.session.list_resources(params=at(cursor))
            return got.resources, got.nextCursor

        return await pages(page)

    async def list_templates(self) -> Json:
        async def page(cursor: str | None) -> Page:
            got = await self.session.list_resource_templates(params=at(cursor))
            return got.resourceTemplates, got.nextCursor

        return await pages(page)

    async def get_prompt(self, name: str, arguments: Json) -> Json:
        return wire(await self.session.get_prompt(name, arguments))

    async def read(self, uri: str) -> Json:
        return wire(await self.session.read_resource(AnyUrl(uri)))

    async def complete(self, ref: Json, argument: Json) -> Json:
        kind = types.PromptReference if ref["type"] == "ref/prompt" else types.ResourceTemplateReference
        asked = {"name": argument["name"], "value": argument["value"]}
        return wire(await self.session.complete(kind.model_validate(ref), asked))

    async def subscribe(self, uri: str) -> None:
        await self.session.subscribe_resource(AnyUrl(uri))

    async def log_from(self, level: str) -> None:
        await self.session.set_logging_level(level)

    async def call(self, name: str, arguments: Json, on_progress: OnProgress | None) -> Json:
        # The SDK numbers its requests itself and tells nobody; the next number is this call's.
        self._in_flight = self.session._request_id
        return wire(await self.session.call_tool(name, arguments, progress_callback=on_progress))

    async def call_task(self, name: str, arguments: Json) -> Json:
        tasks = self.session.experimental
        begun = (await tasks.call_tool_as_task(name, arguments, ttl=60_000)).task
        async for task in tasks.poll_task(begun.taskId):
            if task.status == "input_required":
                break
        result = await tasks.get_task_result(begun.taskId, types.CallToolResult)
        ended = await tasks.get_task(begun.taskId)
        return {"begun": wire(begun), "ended": {"status": ended.status, "result": wire(result)}}

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
    if url := sse_in(options.url):
        async with sse_client(url, headers=options.headers) as (read, write):
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
    heard, answers = options.heard, options.answers

    async def on_message(message: object) -> None:
        match message.root if isinstance(message, types.ServerNotification) else None:
            case types.ToolListChangedNotification():
                heard.arrived("tools")
            case types.PromptListChangedNotification():
                heard.arrived("prompts")
            case types.ResourceListChangedNotification():
                heard.arrived("resources")
            case types.ResourceUpdatedNotification(params=params):
                heard.arrived(f"updated {params.uri}")
            case types.LoggingMessageNotification(params=params):
                heard.arrived("log", wire(params))

    async def on_elicitation(_: object, params: types.ElicitRequestParams) -> types.ElicitResult:
        return types.ElicitResult.model_validate(answers.elicitation(wire(params)))

    async def on_sampling(_: object, params: types.CreateMessageRequestParams) -> types.CreateMessageResult:
        return types.CreateMessageResult.model_validate(answers.sampling(wire(params)))

    async def on_roots(_: object) -> types.ListRootsResult:
        return types.ListRootsResult.model_validate(answers.roots())

    get_stream = GetStream()
    async with (
        transport(options, get_stream) as (read, write, session_id),
        ClientSession(
            read,
            write,
            message_handler=on_message,
            elicitation_callback=on_elicitation,
            sampling_callback=on_sampling,
            list_roots_callback=on_roots,
            client_info=types.Implementation(name="trunkline-py-v1", version="1.0.0"),
        ) as session,
    ):
        answer = await session.initialize()
        if options.listens and not command_in(options.url) and not sse_in(options.url):
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
