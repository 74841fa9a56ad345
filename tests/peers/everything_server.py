"""A server that offers one of everything, on the official Python SDK 2.x.

What it offers stands in everything.json, which the everything-servers on the
other SDKs read too: all that the official conformance suite's server scenarios
ask for, under the names they ask for it, and what Trunkline's own tests need.
Most tools are told there in full; those that need code are here:

    add                      two numbers in, structured content out
    inspect_request          what reached the server: version, `_meta`, headers
    slow                     progress at an even pace; notices that it was cancelled
    test_reconnection        leaves the call's stream, answers on the next
    test_trigger_*           change what is offered, and say so

A cancelled `slow` appends a line to the file that the environment variable
EVERYTHING_CANCEL_LOG names.

    everything_server.py --port N    http://127.0.0.1:N/mcp; 0 takes a free port
    everything_server.py --stdio

`--era legacy` or `--era modern` leaves the other era out; `--page-size N` gives
the lists in pages. Over HTTP one line of JSON on standard output says which port
it is, once the socket listens.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import socket
import sys
from collections import deque
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import anyio
import mcp_types as types
import uvicorn
from mcp.server import runner
from mcp.server._streamable_http_modern import handle_modern_request
from mcp.server.caching import CacheHint
from mcp.server.connection import Connection
from mcp.server.context import ServerRequestContext
from mcp.server.lowlevel import NotificationOptions, Server
from mcp.server.models import InitializationOptions
from mcp.server.request_state import RequestStateBoundary, RequestStateSecurity
from mcp.server.stdio import stdio_server
from mcp.server.streamable_http import EventCallback, EventMessage, EventStore
from mcp.server.subscriptions import (
    InMemorySubscriptionBus,
    ListenHandler,
    PromptsListChanged,
    ResourcesListChanged,
    ResourceUpdated,
    ToolsListChanged,
)
from mcp.shared.exceptions import MCPError
from mcp.shared.message import ServerMessageMetadata
from mcp_types.version import HANDSHAKE_PROTOCOL_VERSIONS, MODERN_PROTOCOL_VERSIONS
from starlette.types import Receive, Scope, Send

CANCEL_LOG = "EVERYTHING_CANCEL_LOG"
LEVELS = ("debug", "info", "notice", "warning", "error", "critical", "alert", "emergency")

Json = dict[str, Any]
Context = ServerRequestContext[Any, Any]

EVERYTHING: Json = json.loads(Path(__file__).with_name("everything.json").read_text(encoding="utf-8"))
ABOUT: Json = EVERYTHING["server"]
NAME: str = ABOUT["name"]

tools: dict[str, Json] = {tool["listed"]["name"]: tool for tool in EVERYTHING["tools"]}
prompts: dict[str, Json] = {prompt["listed"]["name"]: prompt for prompt in EVERYTHING["prompts"]}
resources: dict[str, Json] = {resource["listed"]["uri"]: resource for resource in EVERYTHING["resources"]}
templates: list[Json] = EVERYTHING["resourceTemplates"]


def is_modern(ctx: Context) -> bool:
    return ctx.protocol_version in MODERN_PROTOCOL_VERSIONS


def connection_of(ctx: Context) -> Connection:
    return ctx.session._connection


def said(*words: str) -> types.CallToolResult:
    return types.CallToolResult(content=[types.TextContent(type="text", text=each) for each in words])


def fill(value: Any, scope: Json) -> Any:
    """`value` with each `{a.b}` in its strings replaced by what `scope` has there."""
    if isinstance(value, dict):
        return {key: fill(each, scope) for key, each in value.items()}
    if isinstance(value, list):
        return [fill(each, scope) for each in value]
    if not isinstance(value, str):
        return value

    def found(match: re.Match[str]) -> str:
        at: Any = scope
        for name in match[1].split("."):
            at = at.get(name) if isinstance(at, dict) else None
        return at if isinstance(at, str) else json.dumps(at)

    return re.sub(r"\{([A-Za-z_][A-Za-z0-9_.]*)\}", found, value)


# --- Who hears of changes --------------------------------------------------------


class Changes:
    """Tells every listener, Modern (subscriptions/listen) and Legacy (its session)."""

    def __init__(self) -> None:
        self.bus = InMemorySubscriptionBus()
        self._connections: deque[Connection] = deque(maxlen=256)

    def joined(self, connection: Connection) -> None:
        self._connections.append(connection)

    async def tools(self) -> None:
        await self.bus.publish(ToolsListChanged())
        await self._tell("notifications/tools/list_changed", None)

    async def prompts(self) -> None:
        await self.bus.publish(PromptsListChanged())
        await self._tell("notifications/prompts/list_changed", None)

    async def resources(self) -> None:
        await self.bus.publish(ResourcesListChanged())
        await self._tell("notifications/resources/list_changed", None)

    async def resource(self, uri: str) -> None:
        await self.bus.publish(ResourceUpdated(uri=uri))
        await self._tell("notifications/resources/updated", uri)

    async def _tell(self, method: str, uri: str | None) -> None:
        for connection in list(self._connections):
            if uri is not None and uri not in connection.state.get("subscribed", ()):
                continue
            try:
                await connection.outbound.notify(method, {"uri": uri} if uri else {})
            except (anyio.BrokenResourceError, anyio.ClosedResourceError):
                self._connections.remove(connection)


changes = Changes()


# --- What is told in everything.json ----------------------------------------------

ASKING: dict[str, tuple[type[Any], type[Any]]] = {
    "elicitation/create": (types.ElicitRequest, types.ElicitResult),
    "sampling/createMessage": (types.CreateMessageRequest, types.CreateMessageResult),
    "roots/list": (types.ListRootsRequest, types.ListRootsResult),
}
DECLARED = {"elicitation/create": "elicitation", "sampling/createMessage": "sampling", "roots/list": "roots"}


def request_of(question: Json, modern: bool = False) -> Any:
    if modern and "elicitationId" in question["params"]:
        # The Modern era has no use for it.
        question = {**question, "params": {k: v for k, v in question["params"].items() if k != "elicitationId"}}
    return ASKING[question["method"]][0].model_validate(question)


async def ask_now(ctx: Context, question: Json) -> Json:
    """A Legacy client's answer, on the stream of the call that asks."""
    on_call = ServerMessageMetadata(related_request_id=ctx.request_id)
    expects = ASKING[question["method"]][1]
    answer = await ctx.session.send_request(request_of(question), expects, metadata=on_call)
    return answer.model_dump(by_alias=True, exclude_none=True, mode="json")


