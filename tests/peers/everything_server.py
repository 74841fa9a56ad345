"""A server that offers one of everything, on the official Python SDK 2.x.

It has what the official conformance suite's server scenarios ask for, under the
names they ask for it, and passes them without a gateway; and a few tools more
that Trunkline's own tests need:

    add                      two numbers in, structured content out
    echo                     an annotated tool with fields that a gateway must not touch
    inspect_request          what reached the server: version, `_meta`, headers
    slow                     progress at an even pace; notices that it was cancelled
    test_trigger_tool_change changes the tool list and says so

The SDK answers both eras on one endpoint. A cancelled `slow` appends a line to
the file that the environment variable EVERYTHING_CANCEL_LOG names.

    everything_server.py --port N    http://127.0.0.1:N/mcp; 0 takes a free port
    everything_server.py --stdio

Over HTTP one line of JSON on standard output says which port it is, once the
socket listens.
"""

from __future__ import annotations

import argparse
import base64
import json
import os
import socket
import struct
import sys
import zlib
from collections import deque
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any

import anyio
import mcp_types as types
import uvicorn
from mcp.server.caching import CacheHint
from mcp.server.context import ServerRequestContext
from mcp.server.lowlevel import NotificationOptions, Server
from mcp.server.models import InitializationOptions
from mcp.server.request_state import RequestStateBoundary, RequestStateSecurity
from mcp.server.session import ServerSession
from mcp.server.stdio import stdio_server
from mcp.server.streamable_http import EventCallback, EventMessage, EventStore
from mcp.server.subscriptions import (
    InMemorySubscriptionBus,
    ListenHandler,
    PromptsListChanged,
    ResourceUpdated,
    ToolsListChanged,
)
from mcp.shared.exceptions import MCPError
from mcp.shared.message import ServerMessageMetadata
from mcp_types.version import MODERN_PROTOCOL_VERSIONS

NAME = "trunkline-everything"
VERSION = "1.0.0"
CANCEL_LOG = "EVERYTHING_CANCEL_LOG"

Json = dict[str, Any]
Context = ServerRequestContext[Any, Any]
Answer = types.CallToolResult | types.InputRequiredResult


# --- Small material -----------------------------------------------------------


def one_pixel_png() -> str:
    """A red dot, 1 × 1, as base64."""

    def chunk(kind: bytes, body: bytes) -> bytes:
        return struct.pack(">I", len(body)) + kind + body + struct.pack(">I", zlib.crc32(kind + body))

    header = struct.pack(">IIBBBBB", 1, 1, 8, 2, 0, 0, 0)
    pixels = zlib.compress(b"\x00\xff\x00\x00")
    png = b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", pixels) + chunk(b"IEND", b"")
    return base64.b64encode(png).decode()


def silent_wav() -> str:
    """Eight samples of silence, 8 kHz, 8 bit, as base64."""
    samples = b"\x80" * 8
    form = struct.pack("<HHIIHH", 1, 1, 8000, 8000, 1, 8)
    body = b"WAVE" + b"fmt " + struct.pack("<I", len(form)) + form + b"data" + struct.pack("<I", len(samples)) + samples
    return base64.b64encode(b"RIFF" + struct.pack("<I", len(body)) + body).decode()


PNG = one_pixel_png()
WAV = silent_wav()


def text(words: str) -> types.TextContent:
    return types.TextContent(type="text", text=words)


def image() -> types.ImageContent:
    return types.ImageContent(type="image", data=PNG, mime_type="image/png")


def embedded(uri: str, mime_type: str, body: str) -> types.EmbeddedResource:
    return types.EmbeddedResource(
        type="resource", resource=types.TextResourceContents(uri=uri, mime_type=mime_type, text=body)
    )


def said(*content: Any) -> types.CallToolResult:
    return types.CallToolResult(content=[text(c) if isinstance(c, str) else c for c in content])


