#!/usr/bin/env python3
"""Checks the corpora and questions of this folder, and prints their counts. Fails on any fault.

Every wanted tool is in its corpus, no question is asked twice, each kind has as many questions in
one half as in the other, and each corpus has the size that README.md gives.
"""

from __future__ import annotations

import json
import sys
import unicodedata
from collections import Counter
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
SIZES = {"small": (45, 45), "medium200": (200, 200), "medium": (480, 530), "large": (2500, 2700), "drawn": (2500, 2700),
         "spread": (2500, 2700)}
LEAST_QUESTIONS = {"small": 120, "medium200": 120, "medium": 120, "large": 200, "drawn": 120, "spread": 110}
# All of their questions may be looked at.
TUNE_ONLY = ("spread",)
KINDS = ("plain", "need", "typo", "language", "none")
HALVES = ("tune", "held_out")
MEMBERS = {"question", "kind", "half", "wants"}

Json = dict[str, Any]


def read(name: str) -> Any:
    return json.loads((HERE / name).read_text())


def normal(question: str) -> str:
    letters = unicodedata.normalize("NFKC", question).casefold()
    return " ".join("".join(it if it.isalnum() else " " for it in letters).split())


def faults_of_tools(servers: list[Json]) -> list[str]:
    found = [f"two servers are named {name}" for name, n in Counter(it["name"] for it in servers).items() if n > 1]
    for server in servers:
        names = Counter(tool["name"] for tool in server["tools"])
        found += [f"{server['name']} has two tools named {name}" for name, n in names.items() if n > 1]
        found += [f"{server['name']} has no {key}" for key in ("package", "version", "licence") if not server.get(key)]
    return found


def faults_of_question(corpus: str, tools: set[str], it: Json) -> list[str]:
    where = f"{corpus}: {it.get('question')!r}"
    if set(it) != MEMBERS:
        return [f"{where}: expected the members {sorted(MEMBERS)}"]
    found = [f"{where}: unknown tool {name}" for name in it["wants"] if name not in tools]
    if it["kind"] not in KINDS or it["half"] not in HALVES:
        found.append(f"{where}: unknown kind or half")
    if any(grade not in (1, 2) for grade in it["wants"].values()):
        found.append(f"{where}: a grade is neither 1 nor 2")
    if (it["kind"] == "none") == (2 in it["wants"].values()) or (it["kind"] == "none" and it["wants"]):
        found.append(f"{where}: a question of kind none wants no tool, any other wants one of grade 2")
    return found


def main() -> int:
    servers = read("corpora/tools.json")["servers"]
    corpora = read("corpora/corpora.json")
    names = {server["name"]: [tool["name"] for tool in server["tools"]] for server in servers}
    faults = faults_of_tools(servers)
    asked: dict[str, str] = {}
    for corpus, members in corpora.items():
        faults += [f"{corpus}: unknown server {name}" for name in members if name not in names]
        tools = {f"{server}/{tool}" for server in members for tool in names.get(server, [])}
        least, most = SIZES[corpus]
        if not least <= len(tools) <= most:
            faults.append(f"{corpus}: {len(tools)} tools, expected {least} to {most}")
        questions = read(f"questions/{corpus}.json")
        if len(questions) < LEAST_QUESTIONS[corpus]:
            faults.append(f"{corpus}: only {len(questions)} questions")
        for it in questions:
            faults += faults_of_question(corpus, tools, it)
            if first := asked.get(normal(it["question"])):
                faults.append(f"{corpus}: {it['question']!r} is asked in {first}, too")
            asked[normal(it["question"])] = corpus
        counts = Counter((it["kind"], it["half"]) for it in questions)
        print(f"{corpus}: {len(members)} servers, {len(tools)} tools, {len(questions)} questions")
        for kind in KINDS:
            halves = [counts[kind, half] for half in HALVES]
            print(f"    {kind:<8} {sum(halves):>4} = {halves[0]} tune + {halves[1]} held out")
            if abs(halves[0] - halves[1]) > 1 and corpus not in TUNE_ONLY:
                faults.append(f"{corpus}: the halves of kind {kind} differ")
    for fault in faults:
        print(f"verify.py: {fault}", file=sys.stderr)
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
