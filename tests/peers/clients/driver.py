"""What the Python drivers share: the command line, the steps, the lines they print.

README.md, next folder up, describes both. An SDK's own part is an async context
manager that yields a peer: see py_v1.py and py_v2.py.
"""

from __future__ import annotations

import argparse
import json
import logging
import os
import sys
import time
from collections.abc import Awaitable, Callable
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field
from typing import Any, Protocol

import anyio

WHOLE_RUN_SECONDS = 180
STEP_SECONDS = 20
# Times that a list is begun anew, and the time before.
STALE_LISTS = 20
RELIST_SECONDS = 0.1

Json = dict[str, Any]
OnProgress = Callable[[float, float | None, str | None], Awaitable[None]]


class TimedOut(Exception):
    code = "timeout"


class NotConnected(Exception):
    code = None


class Heard:
    """What was heard from the server, by kind; `until` awaits one that nobody has waited for yet.

    A kind is `tools`, `prompts` or `resources` for a list that changed, `updated URI`, or `log`.
    """

    def __init__(self) -> None:
        self._unseen: dict[str, list[Any]] = {}
        self._wake = anyio.Event()

    def arrived(self, kind: str, what: Any = None) -> None:
        self._unseen.setdefault(kind, []).append(what)
        self._wake.set()

    def forget(self) -> None:
        self._unseen.clear()

    def take(self, kind: str) -> list[Any]:
        return self._unseen.pop(kind, [])

    async def until(self, kind: str, timeout_ms: float) -> Json:
        with anyio.move_on_after(timeout_ms / 1000):
            while kind not in self._unseen:
                self._wake = anyio.Event()
                await self._wake.wait()
        count = len(self.take(kind))
        if count == 0:
            raise TimedOut(f"no {kind} in {timeout_ms} ms")
        return {"count": count}


def filled(schema: Json) -> Json:
    """What a user would put into a form."""

    def fill(name: str, field: Json) -> Any:
        if "enum" in field:
            return field["enum"][0]
        return {"boolean": True, "number": 1, "integer": 1}.get(field.get("type", ""), f"a {name}")

    return {name: fill(name, field) for name, field in schema.get("properties", {}).items()}


class Answers:
    """What the client answers when a server asks it, as on the wire; and `asked`, the methods in order."""

    def __init__(self) -> None:
        self.asked: list[str] = []

    def elicitation(self, params: Json) -> Json:
        if params.get("mode") == "url":
            self.asked.append("elicitation/create url")
            return {"action": "accept"}
        self.asked.append("elicitation/create")
        return {"action": "accept", "content": filled(params["requestedSchema"])}

    def sampling(self, params: Json) -> Json:
        self.asked.append("sampling/createMessage")
        content = params["messages"][-1]["content"]
        first = content[0] if isinstance(content, list) else content
        said = {"type": "text", "text": f"sampled: {first['text']}"}
        return {"role": "assistant", "model": "a-model", "stopReason": "endTurn", "content": said}

    def roots(self) -> Json:
        self.asked.append("roots/list")
        return {"roots": [{"uri": "file:///a/root", "name": "a root"}]}


NextPage = Callable[[str | None], Awaitable[tuple[list[Any], str | None]]]


async def pages(next_page: NextPage) -> Json:
    """Walks the pages of a list. Starts again if the list has changed since the first page: replicas learn
    of a change one after the other."""
    for _ in range(STALE_LISTS):
        try:
            return await _pages_once(next_page)
        except Exception as error:
            if "stale cursor" not in str(error):
                raise
        await anyio.sleep(RELIST_SECONDS)
    return await _pages_once(next_page)


async def _pages_once(next_page: NextPage) -> Json:
    items: list[Json] = []
    cursor: str | None = None
    count = 0
    while True:
        more, cursor = await next_page(cursor)
        items += [wire(item) for item in more]
        count += 1
        if cursor is None:
            return {"items": items, "pages": count}