async def ask(ctx: Context, params: Any, does: Json, scope: Json) -> Json | types.InputRequiredResult:
    """What the client answers to all rounds of questions; or, in the Modern era, the result that asks for it."""
    rounds: list[Json] = fill(does["ask"], scope)
    declared = ctx.session.client_capabilities
    offered = declared.model_dump(by_alias=True, exclude_none=True) if declared else {}
    if does.get("declared_only"):
        rounds = [{key: q for key, q in each.items() if DECLARED[q["method"]] in offered} for each in rounds]
    if not is_modern(ctx):
        answers: Json = {}

        async def answer(key: str, question: Json) -> None:
            answers[key] = await ask_now(ctx, question)

        for questions in rounds:
            async with anyio.create_task_group() as group:
                for key, question in questions.items():
                    group.start_soon(answer, key, question)
        return answers
    known: Json = json.loads(params.request_state) if params.request_state else {}
    if params.request_state or not does.get("state"):
        for key, given in (params.input_responses or {}).items():
            known[key] = given.model_dump(by_alias=True, exclude_none=True, mode="json")
    for questions in rounds:
        missing = {key: request_of(question, True) for key, question in questions.items() if key not in known}
        if missing:
            state = json.dumps(known) if does.get("state") else None
            return types.InputRequiredResult(input_requests=missing, request_state=state)
    return known


