"""A client on the Python SDK 2.3, which speaks both eras."""

from __future__ import annotations

import os
import warnings
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any

import anyio
import httpx2
import mcp_types as types
from driver import GetStream, Json, OnProgress, Options, command_in, drive, pages, sse_in, wire
from mcp import Client
from mcp.client.sse import sse_client
from mcp.client.stdio import StdioServerParameters, stdio_client
from mcp.client.streamable_http import streamable_http_client
from mcp.client.subscriptions import Subscription
from mcp.shared.subscriptions import PromptsListChanged, ResourcesListChanged, ResourceUpdated, ToolsListChanged
from mcp_types import LOG_LEVEL_META_KEY
from mcp_types.version import MODERN_PROTOCOL_VERSIONS

warnings.simplefilter("ignore")  # ping is deprecated, and we mean to send it


Page = tuple[list[Any], str | None]
Listen = Callable[..., Awaitable[None]]


class NotModern(Exception):
    code = None


class Peer:
    def __init__(self, client: Client, info: Json, listen: Listen | None) -> None:
        self.client = client
        self.info = info
        # The Modern era's way to subscribe.
        self.listen = listen
        self._meta: Json | None = None

    async def list_tools(self) -> Json:
        async def page(cursor: str | None) -> Page:
            got = await self.client.list_tools(cursor=cursor, cache_mode="refresh")
            return got.tools, got.next_cursor

        return await pages(page)

    async def list_prompts(self) -> Json:
        async def page(cursor: str | None) -> Page:
            got = await self.client.list_prompts(cursor=cursor, cache_mode="refresh")
            return got.prompts, got.next_cursor

        return await pages(page)

    async def list_resources(self) -> Json:
        async def page(cursor: str | None) -> Page:
            got = await self.client.list_resources(cursor=cursor, cache_mode="refresh")
            return got.resources, got.next_cursor

        return await pages(page)

    async def list_templates(self) -> Json:
        async def page(cursor: str | None) -> Page:
            got = await self.client.list_resource_templates(cursor=cursor, cache_mode="refresh")
            return got.resource_templates, got.next_cursor

        return await pages(page)

    async def get_prompt(self, name: str, arguments: Json) -> Json:
        return wire(await self.client.get_prompt(name, arguments))

    async def read(self, uri: str) -> Json:
        return wire(await self.client.read_resource(uri, cache_mode="refresh"))

    async def complete(self, ref: Json, argument: Json) -> Json:
        kind = types.PromptReference if ref["type"] == "ref/prompt" else types.ResourceTemplateReference
        return wire(await self.client.complete(kind.model_validate(ref), argument))

    async def subscribe(self, uri: str) -> None:
        if self.listen:
            await self.listen(resource_subscriptions=[uri])
        else:
            await self.client.subscribe_resource(uri)

    async def log_from(self, level: str) -> None:
        if self.listen:
            self._meta = {LOG_LEVEL_META_KEY: level}
        else:
            await self.client.set_logging_level(level)

    async def call(self, name: str, arguments: Json, on_progress: OnProgress | None) -> Json:
        called = self.client.call_tool(name, arguments, progress_callback=on_progress, meta=self._meta)
        return wire(await called)

    async def cancel(self, scope: anyio.CancelScope) -> None:
        """Leave the call: the SDK tells the server in the way of its era."""
        scope.cancel()

    async def ping(self) -> Json:
        return wire(await self.client.send_ping())


async def note(subscription: Subscription, options: Options) -> None:
    async for event in subscription:
        match event:
            case ToolsListChanged():
                options.heard.arrived("tools")
            case PromptsListChanged():
                options.heard.arrived("prompts")
            case ResourcesListChanged():
                options.heard.arrived("resources")
            case ResourceUpdated(uri=uri):
                options.heard.arrived(f"updated {uri}")


@asynccontextmanager
async def connect(options: Options) -> AsyncIterator[Peer]:
    heard, answers = options.heard, options.answers
    modern = False

    async def on_message(message: object) -> None:
        match message:
            case types.LoggingMessageNotification(params=params):
                heard.arrived("log", wire(params))
            case _ if modern:  # what the subscriptions tell
                pass
            case types.ToolListChangedNotification():
                heard.arrived("tools")
            case types.PromptListChangedNotification():
                heard.arrived("prompts")
            case types.ResourceListChangedNotification():
                heard.arrived("resources")
            case types.ResourceUpdatedNotification(params=params):
                heard.arrived(f"updated {params.uri}")

    async def on_elicitation(_: object, params: types.ElicitRequestParams) -> types.ElicitResult:
        return types.ElicitResult.model_validate(answers.elicitation(wire(params)))

    async def on_sampling(_: object, params: types.CreateMessageRequestParams) -> types.CreateMessageResult:
        return types.CreateMessageResult.model_validate(answers.sampling(wire(params)))

    async def on_roots(_: object) -> types.ListRootsResult:
        return types.ListRootsResult.model_validate(answers.roots())

    async with AsyncExitStack() as stack:
        get_stream = GetStream()
        if command := command_in(options.url):
            server = StdioServerParameters(command=command[0], args=command[1:], env=dict(os.environ))
            transport = stdio_client(server)
        elif sse := sse_in(options.url):
            transport = sse_client(sse, headers=options.headers)
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
                elicitation_callback=on_elicitation,
                sampling_callback=on_sampling,
                list_roots_callback=on_roots,
                client_info=types.Implementation(name="trunkline-py-v2", version="1.0.0"),
            )
        )
        modern = client.protocol_version in MODERN_PROTOCOL_VERSIONS
        if options.era == "modern" and not modern:
            raise NotModern(f"the server speaks {client.protocol_version}")
        tasks = await stack.enter_async_context(anyio.create_task_group())
        stack.callback(tasks.cancel_scope.cancel)

        async def listen(**what: Any) -> None:
            subscription = await stack.enter_async_context(client.listen(**what))
            tasks.start_soon(note, subscription, options)

        if modern and options.listens:
            await listen(tools_list_changed=True, prompts_list_changed=True, resources_list_changed=True)
        elif options.listens and not command and not sse_in(options.url):
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
            listen if modern else None,
        )


if __name__ == "__main__":
    drive(("legacy", "modern", "auto"), connect)