def object_schema(required: tuple[str, ...] = (), **properties: Json) -> Json:
    schema: Json = {"type": "object", "properties": properties}
    if required:
        schema["required"] = list(required)
    return schema


STRING = {"type": "string"}
NUMBER = {"type": "number"}


def ask_user(message: str, **properties: Json) -> types.ElicitRequest:
    schema = object_schema(tuple(properties), **properties)
    return types.ElicitRequest(params=types.ElicitRequestFormParams(message=message, requested_schema=schema))


def ask_model(question: str, max_tokens: int = 100) -> types.CreateMessageRequest:
    message = types.SamplingMessage(role="user", content=text(question))
    return types.CreateMessageRequest(
        params=types.CreateMessageRequestParams(messages=[message], max_tokens=max_tokens)
    )


def filled_in(responses: Any, key: str) -> Json | None:
    """What the user put into the form asked for under `key`, if they did."""
    answer = (responses or {}).get(key)
    return answer.content if isinstance(answer, types.ElicitResult) else None


# --- State and who hears of its changes ----------------------------------------


class Changes:
    """Tells every listener, Modern (subscriptions/listen) and Legacy (its session)."""

    def __init__(self) -> None:
        self.bus = InMemorySubscriptionBus()
        self._sessions: deque[ServerSession] = deque(maxlen=256)

    def joined(self, session: ServerSession) -> None:
        self._sessions.append(session)

    async def tools(self) -> None:
        await self.bus.publish(ToolsListChanged())
        await self._tell(lambda session: session.send_tool_list_changed())

    async def prompts(self) -> None:
        await self.bus.publish(PromptsListChanged())
        await self._tell(lambda session: session.send_prompt_list_changed())

    async def resource(self, uri: str) -> None:
        await self.bus.publish(ResourceUpdated(uri=uri))
        if uri in subscribed:
            await self._tell(lambda session: session.send_resource_updated(uri))

    async def _tell(self, send: Callable[[ServerSession], Awaitable[None]]) -> None:
        for session in list(self._sessions):
            try:
                await send(session)
            except (anyio.BrokenResourceError, anyio.ClosedResourceError):
                self._sessions.remove(session)


changes = Changes()
subscribed: set[str] = set()


# --- Tools ---------------------------------------------------------------------


@dataclass
class Tool:
    listed: types.Tool
    run: Callable[[Context, types.CallToolRequestParams], Awaitable[Answer]]


tools: dict[str, Tool] = {}


def tool(schema: Json | None = None, *, name: str | None = None, **fields: Any):
    """Offer the decorated coroutine, which gets the request's context and its params."""

    def offer(run: Callable[[Context, types.CallToolRequestParams], Awaitable[Answer]]):
        public = name or run.__name__
        listed = types.Tool(
            name=public, description=run.__doc__, input_schema=schema or object_schema(), **fields
        )
        tools[public] = Tool(listed, run)
        return run

    return offer


@tool(
    object_schema(("a", "b"), a=NUMBER, b=NUMBER),
    output_schema=object_schema(("sum",), sum=NUMBER),
)
async def add(ctx: Context, params: types.CallToolRequestParams) -> Answer:
    """Add two numbers."""
    total = params.arguments["a"] + params.arguments["b"]
    return types.CallToolResult(content=[text(str(total))], structured_content={"sum": total})


@tool(
    object_schema(("message",), message=STRING),
    title="Echo",
    annotations=types.ToolAnnotations(read_only_hint=True, idempotent_hint=True),
    icons=[types.Icon(src="data:image/png;base64," + PNG, mime_type="image/png", sizes=["1x1"])],
    _meta={"trunkline.test/kept": {"nested": [1, 2.50, "ä"]}},
)
async def echo(ctx: Context, params: types.CallToolRequestParams) -> Answer:
    """Say it back."""
    return said(str((params.arguments or {}).get("message", "")))


