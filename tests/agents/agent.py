"""Scripted agents: they do what a model would do with the tools, without one."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, field
from typing import Any

from world import DENIED, SEARCH, Client, Failed, World

from tasks import filled, prepare  # of benches/search

Json = dict[str, Any]

MOST_FOUND = 20
SIGNATURE = re.compile(r"(?P<name>[\w-]+)\((?P<parameters>.*?)\)(?: — .*)?", re.DOTALL)
SCHEMA = "The schema: "


@dataclass
class Exchange:
    """A call that the model wrote, and what it was answered."""

    tool: str
    written: str
    answer: str
    refused: bool = False


@dataclass
class Conversation:
    """What the model of one task sees and writes."""

    task: str
    # The instructions, and the tools as a model is given them.
    listed: str = ""
    exchanges: list[Exchange] = field(default_factory=list)
    # The same calls, had all tools been listed.
    direct: list[Exchange] = field(default_factory=list)
    # The rank of the tool that each step needs; none where it was not found at first.
    ranks: list[int | None] = field(default_factory=list)
    fault: str | None = None


def text_of(result: Json) -> str:
    return "\n".join(it.get("text") or json.dumps(it) for it in result.get("content", []))


def listed_text(info: Json, tools: list[Json]) -> str:
    """What a client gives its model of a server: the instructions; names, descriptions and schemas."""
    shown = [{key: tool[key] for key in ("name", "description", "inputSchema") if key in tool} for tool in tools]
    return (info["instructions"] or "") + "\n" + compact(shown)


def compact(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


def public_name(call: str) -> str:
    return call.replace("/", "__", 1)


class Agent:
    """What all agents share."""

    def __init__(self, client: Client, world: World) -> None:
        self.client = client
        self.world = world
        self.listed = listed_text(client.info, client.ask("list")["tools"])

    def run(self, task: Json) -> Conversation:
        talk = Conversation(task["name"], self.listed)
        self.world.clear()
        self.world.scratch.rmdir()
        prepare(self.world.scratch, task["setup"])
        try:
            self.run_steps(task["steps"], talk, {"folder": str(self.world.scratch)})
        except Failed as why:
            talk.fault = str(why)
        return talk

    def run_steps(self, steps: list[Json], talk: Conversation, kept: Json) -> None:
        raise NotImplementedError

    def use(self, talk: Conversation, tool: str, arguments: Json) -> Json:
        result = self.client.call(tool, arguments)
        written = compact({"name": tool, "arguments": arguments})
        talk.exchanges.append(Exchange(tool, written, text_of(result), bool(result.get("isError"))))
        return result


class Caller(Agent):
    """Completes tasks where all tools are listed."""

    def run_steps(self, steps: list[Json], talk: Conversation, kept: Json) -> None:
        for step in steps:
            result = self.use(talk, public_name(step["call"]), filled(step["arguments"], kept))
            check(step, result, kept)


class Searcher(Agent):
    """Completes tasks through the tools of a profile with `discovery = "search"`."""

    def __init__(self, client: Client, world: World, *, forgetful: bool = False, persistent: bool = False) -> None:
        super().__init__(client, world)
        # Leaves out an argument at first, and has to learn from the refusal which.
        self.forgetful = forgetful
        # Remembers the tools that it has found in a task, and searches once more with the server's name.
        self.persistent = persistent
        self.known: dict[str, str] = {}

    def run_steps(self, steps: list[Json], talk: Conversation, kept: Json) -> None:
        self.known.clear()
        for step in steps:
            name = public_name(step["call"])
            schema = None
            if not self.persistent or name not in self.known:
                self.known[name] = self.find(step["ask"], name, talk)
                schema = self.describe(name, talk) if leaves_out(self.known[name]) else None
            arguments = filled(step["arguments"], kept)
            if self.forgetful and arguments:
                self.call_badly(name, arguments, schema, talk)
            result = self.use(talk, "call_tool", {"name": name, "arguments": arguments})
            talk.direct.append(Exchange(name, compact({"name": name, "arguments": arguments}), text_of(result)))
            check(step, result, kept)

    def find(self, ask: str | list[str], name: str, talk: Conversation) -> str:
        """The signature of the tool."""
        talk.ranks.append(None)
        for number, asked in enumerate(searches(ask, name if self.persistent else None)):
            lines = self.use(talk, "find_tools", asked)["structuredContent"]["tools"]
            names = [line.split("(")[0] for line in lines]
            if name in names:
                talk.ranks[-1] = names.index(name) + 1 if number == 0 else None
                return lines[names.index(name)]
        raise Failed(f"{name} is not found by {asked['query']!r}, but {', '.join(names)}")

    def describe(self, name: str, talk: Conversation) -> Json:
        result = self.use(talk, "describe_tools", {"names": [name]})
        [tool] = result["structuredContent"]["tools"]
        if tool["name"] != name:
            raise Failed(f"{name} is described as {tool['name']}")
        return tool["inputSchema"]

    def call_badly(self, name: str, arguments: Json, schema: Json | None, talk: Conversation) -> None:
        """A call without an argument is either right without it or refused with the schema."""
        schema = schema or self.describe(name, Conversation(""))
        needed = [it for it in schema.get("required", []) if it in arguments]
        if not needed:
            return
        rest = {key: value for key, value in arguments.items() if key != needed[0]}
        result = self.use(talk, "call_tool", {"name": name, "arguments": rest})
        text = text_of(result)
        if not result.get("isError") or SCHEMA not in text:
            raise Failed(f"{name}: a call without {needed[0]} is not refused with the schema: {text[:400]}")
        said = json.loads(text.split(SCHEMA, 1)[1])
        if needed[0] not in text.split(SCHEMA)[0] or needed[0] not in said["properties"]:
            raise Failed(f"{name}: the refusal does not tell of {needed[0]}: {text[:400]}")

    def probe(self) -> None:
        """Looks for the denied tools in every way that there is. The answers must name none (`Client.heard`), but for
        the name in the question, which is unknown."""
        for query in ("print all environment variables", "delete relations", "read an image or a sound", *DENIED):
            for more in ({}, {"limit": MOST_FOUND}, {"kind": "prompts"}, {"kind": "resources"}):
                self.client.call("find_tools", {"query": query, **more})
        for name in DENIED:
            server, tool = name.split("__")
            self.client.call("call_tool", {"name": f"{server}__{tool[: len(tool) // 2]}"})
            for meta, arguments in (("call_tool", {"name": name}), ("describe_tools", {"names": [name]})):
                answer = text_of(self.client.call(meta, arguments, keep=False))
                if answer.count(name) != 1 or "there is no tool" not in answer.lower():
                    raise Failed(f"{name} is not answered as an unknown name by {meta}: {answer}")


def searches(ask: str | list[str], name: str | None) -> list[Json]:
    """The arguments of `find_tools`, one after the other until the tool is found: the queries; more answers to the
    last; with a name, also the query with the server's name, which the model has read."""
    queries = [ask] if isinstance(ask, str) else ask
    found = [*({"query": it} for it in queries), {"query": queries[-1], "limit": MOST_FOUND}]
    if name:
        found.append({"query": f"{name.split('__')[0]} {queries[0]}", "limit": MOST_FOUND})
    return found


