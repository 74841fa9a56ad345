"""What the Python drivers share: a target on the command line, steps on standard input.

Each line of standard input is a step, and each is answered by one line of JSON:

    {"op": "list"}                                {"op": "list", "ok": true, "names": [...]}
    {"op": "call", "name": ..., "arguments": {}}  {"op": "call", "ok": true, "text": "..."}

A tool result with `isError` has `"is_error": true`, where the framework hands it over as a
result. An exception is `{"ok": false, "error": "TYPE: MESSAGE"}`. A line for `connect` comes
first; at the end of the input the framework closes its connection, and a line for `close`
comes last. The target is a URL, or `stdio:` and a JSON array with a command.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
from collections.abc import Awaitable, Callable
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from typing import Any

STEP_SECONDS = 60


@dataclass
class Target:
    """Where to connect to: a URL, or a command."""

    url: str | None
    command: list[str]

    @property
    def environment(self) -> dict[str, str]:
        return dict(os.environ)

    @property
    def process(self) -> dict[str, Any]:
        """The command as parameters of `StdioServerParameters`, and of what frameworks call the same."""
        command, *args = self.command
        return {"command": command, "args": args, "env": self.environment}


@dataclass
class Client:
    """What a framework does with one connection."""

    list_tools: Callable[[], Awaitable[list[str]]]
    call_tool: Callable[[str, dict[str, Any]], Awaitable[tuple[str, str]]]


# The second part of what a call gives.
RESULT, ERROR_RESULT = "result", "error result"


def kind_of(result: Any) -> str:
    """The kind of a `CallToolResult` of either major version of the Python SDK."""
    failed = getattr(result, "is_error", None) or getattr(result, "isError", None)
    return ERROR_RESULT if failed else RESULT


Connect = Callable[[Target], AbstractAsyncContextManager[Client]]


def read_target() -> Target:
    given = sys.argv[1]
    if given.startswith("stdio:"):
        return Target(None, json.loads(given.removeprefix("stdio:")))
    return Target(given, [])


def drive(connect: Connect) -> None:
    # Frameworks print to standard output; that stream is for results alone.
    results = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    asyncio.run(run(connect, results))


async def run(connect: Connect, results: Any) -> None:
    def report(op: str, **fields: Any) -> None:
        print(json.dumps({"op": op, "ok": True, **fields}), file=results, flush=True)

    under_way = "connect"
    try:
        async with connect(read_target()) as client:
            report("connect")
            while line := await asyncio.to_thread(sys.stdin.readline):
                step = json.loads(line)
                try:
                    report(step["op"], **await asyncio.wait_for(take_step(client, step), STEP_SECONDS))
                except Exception as thrown:
                    report(step["op"], ok=False, error=describe(thrown))
            under_way = "close"
        report("close")
    except BaseException as thrown:
        report(under_way, ok=False, error=describe(thrown))
        raise


async def take_step(client: Client, step: dict[str, Any]) -> dict[str, Any]:
    if step["op"] == "list":
        return {"names": await client.list_tools()}
    text, kind = await client.call_tool(step["name"], step.get("arguments") or {})
    return {"text": text, "is_error": kind == ERROR_RESULT}


def describe(thrown: BaseException) -> str:
    while isinstance(thrown, BaseExceptionGroup) and len(thrown.exceptions) == 1:
        thrown = thrown.exceptions[0]
    return f"{type(thrown).__name__}: {thrown}"[:2000]


def text_of(content: Any) -> str:
    """The text of content blocks, whatever the framework made of them."""
    if isinstance(content, str):
        return content
    if isinstance(content, dict):
        return content["text"] if isinstance(content.get("text"), str) else json.dumps(content, default=str)
    if isinstance(content, (list, tuple)):
        return "\n".join(text_of(block) for block in content)
    return content.text if isinstance(getattr(content, "text", None), str) else str(content)