class GetStream:
    """Tells when the Legacy GET stream was answered: what a server says on it before is lost."""

    def __init__(self) -> None:
        self._answered = anyio.Event()

    async def hook(self, response: Any) -> None:
        """For the HTTP client's `response` event."""
        if response.request.method == "GET":
            self._answered.set()

    async def opened(self) -> None:
        with anyio.move_on_after(2):
            await self._answered.wait()


def command_in(target: str) -> list[str] | None:
    """The words of a command where the target is `stdio:["COMMAND", "ARGUMENT", …]`."""
    return json.loads(target.removeprefix("stdio:")) if target.startswith("stdio:") else None


def sse_in(target: str) -> str | None:
    """The URL where the target is `sse:URL`, of a server on the transport of 2024-11-05."""
    return target.removeprefix("sse:") if target.startswith("sse:") else None


@dataclass
class Options:
    url: str
    era: str
    headers: dict[str, str]
    listens: bool
    heard: Heard = field(default_factory=Heard)
    answers: Answers = field(default_factory=Answers)


class Peer(Protocol):
    info: Json

    async def list_tools(self) -> Json: ...

    async def list_prompts(self) -> Json: ...

    async def list_resources(self) -> Json: ...

    async def list_templates(self) -> Json: ...

    async def get_prompt(self, name: str, arguments: Json) -> Json: ...

    async def read(self, uri: str) -> Json: ...

    async def complete(self, ref: Json, argument: Json) -> Json: ...

    async def subscribe(self, uri: str) -> None: ...

    async def log_from(self, level: str) -> None:
        """Have log lines from this level on: of the calls after this one."""
        ...

    async def call(self, name: str, arguments: Json, on_progress: OnProgress | None) -> Json: ...

    async def call_task(self, name: str, arguments: Json) -> Json:
        """Of the SDK 1.x alone."""
        ...

    async def cancel(self, scope: anyio.CancelScope) -> None:
        """Cancel the call in flight the way this SDK does; `scope` holds the task that awaits it."""
        ...

    async def ping(self) -> Json: ...


def wire(model: Any) -> Json:
    """As it came: no field that the SDK adds to what it parsed."""
    return model.model_dump(by_alias=True, mode="json", exclude_unset=True)


def as_error(thrown: BaseException) -> Json:
    while isinstance(thrown, BaseExceptionGroup) and len(thrown.exceptions) == 1:
        thrown = thrown.exceptions[0]
    detail = getattr(thrown, "error", None)
    error: Json = {
        "code": getattr(detail, "code", getattr(thrown, "code", None)),
        "message": getattr(detail, "message", str(thrown)),
        "name": type(thrown).__name__,
    }
    if getattr(detail, "data", None) is not None:
        error["data"] = detail.data
    return error


async def call(peer: Peer, step: Json, on_progress: OnProgress | None = None) -> Json:
    return await peer.call(step["name"], step.get("arguments") or {}, on_progress)


def seen(progress: float, total: float | None, message: str | None) -> Json:
    def plain(number: float | None) -> float | None:  # the SDK makes floats of all numbers
        return int(number) if number is not None and number == int(number) else number

    notification = {"progress": plain(progress), "total": plain(total), "message": message}
    return {key: value for key, value in notification.items() if value is not None}


async def op_list(peer: Peer, options: Options, step: Json) -> Json:
    listed = await peer.list_tools()
    return {"names": [tool["name"] for tool in listed["items"]], "tools": listed["items"], "pages": listed["pages"]}


async def op_list_prompts(peer: Peer, options: Options, step: Json) -> Json:
    return await peer.list_prompts()


async def op_list_resources(peer: Peer, options: Options, step: Json) -> Json:
    return await peer.list_resources()


async def op_list_templates(peer: Peer, options: Options, step: Json) -> Json:
    return await peer.list_templates()


async def op_get_prompt(peer: Peer, options: Options, step: Json) -> Json:
    return await peer.get_prompt(step["name"], step.get("arguments") or {})


async def op_read(peer: Peer, options: Options, step: Json) -> Json:
    return await peer.read(step["uri"])