@tool()
async def inspect_request(ctx: Context, params: types.CallToolRequestParams) -> Answer:
    """Report what reached the server: protocol version, `_meta`, client, HTTP headers."""
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
    return types.CallToolResult(content=[text(json.dumps(seen))], structured_content=seen)


@tool(
    object_schema(
        steps={"type": "integer", "minimum": 0},
        delay_ms={"type": "integer", "minimum": 0},
        label=STRING,
    )
)
async def slow(ctx: Context, params: types.CallToolRequestParams) -> Answer:
    """Report progress `steps` times, `delay_ms` apart; write a line if cancelled."""
    arguments = params.arguments or {}
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


@tool()
async def test_simple_text(ctx: Context, params: types.CallToolRequestParams) -> Answer:
    """One text."""
    return said("This is a simple text response for testing.")


@tool()
async def test_image_content(ctx: Context, params: types.CallToolRequestParams) -> Answer:
    """One image."""
    return said(image())


@tool()
async def test_audio_content(ctx: Context, params: types.CallToolRequestParams) -> Answer:
    """One sound."""
    return said(types.AudioContent(type="audio", data=WAV, mime_type="audio/wav"))


@tool()
async def test_embedded_resource(ctx: Context, params: types.CallToolRequestParams) -> Answer:
    """One embedded resource."""
    return said(embedded("test://embedded-resource", "text/plain", "This is an embedded resource content."))


@tool()
async def test_multiple_content_types(ctx: Context, params: types.CallToolRequestParams) -> Answer:
    """A text, an image and a resource."""
    resource = embedded("test://mixed-content-resource", "application/json", '{"test":"data","value":123}')
    return said("Multiple content types test:", image(), resource)


@tool()
async def test_error_handling(ctx: Context, params: types.CallToolRequestParams) -> Answer:
    """Always fail, as tools do."""
    words = "This tool intentionally returns an error for testing"
    return types.CallToolResult(content=[text(words)], is_error=True)


async def log_lines(ctx: Context, *lines: str) -> None:
    for line in lines:
        await ctx.session.send_log_message("info", line, logger=NAME, related_request_id=ctx.request_id)
        await anyio.sleep(0.05)


@tool()
async def test_tool_with_logging(ctx: Context, params: types.CallToolRequestParams) -> Answer:
    """Log three lines while working."""
    await log_lines(ctx, "Tool execution started", "Tool processing data", "Tool execution completed")
    return said("Logged three lines.")


@tool()
async def test_logging_tool(ctx: Context, params: types.CallToolRequestParams) -> Answer:
    """Log one line, for those who asked for log lines."""
    await log_lines(ctx, "One line for whoever asked")
    return said("Logged one line.")


@tool()
async def test_tool_with_progress(ctx: Context, params: types.CallToolRequestParams) -> Answer:
    """Report 0, 50 and 100 of 100."""
    for progress in (0, 50, 100):
        await ctx.session.report_progress(progress, 100, f"{progress} of 100")
        await anyio.sleep(0.05)
    return said("Reported progress three times.")


Asked = types.CreateMessageResult | types.ElicitResult


async def asked(
    ctx: Context, params: types.CallToolRequestParams, request: types.CreateMessageRequest | types.ElicitRequest
) -> Asked | types.InputRequiredResult:
    """What the client answers to `request`, or in the Modern era the result that asks for it."""
    if ctx.protocol_version in MODERN_PROTOCOL_VERSIONS:
        answer = (params.input_responses or {}).get("asked")
        if isinstance(answer, Asked):
            return answer
        return types.InputRequiredResult(input_requests={"asked": request})
    expects = types.ElicitResult if isinstance(request, types.ElicitRequest) else types.CreateMessageResult
    # The id of the call keeps the request on that call's own stream.
    on_call = ServerMessageMetadata(related_request_id=ctx.request_id)
    return await ctx.session.send_request(request, expects, metadata=on_call)