async def perform(ctx: Context, params: Any, does: Json) -> Json | types.InputRequiredResult:
    """What the templates of `does` are filled from, after all else that it tells to do."""
    scope: Json = dict(params.arguments or {})
    capabilities = ctx.session.client_capabilities
    for needed, how in does.get("needs", {}).items():
        if capabilities is None or getattr(capabilities, needed) is None:
            raise MCPError(
                code=types.MISSING_REQUIRED_CLIENT_CAPABILITY,
                message=f"this needs a client with {needed}",
                data={"requiredCapabilities": {needed: how}},
            )
    for line in does.get("log", ()):
        if is_modern(ctx) or LEVELS.index("info") >= connection_of(ctx).state.get("level", 0):
            await ctx.session.send_log_message("info", line, logger=NAME, related_request_id=ctx.request_id)
        await anyio.sleep(0.05)
    for progress in does.get("progress", ()):
        await ctx.session.report_progress(progress, 100, f"{progress} of 100")
        await anyio.sleep(0.05)
    if "ask" in does:
        answers = await ask(ctx, params, does, scope)
        if isinstance(answers, types.InputRequiredResult):
            return answers
        scope |= answers
    return scope


# --- Tools -------------------------------------------------------------------------

Run = Callable[[Context, Json], Awaitable[types.CallToolResult]]
own: dict[str, Run] = {}


def tool(run: Run) -> Run:
    own[run.__name__] = run
    return run


@tool
async def add(ctx: Context, arguments: Json) -> types.CallToolResult:
    total = arguments["a"] + arguments["b"]
    answer = said(str(total))
    answer.structured_content = {"sum": total}
    return answer


@tool
async def inspect_request(ctx: Context, arguments: Json) -> types.CallToolResult:
    client = ctx.session.client_params
    capabilities = ctx.session.client_capabilities
    seen = {
        "protocolVersion": ctx.protocol_version,
        "requestId": ctx.request_id,
        "meta": (ctx.params or {}).get("_meta"),
        "clientInfo": client.client_info.model_dump(by_alias=True, exclude_none=True) if client else None,
        "clientCapabilities": capabilities.model_dump(by_alias=True, exclude_none=True) if capabilities else None,
        "headers": dict(ctx.request.headers) if ctx.request is not None else None,
    }
    answer = said(json.dumps(seen))
    answer.structured_content = seen
    return answer


@tool
async def slow(ctx: Context, arguments: Json) -> types.CallToolResult:
    steps, delay_ms = arguments.get("steps", 10), arguments.get("delay_ms", 100)
    label = arguments.get("label", "")
    try:
        for step in range(1, steps + 1):
            await anyio.sleep(delay_ms / 1000)
            await ctx.session.report_progress(step, steps, f"step {step} of {steps}")
    except anyio.get_cancelled_exc_class():
        note_cancelled(f"slow {label}".strip())
        raise
    return said(f"done after {steps} steps")


def note_cancelled(what: str) -> None:
    path = os.environ.get(CANCEL_LOG)
    if path:
        with open(path, "a", encoding="utf-8") as log:
            log.write(f"cancelled {what}\n")


@tool
async def test_reconnection(ctx: Context, arguments: Json) -> types.CallToolResult:
    if ctx.close_sse_stream is not None:
        await ctx.close_sse_stream()
    await anyio.sleep(0.2)
    return said("You came back.")


@tool
async def test_trigger_tool_change(ctx: Context, arguments: Json) -> types.CallToolResult:
    added, removed = arguments.get("add"), arguments.get("remove")
    if added:
        listed = {"name": added, "description": "Was added while the server ran.", "inputSchema": {"type": "object"}}
        words = f"{added} was added while the server ran"
        tools[added] = {"listed": listed, "does": {"answer": [{"type": "text", "text": words}]}}
    if removed:
        tools.pop(removed, None)
    if not added and not removed:
        one_more = EVERYTHING["added"]["tool"]
        toggle(tools, one_more["listed"]["name"], one_more)
    await changes.tools()
    return said(f"{len(tools)} tools")


def toggle(offered: dict[str, Json], key: str, what: Json) -> None:
    if offered.pop(key, None) is None:
        offered[key] = what