async def op_complete(peer: Peer, options: Options, step: Json) -> Json:
    return await peer.complete(step["ref"], step["argument"])


async def op_subscribe(peer: Peer, options: Options, step: Json) -> Json:
    await peer.subscribe(step["uri"])
    return {}


async def op_call(peer: Peer, options: Options, step: Json) -> Json:
    """With `progress`, `asked` or `log_level` gives those of this call beside its result."""
    if not any(step.get(extra) for extra in ("progress", "asked", "log_level")):
        return await call(peer, step)
    progress: list[Json] = []

    async def on_progress(*what: Any) -> None:
        progress.append(seen(*what))

    options.heard.take("log")
    options.answers.asked = []
    if step.get("log_level"):
        await peer.log_from(step["log_level"])
    told: Json = {"result": await call(peer, step, on_progress if step.get("progress") else None)}
    await anyio.sleep(step.get("settle_ms", 0) / 1000)
    if step.get("progress"):
        told["progress"] = progress
    if step.get("asked"):
        told["asked"] = options.answers.asked
    if step.get("log_level"):
        told["logs"] = options.heard.take("log")
    return told


async def op_call_task(peer: Peer, options: Options, step: Json) -> Json:
    """Has the call become a task; gives what it was when it began, and what came of it."""
    return await peer.call_task(step["name"], step.get("arguments") or {})


async def op_call_cancel(peer: Peer, options: Options, step: Json) -> Json:
    progress: list[Json] = []
    outcome: Json = {"cancelled": True}
    due = anyio.Event()
    done = anyio.Event()
    started = time.monotonic()

    async def on_progress(*what: Any) -> None:
        progress.append(seen(*what))
        if len(progress) == step.get("after_progress"):
            due.set()

    async def run() -> None:
        try:
            result = await call(peer, step, on_progress)
            outcome.update(cancelled=False, result=result)
        except Exception as thrown:
            # What a server answers to a cancelled call; before that, a failure like any other.
            outcome.update(error=as_error(thrown), cancelled=due.is_set())
        finally:
            done.set()

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(run)
        if "after_progress" in step:
            tasks.start_soon(due_when_done, due, done)
            await due.wait()
        else:
            with anyio.move_on_after(step.get("after_ms", 300) / 1000):
                await done.wait()
        if not done.is_set():
            due.set()
            await peer.cancel(tasks.cancel_scope)
    outcome["elapsed_ms"] = round((time.monotonic() - started) * 1000)
    await anyio.sleep(step.get("settle_ms", 200) / 1000)
    return {**outcome, "progress": progress}


async def due_when_done(due: anyio.Event, done: anyio.Event) -> None:
    """Wake the canceller when the call ended before the progress it waited for."""
    await done.wait()
    due.set()


async def op_wait_list_changed(peer: Peer, options: Options, step: Json) -> Json:
    return await options.heard.until("tools", step.get("timeout_ms", 5000))


async def op_call_and_wait_list_changed(peer: Peer, options: Options, step: Json) -> Json:
    """`for` is what to wait for, a kind that Heard knows; the list of tools unless given."""
    options.heard.forget()
    result = await call(peer, step)
    return {"result": result, **await options.heard.until(step.get("for", "tools"), step.get("timeout_ms", 5000))}


async def op_ping(peer: Peer, options: Options, step: Json) -> Json:
    return await peer.ping()


async def op_sleep(peer: Peer, options: Options, step: Json) -> Json:
    await anyio.sleep(step.get("ms", 100) / 1000)
    return {}


OPS: dict[str, Callable[[Peer, Options, Json], Awaitable[Json]]] = {
    "list": op_list,
    "list_prompts": op_list_prompts,
    "list_resources": op_list_resources,
    "list_templates": op_list_templates,
    "get_prompt": op_get_prompt,
    "read": op_read,
    "complete": op_complete,
    "subscribe": op_subscribe,
    "call": op_call,
    "call_task": op_call_task,
    "call_cancel": op_call_cancel,
    "wait_list_changed": op_wait_list_changed,
    "call_and_wait_list_changed": op_call_and_wait_list_changed,
    "ping": op_ping,
    "sleep": op_sleep,
}