@tool(object_schema(("prompt",), prompt=STRING))
async def test_sampling(ctx: Context, params: types.CallToolRequestParams) -> Answer:
    """Have the client's model answer the prompt."""
    answer = await asked(ctx, params, ask_model(params.arguments["prompt"]))
    if isinstance(answer, types.InputRequiredResult):
        return answer
    words = answer.content.text if isinstance(answer.content, types.TextContent) else "(not a text)"
    return said(f"LLM response: {words}")


async def elicit(ctx: Context, params: types.CallToolRequestParams, words: str, message: str, schema: Json) -> Answer:
    form = types.ElicitRequestFormParams(message=message, requested_schema=schema)
    answer = await asked(ctx, params, types.ElicitRequest(params=form))
    if isinstance(answer, types.InputRequiredResult):
        return answer
    return said(f"{words}: action={answer.action}, content={json.dumps(answer.content or {})}")


@tool(object_schema(("message",), message=STRING))
async def test_elicitation(ctx: Context, params: types.CallToolRequestParams) -> Answer:
    """Ask the user for a name and an address."""
    form = object_schema(
        ("username", "email"),
        username={"type": "string", "description": "User's response"},
        email={"type": "string", "description": "User's email address"},
    )
    return await elicit(ctx, params, "User response", params.arguments["message"], form)


@tool()
async def test_elicitation_sep1034_defaults(ctx: Context, params: types.CallToolRequestParams) -> Answer:
    """Ask with a default in every primitive type."""
    form = object_schema(
        name={"type": "string", "default": "John Doe"},
        age={"type": "integer", "default": 30},
        score={"type": "number", "default": 95.5},
        status={"type": "string", "enum": ["active", "inactive", "pending"], "default": "active"},
        verified={"type": "boolean", "default": True},
    )
    return await elicit(ctx, params, "Elicitation completed", "Are these right?", form)


def titled(*pairs: str) -> list[Json]:
    return [{"const": pair.split("=")[0], "title": pair.split("=")[1]} for pair in pairs]


@tool()
async def test_elicitation_sep1330_enums(ctx: Context, params: types.CallToolRequestParams) -> Answer:
    """Ask with every way to write a choice."""
    plain = ["option1", "option2", "option3"]
    named = titled("value1=First", "value2=Second", "value3=Third")
    form = object_schema(
        untitledSingle={"type": "string", "enum": plain},
        titledSingle={"type": "string", "oneOf": named},
        legacyEnum={"type": "string", "enum": ["opt1", "opt2", "opt3"], "enumNames": ["One", "Two", "Three"]},
        untitledMulti={"type": "array", "items": {"type": "string", "enum": plain}},
        titledMulti={"type": "array", "items": {"anyOf": named}},
    )
    return await elicit(ctx, params, "Elicitation completed", "Choose.", form)


@tool(
    {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "type": "object",
        "$defs": {"address": {"$anchor": "addressDef", **object_schema(street=STRING, city=STRING)}},
        "properties": {
            "name": STRING,
            "address": {"$ref": "#/$defs/address"},
            "contactMethod": {"type": "string", "enum": ["phone", "email"]},
            "phone": STRING,
            "email": STRING,
        },
        "allOf": [{"anyOf": [{"required": ["phone"]}, {"required": ["email"]}]}],
        "if": {"properties": {"contactMethod": {"const": "phone"}}, "required": ["contactMethod"]},
        "then": {"required": ["phone"]},
        "else": {"required": ["email"]},
        "additionalProperties": False,
    }
)
async def json_schema_2020_12_tool(ctx: Context, params: types.CallToolRequestParams) -> Answer:
    """A schema with the rarer words of 2020-12."""
    return said(json.dumps(params.arguments or {}))


@tool(object_schema(region={"type": "string", "x-mcp-header": "Region"}))
async def test_x_mcp_header(ctx: Context, params: types.CallToolRequestParams) -> Answer:
    """One argument that is repeated in a header."""
    return said("region=" + str((params.arguments or {}).get("region")))