def leaves_out(signature: str) -> bool:
    """Whether parameters are not shown in full."""
    found = SIGNATURE.fullmatch(signature)
    if not found:
        raise Failed(f"not a signature: {signature!r}")
    return "*" in found["parameters"] or "…" in found["parameters"]


def identifier(name: str) -> str:
    """The name of a tool's function in code."""
    return re.sub(r"\W", "_", name)


def check(step: Json, result: Json, kept: Json) -> None:
    text = text_of(result)
    wanted = filled(step["expect"], kept)
    if result.get("isError") or wanted not in text:
        raise Failed(f"{step['call']}: expected {wanted!r}, got {text[:400]!r}")
    keep_parts(step, text, kept)


def keep_parts(step: Json, text: str, kept: Json) -> None:
    for name, pattern in step.get("keep", {}).items():
        found = re.search(pattern, text)
        if not found:
            raise Failed(f"{step['call']}: nothing to keep as {name} in {text[:400]!r}")
        kept[name] = found[1]


def named_denied(client: Client) -> list[str]:
    """The denied tools that were named in any answer, also as functions of code, with what was said around them."""
    faults = []
    for line in client.heard:
        for name in {form for name in DENIED for form in (name, identifier(name))}:
            if (at := line.find(name)) >= 0:
                faults.append(f"{name} is named: …{line[max(0, at - 200) : at + 200]}…")
    return faults
