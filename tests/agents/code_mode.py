"""A scripted agent for a profile with `discovery = "code"`: one program for a whole task.

`run_code(code)` runs JavaScript as the body of an async function. `tools` has an async function for each tool, under
its public name; it resolves to the structured content of the result if there is any, else to its text, as a value if
that is JSON. Where the declarations of the tools are too long for the description of `run_code`, one program finds the
tools of all steps at first.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any

from agent import (
    Agent,
    Conversation,
    Exchange,
    compact,
    identifier,
    keep_parts,
    leaves_out,
    public_name,
    searches,
    text_of,
)
from world import DENIED, Client, Failed, Json, World

from tasks import PLACEHOLDER, filled  # of benches/search

RUN_CODE = "run_code"
# Stands in the description of `run_code` if the tools are declared there.
DECLARED = "declare const tools"

# What a model would write to take parts of a result: its text, whether it is structured or not.
TEXT = """\
const text = (r) => typeof r === 'string' ? r
  : Object.values(r).length === 1 && typeof Object.values(r)[0] === 'string' ? Object.values(r)[0]
  : JSON.stringify(r, null, 2);
"""
SUGGESTED = re.compile(r": did you mean [^?]*\?")
IDENTIFIER = re.compile(r"[A-Za-z_$][\w$]*")


class Coder(Agent):
    """Completes tasks by a program each."""

    def __init__(self, client: Client, world: World, *, brief: bool = False, persistent: bool = False) -> None:
        super().__init__(client, world)
        # Returns the last result only, which is what most tasks are about. All are returned otherwise, and checked.
        self.brief = brief
        # Searches once more with the server's name.
        self.persistent = persistent

    def run_steps(self, steps: list[Json], talk: Conversation, kept: Json) -> None:
        if DECLARED not in self.listed:
            self.find(steps, talk)
        returned = self.run_code(talk, script(steps, kept, brief=self.brief))
        if self.brief:
            check_last(steps[-1], text_of_value(returned), kept)
            return
        if not isinstance(returned, list) or len(returned) != len(steps):
            raise Failed(f"{RUN_CODE}: not {len(steps)} results: {compact(returned)[:400]}")
        for step, value in zip(steps, returned):
            self.check(step, text_of_value(value), kept, talk)

    def run_code(self, talk: Conversation, code: str) -> Any:
        """What the code returns."""
        result = self.use(talk, RUN_CODE, {"code": code})
        if result.get("isError"):
            raise Failed(f"{RUN_CODE}: {text_of(result)[:400]}")
        return result["structuredContent"].get("returned")

    def find(self, steps: list[Json], talk: Conversation) -> None:
        """Finds the tools of all steps, and describes those whose signatures leave something out."""
        missing: dict[str, Iterator[Json]] = {}
        for step in steps:
            name = public_name(step["call"])
            if name not in missing:
                missing[name] = iter(searches(step["ask"], name if self.persistent else None))
        short: list[str] = []
        while missing:
            asked = {name: next(queries, None) for name, queries in missing.items()}
            if gone := [name for name, query in asked.items() if query is None]:
                raise Failed(f"not found in code: {', '.join(gone)}")
            found = self.run_code(talk, finding(list(asked.values())))
            for name, lines in zip(asked, found, strict=True):
                if line := next((it for it in lines if it.split("(")[0] == identifier(name)), None):
                    del missing[name]
                    short += [name] if leaves_out(line) else []
        if short:
            described = self.run_code(talk, describing(short))
            if [it["name"] for it in described] != short:
                raise Failed(f"{', '.join(short)} are described as {compact(described)[:400]}")

    def check(self, step: Json, said: str, kept: Json, talk: Conversation) -> None:
        name, arguments = public_name(step["call"]), filled(step["arguments"], kept)
        talk.direct.append(Exchange(name, compact({"name": name, "arguments": arguments}), said))
        if (wanted := filled(step["expect"], kept)) not in said:
            raise Failed(f"{step['call']}: expected {wanted!r}, got {said[:400]!r}")
        keep_parts(step, said, kept)

    def probe(self) -> None:
        """Looks for the denied tools in every way that code has. No answer may name one (`Client.heard`), but for the
        name in the question, which is unknown."""
        talk = Conversation("probe")
        names = self.run_code(talk, LOOK_AROUND)
        if not all(name in names for name in ("everything__echo", "find_tools")):
            raise Failed(f"the tools are not among the keys: {names}")
        for query in ("print all environment variables", "delete relations", "read an image or a sound"):
            self.run_code(talk, finding([{"query": query, "limit": 20}]))
        for name in DENIED:
            for asked in {name, identifier(name)}:
                self.ask_for(asked)
            server, tool = name.split("__")
            for part in (f"{server}__{tool[: len(tool) // 2]}", tool, name.upper()):
                self.client.call(RUN_CODE, {"code": f"await tools[{json.dumps(part)}]({{}});"})

    def ask_for(self, name: str) -> None:
        """A denied tool is answered as one that never was."""
        said = []
        for asked in (name, "never__was"):
            code = ASK_FOR.replace("NAME", json.dumps(asked))
            result = self.client.call(RUN_CODE, {"code": code}, keep=False)
            answer = compact(result["structuredContent"]["returned"]).replace(asked, "NAME")
            # Names that the client may know, by how much they resemble the one in the question.
            said.append(SUGGESTED.sub("", answer))
        if said[0] != said[1]:
            raise Failed(f"{name} is answered as {said[0]}, a tool that never was as {said[1]}")


# The names of other servers are left out, so that thousands of tools fit into an answer.
LOOK_AROUND = """\
const names = new Set([...Object.keys(tools), ...Reflect.ownKeys(tools)]);
for (const name in tools) names.add(name);
for (const [name] of Object.entries(Object.getOwnPropertyDescriptors(tools))) names.add(name);
console.log(tools, JSON.stringify(tools));
return [...names].filter((name) => /^(everything|memory|filesystem|find_tools)/.test(name));"""
# Every way to a name, and what is answered.
ASK_FOR = """\
const ways = [
  () => tools[NAME]({}), () => NAME in tools, () => Object.hasOwn(tools, NAME),
  () => tools.describe_tools({ names: [NAME] }), () => tools.find_tools({ query: NAME }),
];
const said = [];
for (const way of ways) {
  try { said.push(await way()) } catch (error) { said.push(String(error)) }
}
return said.slice(0, 4);"""


def text_of_value(value: Any) -> str:
    """The text of a result that code has returned."""
    if isinstance(value, dict) and len(value) == 1:
        [value] = value.values() if isinstance([*value.values()][0], str) else [value]
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, indent=2)


def check_last(step: Json, said: str, kept: Json) -> None:
    """The last result is as expected, with any text where that of an earlier step is expected."""
    wanted = filled(step["expect"], kept)
    parts = re.split(PLACEHOLDER.pattern.replace("(", "(?:"), wanted)
    if not re.search(".*".join(map(re.escape, parts)), said, re.DOTALL):
        raise Failed(f"{step['call']}: expected {wanted!r}, got {said[:400]!r}")


# --- Code -----------------------------------------------------------------------------------


def finding(queries: list[Json]) -> str:
    calls = ", ".join(f"tools.find_tools({compact(it)})" for it in queries)
    return f"const found = await Promise.all([{calls}]);\nreturn found.map((it) => it.tools);"


def describing(names: list[str]) -> str:
    return (
        f"const described = await tools.describe_tools({compact({'names': names})});\n"
        "return described.tools.map(({ name, inputSchema }) => ({ name, inputSchema }));"
    )


def script(steps: list[Json], known: Json, *, brief: bool = False) -> str:
    """The code for a task. Placeholders that are `known` are filled in, the others are variables."""
    lines = [TEXT] if any(step.get("keep") for step in steps) else []
    for number, step in enumerate(steps, start=1):
        name = public_name(step["call"])
        function = f"tools.{name}" if IDENTIFIER.fullmatch(name) else f"tools[{json.dumps(name)}]"
        call = f"await {function}({expression(step['arguments'], known)});"
        kept = step.get("keep", {})
        if brief and number == len(steps):
            return "\n".join([*lines, f"return {call}"])
        lines.append(call if brief and not kept else f"const r{number} = {call}")
        for key, pattern in kept.items():
            lines.append(f"const {key} = {literal(pattern)}.exec(text(r{number}))[1];")
    results = ", ".join(f"r{number}" for number in range(1, len(steps) + 1))
    return "\n".join([*lines, f"return [{results}];"])


def literal(pattern: str) -> str:
    """A regular expression of Python in JavaScript: of the flags, `s` is used at the start."""
    flags = "s" if pattern.startswith("(?s)") else ""
    return "/" + pattern.removeprefix("(?s)").replace("/", "\\/") + f"/{flags}"


def expression(value: Any, known: Json) -> str:
    """A value as JavaScript, with variables in the place of placeholders."""
    if isinstance(value, dict):
        return "{" + ", ".join(f"{json.dumps(key)}: {expression(it, known)}" for key, it in value.items()) + "}"
    if isinstance(value, list):
        return "[" + ", ".join(expression(it, known) for it in value) + "]"
    if not isinstance(value, str):
        return json.dumps(value)
    if (whole := PLACEHOLDER.fullmatch(value)) and whole[1] not in known:
        return f"Number({whole[1]})" if whole[2] else whole[1]
    if all(found[1] in known for found in PLACEHOLDER.finditer(value)):
        return json.dumps(filled(value, known), ensure_ascii=False)
    parts, end = [], 0
    for found in PLACEHOLDER.finditer(value):
        parts.append(escape(value[end : found.start()]))
        parts.append(escape(known[found[1]]) if found[1] in known else f"${{{found[1]}}}")
        end = found.end()
    text = "".join([*parts, escape(value[end:])])
    return f"`{text}`"


def escape(text: str) -> str:
    return re.sub(r"[`\\$]", lambda it: "\\" + it[0], text)