@tool()
async def test_missing_capability(ctx: Context, params: types.CallToolRequestParams) -> Answer:
    """Only for clients that declare sampling."""
    capabilities = ctx.session.client_capabilities
    if capabilities is None or capabilities.sampling is None:
        raise MCPError(
            code=types.MISSING_REQUIRED_CLIENT_CAPABILITY,
            message="this tool needs a client with sampling",
            data={"requiredCapabilities": {"sampling": {}}},
        )
    return said("The client has sampling.")


@tool()
async def test_reconnection(ctx: Context, params: types.CallToolRequestParams) -> Answer:
    """Close the call's stream before the answer, which is then fetched by reconnecting."""
    if ctx.close_sse_stream is not None:
        await ctx.close_sse_stream()
    await anyio.sleep(0.2)
    return said("You came back.")


# Tools that need input, the Modern way.


@tool()
async def test_input_required_result_elicitation(ctx: Context, params: types.CallToolRequestParams) -> Answer:
    """Needs a name."""
    form = filled_in(params.input_responses, "user_name")
    if form and "name" in form:
        return said(f"Hello, {form['name']}!")
    return types.InputRequiredResult(input_requests={"user_name": ask_user("What is your name?", name=STRING)})


@tool()
async def test_streaming_elicitation(ctx: Context, params: types.CallToolRequestParams) -> Answer:
    """Reports progress, then needs a name."""
    await ctx.session.report_progress(1, 2, "about to ask")
    return await test_input_required_result_elicitation(ctx, params)


@tool()
async def test_input_required_result_sampling(ctx: Context, params: types.CallToolRequestParams) -> Answer:
    """Needs the model's word."""
    answer = (params.input_responses or {}).get("capital_question")
    if isinstance(answer, types.CreateMessageResult) and isinstance(answer.content, types.TextContent):
        return said(f"The model said: {answer.content.text}")
    return types.InputRequiredResult(
        input_requests={"capital_question": ask_model("What is the capital of France?")}
    )


@tool()
async def test_input_required_result_list_roots(ctx: Context, params: types.CallToolRequestParams) -> Answer:
    """Needs the client's roots."""
    answer = (params.input_responses or {}).get("client_roots")
    if isinstance(answer, types.ListRootsResult):
        return said(f"{len(answer.roots)} roots")
    return types.InputRequiredResult(input_requests={"client_roots": types.ListRootsRequest()})


@tool()
async def test_input_required_result_request_state(ctx: Context, params: types.CallToolRequestParams) -> Answer:
    """Needs a yes, and its own state back."""
    if filled_in(params.input_responses, "confirm") is not None and params.request_state == "asked":
        return said("state-ok")
    question = ask_user("Go on?", ok={"type": "boolean"})
    return types.InputRequiredResult(input_requests={"confirm": question}, request_state="asked")


tools["test_input_required_result_tampered_state"] = Tool(
    types.Tool(
        name="test_input_required_result_tampered_state",
        description="Needs its own state back, unharmed.",
        input_schema=object_schema(),
    ),
    test_input_required_result_request_state,
)


@tool()
async def test_input_required_result_multiple_inputs(ctx: Context, params: types.CallToolRequestParams) -> Answer:
    """Needs three things at once."""
    requests: Json = {
        "user_name": ask_user("What is your name?", name=STRING),
        "greeting": ask_model("Greet somebody.", max_tokens=50),
        "client_roots": types.ListRootsRequest(),
    }
    missing = requests.keys() - (params.input_responses or {}).keys()
    if not missing:
        return said("Thank you for all three.")
    return types.InputRequiredResult(
        input_requests={key: requests[key] for key in requests if key in missing}, request_state="three"
    )


