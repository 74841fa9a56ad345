#!/usr/bin/env python3
"""Lets a scripted agent complete the tasks of benches/search/tasks.json through a gateway.

    run_agent.py GATEWAY_BIN [OPTIONS]

    --sdk NAME        the official SDK of the client: python-1, python-2, typescript-1, typescript-2;
                      repeatable, all four unless given
    --jobs N          gateways side by side for each SDK (1)
    --only PATTERN    tasks by name
    --decoys CORPUS   more servers beside those of the tasks: small, medium200, medium, large
    --forgetful       the agent leaves out an argument at first, and learns from the refusal
    --profile NAME    what the agent works through: search; code, one program for a whole task; find, where code has
                      to find the tools; all, where all tools are listed; slim, the same with short definitions
    --failures N      passes with so many tasks failed, for measuring with decoys (0)

`setup.sh` installs what it needs. Fails if a task is not completed, or if a tool that the agent's principal may not
use is named in any answer. README.md says what is measured.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from itertools import accumulate
from pathlib import Path

from agent import Agent, Caller, Conversation, Exchange, Json, Searcher, listed_text, named_denied
from code_mode import Coder
from world import HERE, NODE, PROFILES, SDKS, Client, Failed, World, decoys_of, world_of

from tasks import TASKS  # of benches/search


@dataclass(frozen=True)
class Options:
    """What is run."""

    gateway: Path
    sdks: list[str]
    profile: str = "search"
    jobs: int = 1
    only: str = "*"
    decoys: str | None = None
    forgetful: bool = False


@dataclass
class Report:
    """What one SDK did."""

    sdk: str
    talks: list[Conversation] = field(default_factory=list)
    # What a client's model is given where all tools are listed.
    everything: str = ""
    tools: int = 0
    faults: list[str] = field(default_factory=list)

    @property
    def failed(self) -> list[Conversation]:
        return [talk for talk in self.talks if talk.fault]


def run_all(options: Options) -> list[Report]:
    """All tasks with each SDK."""
    tasks = [it for it in json.loads(TASKS.read_text()) if fnmatchcase(it["name"], options.only)]
    jobs = min(options.jobs, len(tasks))
    with decoys_of(options.decoys) as decoys, ThreadPoolExecutor(2 * jobs) as pool:
        shares = [(sdk, tasks[share::jobs]) for sdk in options.sdks for share in range(jobs)]
        work = [pool.submit(run_worker, options, sdk, decoys, some) for sdk, some in shares]
        reports = [it.result() for it in work]
    return [merge([it for it in reports if it.sdk == sdk]) for sdk in options.sdks]


def run_worker(options: Options, sdk: str, decoys: dict[str, str], tasks: list[Json]) -> Report:
    """Some of the tasks, one after the other, at a gateway of their own."""
    report = Report(sdk)
    with world_of(options.gateway, decoys) as world:
        client = Client(sdk, world.url(options.profile), world.folder / "client.log")
        try:
            agent = agent_of(options, client, world)
            report.talks = [agent.run(task) for task in tasks]
            if isinstance(agent, Searcher | Coder):
                agent.probe()
            report.faults += named_denied(client)
        except Failed as why:
            report.faults.append(str(why))
        finally:
            client.close()
        list_everything(report, sdk, world)
    return report


def agent_of(options: Options, client: Client, world: World) -> Agent:
    match options.profile:
        case "search":
            return Searcher(client, world, forgetful=options.forgetful)
        case "code" | "find":
            return Coder(client, world)
    return Caller(client, world)


def list_everything(report: Report, sdk: str, world: World) -> None:
    client = Client(sdk, world.url("all"), world.folder / "client.log")
    try:
        listed = client.ask("list")["tools"]
        report.everything, report.tools = listed_text(client.info, listed), len(listed)
        report.faults += named_denied(client)
    finally:
        client.close()


def merge(reports: list[Report]) -> Report:
    merged = reports[0]
    for report in reports[1:]:
        merged.talks += report.talks
        merged.faults += report.faults
    return merged


# Tokens with everything listed, and with the meta-tools.
Count = Callable[[Report, Conversation], tuple[int, int]]


# --- Tokens ---------------------------------------------------------------------------------


class Tokens:
    """Counts of tokens, all made at once."""

    def __init__(self, texts: set[str]) -> None:
        ordered = sorted(texts)
        command = [str(NODE), str(HERE / "tokens.mjs")]
        counted = subprocess.run(command, input=json.dumps(ordered), capture_output=True, text=True, check=True)
        self.counts = dict(zip(ordered, json.loads(counted.stdout), strict=True))

    def of(self, text: str) -> int:
        return self.counts[text]

    def to_discover(self, report: Report, talk: Conversation) -> tuple[int, int]:
        """The context that it takes to know and call the tools: the list, all calls, and the answers but for the
        tools' own results, which are the same however a tool is found."""
        asked = [it for it in talk.exchanges if it.refused or it.tool in ("find_tools", "describe_tools")]
        direct = self.of(report.everything) + sum(self.of(it.written) for it in talk.direct)
        written = sum(self.of(it.written) for it in talk.exchanges)
        return direct, self.of(talk.listed) + written + sum(self.of(it.answer) for it in asked)

    def to_read(self, report: Report, talk: Conversation) -> tuple[int, int]:
        """What a model reads in all requests of a task, results included: each has the whole context so far."""

        return self.read(report.everything, talk.direct), self.read(talk.listed, talk.exchanges)

    def read(self, listed: str, exchanges: list[Exchange]) -> int:
        added = (self.of(it.written) + self.of(it.answer) for it in exchanges)
        return sum(accumulate(added, initial=self.of(listed)))


