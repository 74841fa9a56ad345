#!/usr/bin/env python3
"""What tasks of several steps take through each kind of profile, as the tables of docs/context.md.

    table.py GATEWAY_BIN [--sdk NAME] [--only SIZE]...

The tasks of three steps or more of benches/search/tasks.json, with few servers, with all six, and with servers beside
them that only list tools. `--only` takes one of the sizes: memory, filesystem, git, six, medium200, medium, large. The
same tasks count for every profile of a size: those that were completed in all of them. All figures are means. The tokens
are the same in each run, but for those of times of other lengths.
"""

from __future__ import annotations

import argparse
import json
import re
import statistics
import sys
import time
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from agent import Agent, Caller, Conversation, Exchange, Json, Searcher
from code_mode import Coder
from run_agent import Tokens
from world import SDKS, Client, Subsets, World, decoys_of, world_of

from tasks import TASKS  # of benches/search

SUBSETS: Subsets = {
    "memory": ["memory"],
    "filesystem": ["filesystem"],
    "git": ["filesystem", "git"],
}
# Servers beside the six.
CORPORA = ("medium200", "medium", "large")
SIZES = (*SUBSETS, "six", *CORPORA)
FEWEST_STEPS = 3
STEADY_SECONDS = 2

# What differs between two runs: the folder, hashes, and times.
VARYING = (
    (r"\b[0-9a-f]{40}\b", "0123456789abcdef0123456789abcdef01234567"),
    (r"\b(?=[0-9a-f]*\d)[0-9a-f]{7}\b", "0123abc"),
    (r"\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d(\.\d+)?", "2026-11-23T12:00:00"),
    (r"(Mon|Tue|Wed|Thu|Fri|Sat|Sun)\w* (\w{3} \d\d? (\d{4} )?)?\d\d:\d\d:\d\d", "Mon Nov 23 12:00:00"),
    (r"(Mon|Tues|Wednes|Thurs|Fri|Satur|Sun)day", "Monday"),
)

# A row: its label, the profile that is served, and how the agent works there.
ROWS = {
    "all": ("all", Caller, {}),
    "all, `slim`": ("slim", Caller, {}),
    "search": ("search", Searcher, {"persistent": True}),
    "code": ("code", Coder, {"persistent": True, "brief": True}),
    "code, all results": ("code", Coder, {"persistent": True}),
    "code that finds": ("find", Coder, {"persistent": True, "brief": True}),
}


@dataclass
class Run:
    """The tasks through one profile."""

    size: str
    row: str
    tools: int
    talks: dict[str, Conversation]

    def done(self) -> set[str]:
        return {name for name, talk in self.talks.items() if not talk.fault}


def tasks_of(size: str) -> list[Json]:
    """The tasks of several steps that need no other servers than those of the size."""
    servers = SUBSETS.get(size)
    tasks = [it for it in json.loads(TASKS.read_text()) if len(it["steps"]) >= FEWEST_STEPS]
    needed = {it["name"]: {step["call"].split("/")[0] for step in it["steps"]} for it in tasks}
    return [it for it in tasks if servers is None or needed[it["name"]] <= {*servers}]


def run_size(size: str, sdk: str, world: World) -> Iterable[Run]:
    tasks = tasks_of(size)
    suffix = f"-{size}" if size in SUBSETS else ""
    tools = count_tools(sdk, world.url(f"all{suffix}"), world)
    for row, (profile, kind, settings) in ROWS.items():
        client = Client(sdk, world.url(profile + suffix), world.folder / "client.log")
        try:
            agent: Agent = kind(client, world, **settings)
            talks = {task["name"]: steady(agent.run(task), world) for task in tasks}
            yield Run(size, row, tools, talks)
        finally:
            client.close()


def count_tools(sdk: str, url: str, world: World) -> int:
    """How many tools are listed, once it is the same number for a while: a server adds some when it knows what its
    client can do."""
    client = Client(sdk, url, world.folder / "client.log")
    try:
        known = 0
        while (count := len(client.ask("list")["tools"])) != known:
            known = count
            time.sleep(STEADY_SECONDS)
        return known
    finally:
        client.close()


def steady(talk: Conversation, world: World) -> Conversation:
    """The same texts in each run."""

    def same(text: str) -> str:
        text = text.replace(str(world.folder), "/srv/agent")
        for pattern, instead in VARYING:
            text = re.sub(pattern, instead, text)
        return text

    talk.listed = same(talk.listed)
    talk.exchanges = [Exchange(it.tool, same(it.written), same(it.answer), it.refused) for it in talk.exchanges]
    return talk


def run_all(gateway: Path, sdk: str, sizes: list[str]) -> list[Run]:
    runs: list[Run] = []
    for corpus in (None, *CORPORA):
        here = [it for it in sizes if (it if it in CORPORA else None) == corpus]
        if not here:
            continue
        with decoys_of(corpus) as decoys, world_of(gateway, decoys, SUBSETS) as world:
            for size in here:
                print(f"{size} …", file=sys.stderr)
                runs += run_size(size, sdk, world)
    return runs


def print_tables(runs: list[Run]) -> None:
    texts = [it for run in runs for talk in run.talks.values() for it in talk.exchanges]
    listed = {talk.listed for run in runs for talk in run.talks.values()}
    tokens = Tokens(listed | {text for it in texts for text in (it.written, it.answer)})

    def task(talks: list[Conversation]) -> str:
        passed = (sum(tokens.of(it.written) + tokens.of(it.answer) for it in talk.exchanges) for talk in talks)
        return f"{tokens.of(talks[0].listed):,} + {statistics.mean(passed):,.0f}"

    def read(talks: list[Conversation]) -> str:
        requests = statistics.mean(len(talk.exchanges) + 1 for talk in talks)
        return f"{statistics.mean(tokens.read(talk.listed, talk.exchanges) for talk in talks):,.0f} ({requests:.1f})"

    for title, cell in (("The list + what passes through the model in a task", task),
                        ("Read in all requests of a task (requests)", read)):
        print(f"\n{title}:\n\n| tools | tasks | {' | '.join(ROWS)} |\n|--:|--:|{'--:|' * len(ROWS)}")
        for size in dict.fromkeys(run.size for run in runs):
            here = [run for run in runs if run.size == size]
            common = set.intersection(*(run.done() for run in here))
            cells = [cell([run.talks[name] for name in run.talks if name in common]) for run in here if common]
            print(f"| {here[0].tools:,} | {len(common)} | {' | '.join(cells)} |")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("gateway", type=Path)
    parser.add_argument("--sdk", choices=list(SDKS), default="python-2")
    parser.add_argument("--only", action="append", choices=SIZES)
    given = parser.parse_args()
    runs = run_all(given.gateway.resolve(), given.sdk, given.only or list(SIZES))
    print_tables(runs)
    for run in runs:
        for name, talk in run.talks.items():
            if talk.fault:
                print(f"{run.size}, {run.row}: {name}: {talk.fault[:300]}", file=sys.stderr)
    return 0


if __name__ == "__main__":
    sys.exit(main())