@tool()
async def test_input_required_result_multi_round(ctx: Context, params: types.CallToolRequestParams) -> Answer:
    """Needs a name, then a colour."""
    known: Json = json.loads(params.request_state) if params.request_state else {}
    known |= filled_in(params.input_responses, "step1") or {}
    known |= filled_in(params.input_responses, "step2") or {}
    if "name" not in known:
        questions = {"step1": ask_user("Step 1: What is your name?", name=STRING)}
    elif "color" not in known:
        questions = {"step2": ask_user("Step 2: What is your favorite color?", color=STRING)}
    else:
        return said(f"{known['name']} likes {known['color']}.")
    return types.InputRequiredResult(input_requests=questions, request_state=json.dumps(known))


@tool()
async def test_input_required_result_capabilities(ctx: Context, params: types.CallToolRequestParams) -> Answer:
    """Asks only what this client can answer."""
    can = ctx.session.client_capabilities or types.ClientCapabilities()
    requests: Json = {}
    if can.elicitation is not None:
        requests["ask"] = ask_user("What is your name?", name=STRING)
    if can.sampling is not None:
        requests["sample"] = ask_model("Say hello.")
    if can.roots is not None:
        requests["roots"] = types.ListRootsRequest()
    if requests.keys() <= (params.input_responses or {}).keys():
        return said(f"{len(requests)} answers")
    return types.InputRequiredResult(input_requests=requests)


# Tools that change what is offered.


async def dynamic_tool(ctx: Context, params: types.CallToolRequestParams) -> Answer:
    return said(f"{params.name} was added while the server ran")


def add_tool(name: str) -> None:
    listed = types.Tool(name=name, description="Was added while the server ran.", input_schema=object_schema())
    tools[name] = Tool(listed, dynamic_tool)


@tool(object_schema(add=STRING, remove=STRING))
async def test_trigger_tool_change(ctx: Context, params: types.CallToolRequestParams) -> Answer:
    """Add or remove a tool by name; with neither, switch `test_dynamic_tool` on or off."""
    arguments = params.arguments or {}
    if not arguments:
        arguments = {"remove" if "test_dynamic_tool" in tools else "add": "test_dynamic_tool"}
    if "add" in arguments:
        add_tool(arguments["add"])
    if "remove" in arguments:
        tools.pop(arguments["remove"], None)
    await changes.tools()
    return said(f"{len(tools)} tools")


@tool()
async def test_trigger_prompt_change(ctx: Context, params: types.CallToolRequestParams) -> Answer:
    """Switch `test_dynamic_prompt` on or off."""
    if prompts.pop("test_dynamic_prompt", None) is None:
        prompts["test_dynamic_prompt"] = dynamic_prompt
    await changes.prompts()
    return said(f"{len(prompts)} prompts")


@tool()
async def test_trigger_resource_update(ctx: Context, params: types.CallToolRequestParams) -> Answer:
    """Say that `test://watched-resource` has changed."""
    await changes.resource("test://watched-resource")
    return said("said so")


async def list_tools(ctx: Context, params: types.PaginatedRequestParams | None) -> types.ListToolsResult:
    return types.ListToolsResult(tools=[tools[name].listed for name in sorted(tools)])


async def call_tool(ctx: Context, params: types.CallToolRequestParams) -> Answer:
    called = tools.get(params.name)
    if called is None:
        raise MCPError(code=types.INVALID_PARAMS, message=f"Unknown tool: {params.name}")
    try:
        answer = await called.run(ctx, params)
    except MCPError:
        raise
    except Exception as fault:
        answer = types.CallToolResult(content=[text(f"{type(fault).__name__}: {fault}")], is_error=True)
    if isinstance(answer, types.InputRequiredResult) and ctx.protocol_version not in MODERN_PROTOCOL_VERSIONS:
        return types.CallToolResult(content=[text("this tool asks the Modern way only")], is_error=True)
    return answer


def tool_input_schema(name: str) -> Json | None:
    return tools[name].listed.input_schema if name in tools else None


# --- Prompts -------------------------------------------------------------------