def report(step: int, op: str, result: Json | None = None, error: Json | None = None) -> None:
    line: Json = {"step": step, "op": op, "ok": error is None}
    line.update({"result": result} if error is None else {"error": error})
    print(json.dumps(line, ensure_ascii=False), flush=True)


def fault(words: str) -> None:
    print(f"driver: {words}", file=sys.stderr)
    sys.exit(2)


Connect = Callable[[Options], AbstractAsyncContextManager[Peer]]


class Script:
    """The steps: an array that is known from the start, or lines that come while the driver runs."""

    def __init__(self, steps: list[Json] | None) -> None:
        self.known = steps
        self.taken = 0

    async def next(self) -> tuple[int, Json] | None:
        """The next step and its number."""
        if self.known is not None:
            step = self.known[self.taken] if self.taken < len(self.known) else None
        else:
            step = parse_step(await anyio.to_thread.run_sync(sys.stdin.readline))
        self.taken += 1
        return None if step is None else (self.taken, step)

    def rest(self) -> list[tuple[int, Json]]:
        """The known steps that were not taken."""
        return list(enumerate(self.known or [], start=1))[self.taken :]


def parse_step(line: str) -> Json | None:
    if not line.strip():
        return None
    step = json.loads(line)
    check_step(step)
    return step


def check_step(step: Json) -> None:
    if step["op"] != "close" and step["op"] not in OPS:
        fault(f"no such op: {step['op']}")


async def run(connect: Connect, options: Options, script: Script) -> None:
    under_way: tuple[int, str] | None = (0, "connect")
    try:
        async with connect(options) as peer:
            report(0, "connect", peer.info)
            under_way = None
            while (numbered := await script.next()) is not None:
                index, step = numbered
                under_way = (index, step["op"])
                if step["op"] == "close":
                    break
                try:
                    with anyio.fail_after(STEP_SECONDS):
                        result = await OPS[step["op"]](peer, options, step)
                    report(index, step["op"], result)
                except Exception as thrown:
                    report(index, step["op"], error=as_error(thrown))
                under_way = None
        if under_way is not None:
            report(*under_way, {})
    except Exception as thrown:
        # Connecting or closing failed; or the SDK gave up the connection in mid-step, as 1.x does
        # when one request is answered with an HTTP error.
        if under_way is not None:
            report(*under_way, error=as_error(thrown))
        else:
            print(f"driver: closing failed: {as_error(thrown)}", file=sys.stderr)
    for index, step in script.rest():
        report(index, step["op"], error=as_error(NotConnected("not connected")))


def drive(eras: tuple[str, ...], connect: Connect) -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("url")
    parser.add_argument("--era", choices=("legacy", "modern", "auto"), default="auto")
    parser.add_argument("--header", action="append", default=[], metavar="NAME: VALUE")
    parser.add_argument("--lines", action="store_true", help="a step a line, each done before the next is read")
    arguments = parser.parse_args()
    if arguments.era not in eras:
        fault(f"this SDK has no {arguments.era} era")
    logging.basicConfig(stream=sys.stderr, level=logging.ERROR)

    steps = None if arguments.lines else json.loads(sys.stdin.read() or "[]")
    for step in steps or []:
        check_step(step)
    headers = dict(tuple(part.strip() for part in header.split(":", 1)) for header in arguments.header)
    options = Options(
        url=arguments.url,
        era=arguments.era,
        headers=headers,
        listens=any("wait_list_changed" in step["op"] for step in steps or []),
    )

    async def bounded() -> None:
        with anyio.fail_after(WHOLE_RUN_SECONDS if steps is not None else None):
            await run(connect, options, Script(steps))

    try:
        anyio.run(bounded)
    except TimeoutError:
        print(f"driver: not done in {WHOLE_RUN_SECONDS} s", file=sys.stderr)
        sys.stdout.flush()
        os._exit(124)