@tool
async def test_trigger_prompt_change(ctx: Context, arguments: Json) -> types.CallToolResult:
    added = EVERYTHING["added"]["prompt"]
    toggle(prompts, added["listed"]["name"], added)
    await changes.prompts()
    return said(f"{len(prompts)} prompts")


@tool
async def test_trigger_resource_change(ctx: Context, arguments: Json) -> types.CallToolResult:
    added = EVERYTHING["added"]["resource"]
    toggle(resources, added["listed"]["uri"], added)
    await changes.resources()
    return said(f"{len(resources)} resources")


@tool
async def test_trigger_resource_update(ctx: Context, arguments: Json) -> types.CallToolResult:
    await changes.resource("test://watched-resource")
    return said("said so")


async def call_tool(
    ctx: Context, params: types.CallToolRequestParams
) -> types.CallToolResult | types.InputRequiredResult:
    called = tools.get(params.name)
    if called is None:
        raise MCPError(code=types.INVALID_PARAMS, message=f"Unknown tool: {params.name}")
    does = called["does"]
    try:
        if does == "own":
            return await own[params.name](ctx, dict(params.arguments or {}))
        scope = await perform(ctx, params, does)
        if isinstance(scope, types.InputRequiredResult):
            return scope
        content = fill(does["answer"], scope)
        return types.CallToolResult.model_validate({"content": content, "isError": does.get("isError", False)})
    except MCPError:
        raise
    except Exception as fault:
        answer = said(f"{type(fault).__name__}: {fault}")
        answer.is_error = True
        return answer


def tool_input_schema(name: str) -> Json | None:
    return tools[name]["listed"]["inputSchema"] if name in tools else None


# --- Lists, prompts, resources -----------------------------------------------------

page_size = 0


def page(params: types.PaginatedRequestParams | None, all_of_them: list[Json]) -> Json:
    """A page of what is listed, as the names that a list result gives it."""
    listed = [each["listed"] for each in all_of_them]
    if page_size == 0:
        return {"items": listed}
    cursor = params.cursor if params else None
    if cursor is not None and not cursor.isdecimal():
        raise MCPError(code=types.INVALID_PARAMS, message="no such cursor")
    begin = int(cursor or 0)
    end = begin + page_size
    return {"items": listed[begin:end], "next": str(end) if end < len(listed) else None}


def by_name(offered: dict[str, Json]) -> list[Json]:
    return [offered[name] for name in sorted(offered)]


async def list_tools(ctx: Context, params: types.PaginatedRequestParams | None) -> types.ListToolsResult:
    got = page(params, by_name(tools))
    return types.ListToolsResult.model_validate({"tools": got["items"], "nextCursor": got.get("next")})


async def list_prompts(ctx: Context, params: types.PaginatedRequestParams | None) -> types.ListPromptsResult:
    got = page(params, by_name(prompts))
    return types.ListPromptsResult.model_validate({"prompts": got["items"], "nextCursor": got.get("next")})


async def list_resources(ctx: Context, params: types.PaginatedRequestParams | None) -> types.ListResourcesResult:
    got = page(params, list(resources.values()))
    return types.ListResourcesResult.model_validate({"resources": got["items"], "nextCursor": got.get("next")})


async def list_templates(
    ctx: Context, params: types.PaginatedRequestParams | None
) -> types.ListResourceTemplatesResult:
    got = page(params, templates)
    return types.ListResourceTemplatesResult.model_validate(
        {"resourceTemplates": got["items"], "nextCursor": got.get("next")}
    )


async def get_prompt(
    ctx: Context, params: types.GetPromptRequestParams
) -> types.GetPromptResult | types.InputRequiredResult:
    wanted = prompts.get(params.name)
    if wanted is None:
        raise MCPError(code=types.INVALID_PARAMS, message=f"Unknown prompt: {params.name}")
    given = params.arguments or {}
    missing = [each["name"] for each in wanted["listed"].get("arguments", ()) if each["name"] not in given]
    if missing:
        raise MCPError(code=types.INVALID_PARAMS, message=f"Missing arguments: {', '.join(missing)}")
    scope = await perform(ctx, params, wanted["does"])
    if isinstance(scope, types.InputRequiredResult):
        return scope
    messages = fill(wanted["does"]["messages"], scope)
    return types.GetPromptResult.model_validate(
        {"description": wanted["listed"]["description"], "messages": messages}
    )