@dataclass
class Prompt:
    listed: types.Prompt
    messages: Callable[[Json], list[Any]]


def prompt(name: str, description: str, arguments: tuple[str, ...], messages: Callable[[Json], list[Any]]) -> Prompt:
    listed = types.Prompt(
        name=name,
        description=description,
        arguments=[types.PromptArgument(name=a, description=f"The {a}.", required=True) for a in arguments],
    )
    return Prompt(listed, messages)


dynamic_prompt = prompt("test_dynamic_prompt", "Was added while the server ran.", (), lambda _: [text("dynamic")])

prompts: dict[str, Prompt] = {
    p.listed.name: p
    for p in (
        prompt(
            "test_simple_prompt",
            "Without arguments.",
            (),
            lambda _: [text("This is a simple prompt for testing.")],
        ),
        prompt(
            "test_prompt_with_arguments",
            "With two arguments.",
            ("arg1", "arg2"),
            lambda a: [text(f"Prompt with arguments: arg1='{a['arg1']}', arg2='{a['arg2']}'")],
        ),
        prompt(
            "test_prompt_with_embedded_resource",
            "With a resource in it.",
            ("resourceUri",),
            lambda a: [
                embedded(a["resourceUri"], "text/plain", "Embedded resource content for testing."),
                text("Please process the embedded resource above."),
            ],
        ),
        prompt(
            "test_prompt_with_image",
            "With an image in it.",
            (),
            lambda _: [image(), text("Please analyze the image above.")],
        ),
        prompt(
            "test_input_required_result_prompt",
            "Needs to know the context first.",
            (),
            lambda a: [text(f"The context is: {a['context']}")],
        ),
    )
}


async def list_prompts(ctx: Context, params: types.PaginatedRequestParams | None) -> types.ListPromptsResult:
    return types.ListPromptsResult(prompts=[prompts[name].listed for name in sorted(prompts)])


async def get_prompt(
    ctx: Context, params: types.GetPromptRequestParams
) -> types.GetPromptResult | types.InputRequiredResult:
    wanted = prompts.get(params.name)
    if wanted is None:
        raise MCPError(code=types.INVALID_PARAMS, message=f"Unknown prompt: {params.name}")
    arguments: Json = dict(params.arguments or {})
    if params.name == "test_input_required_result_prompt":
        form = filled_in(params.input_responses, "user_context")
        if not form or "context" not in form:
            question = ask_user("What context should the prompt use?", context=STRING)
            return types.InputRequiredResult(input_requests={"user_context": question})
        arguments |= form
    missing = [a.name for a in wanted.listed.arguments or [] if a.name not in arguments]
    if missing:
        raise MCPError(code=types.INVALID_PARAMS, message=f"Missing arguments: {', '.join(missing)}")
    messages = [types.PromptMessage(role="user", content=content) for content in wanted.messages(arguments)]
    return types.GetPromptResult(description=wanted.listed.description, messages=messages)


async def complete(ctx: Context, params: types.CompleteRequestParams) -> types.CompleteResult:
    known = ["paris", "park", "party", "berlin"]
    values = [word for word in known if word.startswith(params.argument.value)]
    return types.CompleteResult(completion=types.Completion(values=values, total=len(values), has_more=False))


# --- Resources -----------------------------------------------------------------

TEMPLATE = "test://template/{id}/data"

resources: dict[str, tuple[str, str, str | bytes]] = {
    "test://static-text": ("A text.", "text/plain", "This is the content of the static text resource."),
    "test://static-binary": ("An image.", "image/png", base64.b64decode(PNG)),
    "test://watched-resource": ("A text to subscribe to.", "text/plain", "Watched resource content"),
}


async def list_resources(ctx: Context, params: types.PaginatedRequestParams | None) -> types.ListResourcesResult:
    return types.ListResourcesResult(
        resources=[
            types.Resource(uri=uri, name=uri.removeprefix("test://"), description=description, mime_type=mime_type)
            for uri, (description, mime_type, _) in resources.items()
        ]
    )