def texts_of(report: Report) -> set[str]:
    exchanges = [it for talk in report.talks for it in (*talk.exchanges, *talk.direct)]
    return {report.everything, *(talk.listed for talk in report.talks)} | {
        text for it in exchanges for text in (it.written, it.answer)
    }


# --- What is printed ------------------------------------------------------------------------


def print_report(report: Report, tokens: Tokens) -> None:
    done = [talk for talk in report.talks if not talk.fault]
    for talk in report.failed:
        print(f"FAILED  {report.sdk}  {talk.task}: {talk.fault}")
    for fault in report.faults:
        print(f"FAULT   {report.sdk}  {fault}")
    steps = sum(len(talk.direct) for talk in done)
    what = f"{report.sdk} ({SDKS[report.sdk][1]}), {report.tools} tools"
    print(f"\n{what}: {len(done)} of {len(report.talks)} tasks, {steps} steps")
    ranks = [rank for talk in report.talks for rank in talk.ranks]
    if ranks:
        counts = ", ".join(f"{label} {sum(map(is_it, ranks))}" for label, is_it in RANKS.items())
        print(f"  rank of the tool among the answers to the first query: {counts}")
    calls = [it.tool for talk in done for it in talk.exchanges]
    print("  calls: " + ", ".join(f"{calls.count(it)} {it}" for it in dict.fromkeys(calls)))
    print_tokens("tokens to know and call the tools", report, done, tokens.to_discover)
    print_tokens("tokens read in all requests of a task", report, done, tokens.to_read)


RANKS = {
    "1st": lambda rank: rank == 1,
    "2nd or 3rd": lambda rank: rank in (2, 3),
    "4th to 6th": lambda rank: rank is not None and rank > 3,
    "not by the first query": lambda rank: rank is None,
}


def print_tokens(what: str, report: Report, done: list[Conversation], count: Count) -> None:
    if not done:
        return
    pairs = [count(report, talk) for talk in done]
    print(f"  {what}, median and sum of the tasks")
    for label, values in zip(("everything listed", "in this profile"), zip(*pairs)):
        print(f"    {label:<20} {statistics.median(values):>10,.0f} {sum(values):>12,}")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("gateway", type=Path)
    parser.add_argument("--sdk", action="append", choices=list(SDKS))
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--only", default="*", metavar="PATTERN")
    parser.add_argument("--decoys", metavar="CORPUS")
    parser.add_argument("--forgetful", action="store_true")
    parser.add_argument("--profile", choices=list(PROFILES), default="search")
    parser.add_argument("--failures", type=int, default=0)
    given = vars(parser.parse_args())
    most, sdks, gateway = given.pop("failures"), given.pop("sdk") or list(SDKS), given.pop("gateway").resolve()
    reports = run_all(Options(gateway, sdks, **given))
    tokens = Tokens(set().union(*map(texts_of, reports)))
    for report in reports:
        print_report(report, tokens)
    failed = sum(len(report.failed) for report in reports)
    faults = sum(len(report.faults) for report in reports)
    print(f"\n{failed} failed, {faults} faults")
    return 1 if failed > most or faults else 0


if __name__ == "__main__":
    sys.exit(main())