async def complete(ctx: Context, params: types.CompleteRequestParams) -> types.CompleteResult:
    ref = params.ref.name if isinstance(params.ref, types.PromptReference) else params.ref.uri
    known = EVERYTHING["completions"].get(ref, {}).get(params.argument.name, ())
    values = [word for word in known if word.startswith(params.argument.value)]
    return types.CompleteResult(completion=types.Completion(values=values, total=len(values), has_more=False))


def contents_of(uri: str) -> list[Json] | None:
    if uri in resources:
        return resources[uri]["contents"]
    for template in templates:
        parts = re.split(r"\{(\w+)\}", template["listed"]["uriTemplate"])
        pattern = "".join(re.escape(part) if at % 2 == 0 else f"(?P<{part}>[^/]+)" for at, part in enumerate(parts))
        if match := re.fullmatch(pattern, uri):
            return fill(template["contents"], match.groupdict())
    return None


async def read_resource(ctx: Context, params: types.ReadResourceRequestParams) -> types.ReadResourceResult:
    contents = contents_of(params.uri)
    if contents is None:
        raise MCPError(code=types.INVALID_PARAMS, message="Resource not found", data={"uri": params.uri})
    return types.ReadResourceResult.model_validate({"contents": contents})


async def subscribe(ctx: Context, params: types.SubscribeRequestParams) -> types.EmptyResult:
    connection_of(ctx).state.setdefault("subscribed", set()).add(params.uri)
    return types.EmptyResult()


async def unsubscribe(ctx: Context, params: types.UnsubscribeRequestParams) -> types.EmptyResult:
    connection_of(ctx).state.get("subscribed", set()).discard(params.uri)
    return types.EmptyResult()


# --- The server ----------------------------------------------------------------------


class Everything(Server[Any]):
    """The SDK's server, but saying to Legacy clients too that its lists may change."""

    def create_initialization_options(self, *args: Any, **kwargs: Any) -> InitializationOptions:
        kwargs.setdefault("notification_options", NotificationOptions(True, True, True))
        return super().create_initialization_options(*args, **kwargs)


async def joined(ctx: Context, params: types.NotificationParams) -> None:
    changes.joined(connection_of(ctx))


async def set_level(ctx: Context, params: types.SetLevelRequestParams) -> types.EmptyResult:
    connection_of(ctx).state["level"] = LEVELS.index(params.level)
    return types.EmptyResult()


def build() -> Everything:
    hint = CacheHint(ttl_ms=EVERYTHING["cache"]["ttlMs"], scope=EVERYTHING["cache"]["cacheScope"])
    cacheable = ("tools/list", "prompts/list", "resources/list", "resources/templates/list", "resources/read")
    server = Everything(
        NAME,
        version=ABOUT["version"],
        title=ABOUT["title"],
        instructions=ABOUT["instructions"],
        cache_hints={method: hint for method in cacheable},
        get_tool_input_schema=tool_input_schema,
        on_list_tools=list_tools,
        on_call_tool=call_tool,
        on_list_prompts=list_prompts,
        on_get_prompt=get_prompt,
        on_completion=complete,
        on_list_resources=list_resources,
        on_list_resource_templates=list_templates,
        on_read_resource=read_resource,
        on_subscribe_resource=subscribe,
        on_unsubscribe_resource=unsubscribe,
        on_subscriptions_listen=ListenHandler(changes.bus),
    )
    server.add_request_handler("logging/setLevel", types.SetLevelRequestParams, set_level)
    server.add_notification_handler("notifications/initialized", types.NotificationParams, joined)
    server.middleware.append(RequestStateBoundary(RequestStateSecurity.ephemeral(), default_audience=NAME))
    return server


