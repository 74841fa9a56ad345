"""A scripted agent for a profile whose clients write code: one call of `run_code` for a whole task.

What is expected of the gateway is kept in the constants below: `run_code(code)` runs JavaScript as the body of an
async function. `tools` has an async function for each tool, under its public name; it takes the arguments, and
resolves to the structured content of the result if there is any, else to its text. What the code returns is
the result of the call.
"""

from __future__ import annotations

import json
import re
from typing import Any

from agent import Conversation, Exchange, compact, listed_text, public_name, text_of
from world import Client, Failed, Json, World

from tasks import PLACEHOLDER, filled, prepare  # of benches/search

# The tool, its argument, and what switches it on in a profile.
RUN_CODE = "run_code"
CODE = "code"
CODE_PROFILE = "code = true\n"

# What a model would write at the top: the text of a result, whether it is structured or not.
PREAMBLE = """\
const text = (r) => typeof r === 'string' ? r
  : Object.values(r).length === 1 && typeof Object.values(r)[0] === 'string' ? Object.values(r)[0]
  : JSON.stringify(r, null, 2);
"""
IDENTIFIER = re.compile(r"[A-Za-z_$][\w$]*")


class Coder:
    """Completes tasks by one call of `run_code` each."""

    def __init__(self, client: Client, world: World) -> None:
        self.client = client
        self.world = world

    def run(self, task: Json) -> Conversation:
        talk = Conversation(task["name"])
        self.world.clear()
        self.world.scratch.rmdir()
        prepare(self.world.scratch, task["setup"])
        try:
            talk.listed = listed_text(self.client.info, self.client.ask("list")["tools"])
            self.run_steps(task["steps"], talk)
        except Failed as why:
            talk.fault = str(why)
        return talk

    def run_steps(self, steps: list[Json], talk: Conversation) -> None:
        kept: Json = {"folder": str(self.world.scratch)}
        arguments = {CODE: script(steps, kept)}
        result = self.client.call(RUN_CODE, arguments)
        answer = text_of(result)
        talk.exchanges.append(Exchange(RUN_CODE, compact({"name": RUN_CODE, "arguments": arguments}), answer))
        if result.get("isError"):
            raise Failed(f"{RUN_CODE}: {answer[:400]}")
        try:
            said = json.loads(answer)
        except ValueError as fault:
            raise Failed(f"{RUN_CODE}: not JSON: {answer[:400]!r}") from fault
        if not isinstance(said, list) or len(said) != len(steps):
            raise Failed(f"{RUN_CODE}: not {len(steps)} texts: {answer[:400]!r}")
        for step, part in zip(steps, said):
            self.check(step, part, kept, talk)

    def check(self, step: Json, said: str, kept: Json, talk: Conversation) -> None:
        name, arguments = public_name(step["call"]), filled(step["arguments"], kept)
        talk.direct.append(Exchange(name, compact({"name": name, "arguments": arguments}), said))
        if (wanted := filled(step["expect"], kept)) not in said:
            raise Failed(f"{step['call']}: expected {wanted!r}, got {said[:400]!r}")
        for key, pattern in step.get("keep", {}).items():
            if not (found := re.search(pattern, said)):
                raise Failed(f"{step['call']}: nothing to keep as {key} in {said[:400]!r}")
            kept[key] = found[1]


def script(steps: list[Json], known: Json) -> str:
    """The code for a task. Placeholders that are `known` are filled in, the others are variables."""
    lines = [PREAMBLE]
    for number, step in enumerate(steps, start=1):
        name = public_name(step["call"])
        function = f"tools.{name}" if IDENTIFIER.fullmatch(name) else f"tools[{json.dumps(name)}]"
        arguments = expression(step["arguments"], known)
        lines.append(f"const r{number} = text(await {function}({arguments}));")
        for key, pattern in step.get("keep", {}).items():
            lines.append(f"const {key} = {literal(pattern)}.exec(r{number})[1];")
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