async def list_templates(
    ctx: Context, params: types.PaginatedRequestParams | None
) -> types.ListResourceTemplatesResult:
    template = types.ResourceTemplate(
        uri_template=TEMPLATE, name="template", description="Data by id.", mime_type="application/json"
    )
    return types.ListResourceTemplatesResult(resource_templates=[template])


async def read_resource(ctx: Context, params: types.ReadResourceRequestParams) -> types.ReadResourceResult:
    uri = params.uri
    before, after = TEMPLATE.split("{id}")
    if uri in resources:
        _, mime_type, body = resources[uri]
    elif uri.startswith(before) and uri.endswith(after) and len(uri) > len(before) + len(after):
        key = uri[len(before) : -len(after)]
        mime_type = "application/json"
        body = json.dumps({"id": key, "templateTest": True, "data": f"Data for ID: {key}"})
    else:
        raise MCPError(code=types.INVALID_PARAMS, message="Resource not found", data={"uri": uri})
    if isinstance(body, bytes):
        blob = base64.b64encode(body).decode()
        return types.ReadResourceResult(
            contents=[types.BlobResourceContents(uri=uri, mime_type=mime_type, blob=blob)]
        )
    return types.ReadResourceResult(contents=[types.TextResourceContents(uri=uri, mime_type=mime_type, text=body)])


async def subscribe(ctx: Context, params: types.SubscribeRequestParams) -> types.EmptyResult:
    subscribed.add(params.uri)
    return types.EmptyResult()


async def unsubscribe(ctx: Context, params: types.UnsubscribeRequestParams) -> types.EmptyResult:
    subscribed.discard(params.uri)
    return types.EmptyResult()


# --- The server ----------------------------------------------------------------


class Everything(Server[Any]):
    """The SDK's server, but saying to Legacy clients too that its lists may change."""

    def create_initialization_options(self, *args: Any, **kwargs: Any) -> InitializationOptions:
        kwargs.setdefault("notification_options", NotificationOptions(True, True, True))
        return super().create_initialization_options(*args, **kwargs)


async def joined(ctx: Context, params: types.NotificationParams) -> None:
    changes.joined(ctx.session)


async def set_level(ctx: Context, params: types.SetLevelRequestParams) -> types.EmptyResult:
    return types.EmptyResult()


def build() -> Everything:
    hint = CacheHint(ttl_ms=1000, scope="public")
    cacheable = ("tools/list", "prompts/list", "resources/list", "resources/templates/list", "resources/read")
    server = Everything(
        NAME,
        version=VERSION,
        instructions="A server for tests: it offers one of everything.",
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


async def serve_http(port: int) -> None:
    app = build().streamable_http_app(event_store=Events(), retry_interval=100)
    listener = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    listener.bind(("127.0.0.1", port))
    listener.listen(128)
    print(json.dumps({"port": listener.getsockname()[1]}), flush=True)
    config = uvicorn.Config(app, log_level="warning", timeout_graceful_shutdown=1)
    await uvicorn.Server(config).serve(sockets=[listener])


async def serve_stdio() -> None:
    server = build()
    async with stdio_server() as (read, write):
        await server.run(read, write, server.create_initialization_options())


def main() -> None:
    parser = argparse.ArgumentParser(description="A server that offers one of everything.")
    way = parser.add_mutually_exclusive_group(required=True)
    way.add_argument("--port", type=int, help="serve HTTP on this port of 127.0.0.1; 0 takes a free one")
    way.add_argument("--stdio", action="store_true", help="serve standard input and output")
    options = parser.parse_args()
    try:
        anyio.run(serve_stdio) if options.stdio else anyio.run(serve_http, options.port)
    except KeyboardInterrupt:
        sys.exit(130)


if __name__ == "__main__":
    main()