class Events(EventStore):
    """The last events of all streams, for clients that come back to a stream."""

    def __init__(self, kept: int = 4096) -> None:
        self._events: deque[tuple[int, str, types.JSONRPCMessage | None]] = deque(maxlen=kept)
        self._next = 1

    async def store_event(self, stream_id: str, message: types.JSONRPCMessage | None) -> str:
        event = self._next
        self._next += 1
        self._events.append((event, stream_id, message))
        return str(event)

    async def replay_events_after(self, last_event_id: str, send_callback: EventCallback) -> str | None:
        last = int(last_event_id) if last_event_id.isdecimal() else 0
        stream = next((stream for event, stream, _ in self._events if event == last), None)
        for event, owner, message in list(self._events):
            if stream is not None and owner == stream and event > last and message is not None:
                await send_callback(EventMessage(message, str(event)))
        return stream


# --- The eras: the SDK serves both, and each alone takes a word -------------------------


def only_legacy(server: Everything) -> None:
    """Over HTTP: refuses the versions that the SDK 1.x does not know, in the way it does."""
    manager = server.session_manager
    both = manager.asgi_app

    async def legacy(scope: Scope, receive: Receive, send: Send) -> None:
        asked = next((value.decode("latin-1") for key, value in scope["headers"] if key == b"mcp-protocol-version"), None)
        if asked is None or asked in HANDSHAKE_PROTOCOL_VERSIONS:
            await both(scope, receive, send)
            return
        message = f"Bad Request: Unsupported protocol version: {asked}"
        error = {"jsonrpc": "2.0", "id": "server-error", "error": {"code": types.INVALID_REQUEST, "message": message}}
        await send({"type": "http.response.start", "status": 400, "headers": [(b"content-type", b"application/json")]})
        await send({"type": "http.response.body", "body": json.dumps(error).encode()})

    manager.asgi_app = legacy


def only_modern(server: Everything) -> None:
    """Over HTTP: every request goes to the SDK's Modern entry."""
    manager = server.session_manager

    async def modern(scope: Scope, receive: Receive, send: Send) -> None:
        lifespan = manager._lifespan_state
        await handle_modern_request(server, manager.security_settings, False, lifespan, scope, receive, send)

    manager.asgi_app = modern


async def serve_http(port: int, era: str) -> None:
    server = build()
    app = server.streamable_http_app(event_store=Events(), retry_interval=100)
    if era != "both":
        {"legacy": only_legacy, "modern": only_modern}[era](server)
    listener = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    listener.bind(("127.0.0.1", port))
    listener.listen(128)
    print(json.dumps({"port": listener.getsockname()[1]}), flush=True)
    config = uvicorn.Config(app, log_level="warning", timeout_graceful_shutdown=1)
    await uvicorn.Server(config).serve(sockets=[listener])


async def serve_stdio(era: str) -> None:
    server = build()
    options = server.create_initialization_options()
    async with stdio_server() as (read, write), server.lifespan(server) as lifespan:
        if era == "legacy":
            await runner.serve_loop(server, read, write, lifespan_state=lifespan, init_options=options)
        elif era == "modern":
            await runner._serve_modern_stream(server, read, write, lifespan_state=lifespan, raise_exceptions=False)
        else:
            await runner.serve_dual_era_loop(server, read, write, lifespan_state=lifespan, init_options=options)


def main() -> None:
    global page_size
    parser = argparse.ArgumentParser(description="A server that offers one of everything.")
    way = parser.add_mutually_exclusive_group(required=True)
    way.add_argument("--port", type=int, help="serve HTTP on this port of 127.0.0.1; 0 takes a free one")
    way.add_argument("--stdio", action="store_true", help="serve standard input and output")
    parser.add_argument("--era", choices=("both", "legacy", "modern"), default="both")
    parser.add_argument("--page-size", type=int, default=0, help="how many entries a page of a list has; 0: all")
    options = parser.parse_args()
    page_size = options.page_size
    try:
        anyio.run(serve_stdio, options.era) if options.stdio else anyio.run(serve_http, options.port, options.era)
    except KeyboardInterrupt:
        sys.exit(130)


if __name__ == "__main__":
    main()
