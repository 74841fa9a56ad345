#!/usr/bin/env python3
"""Compare a conformance run through the gateway with the same run without it.

    check.py DIRECT GATEWAY [--baseline baseline.json] [--propose]

DIRECT and GATEWAY hold a folder for each revision, and in it SCENARIO.json as
run.sh leaves them. What passes directly must pass through the gateway: counted are
the direct run's own checks, so that a scenario which bails out early, or passes on
silence, gains nothing. What may fail stands in the baseline, each with its reason:

    [{"revision": "2025-11-25", "scenario": "ping", "check": "ping", "reason": "…"}]

Printed for each revision is `conformance-REVISION: N passed, M failed`, and as
skipped what fails as the baseline says. Then the failures that the baseline does
not have, and its stale entries: those whose check passes, or does not exist. Exits
1 if there are any, 2 if the folders or the baseline make no sense. With --propose
the missing entries are printed as JSON, for a person to fill in the reasons.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections import Counter, defaultdict
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

PASSED = "SUCCESS"
BAD = ("FAILURE", "WARNING")


class Check(NamedTuple):
    """What a check is known by. One scenario may report the same id several times."""

    revision: str
    scenario: str
    check: str

    def __str__(self) -> str:
        return f"{self.revision} {self.scenario} {self.check}"


class Nonsense(Exception):
    """The folders or the baseline cannot be judged."""


@dataclass
class Run:
    """How often each check passed, and what was said of those that did not."""

    passed: Counter[Check] = field(default_factory=Counter)
    bad: dict[Check, list[str]] = field(default_factory=lambda: defaultdict(list))
    revisions: list[str] = field(default_factory=list)


@dataclass
class Verdict:
    passed: Counter[str] = field(default_factory=Counter)
    skipped: Counter[str] = field(default_factory=Counter)
    failed: Counter[str] = field(default_factory=Counter)
    unexpected: dict[Check, str] = field(default_factory=dict)
    stale: dict[Check, str] = field(default_factory=dict)

    def is_clean(self) -> bool:
        return not self.unexpected and not self.stale


def read_run(folder: Path) -> Run:
    run = Run()
    for revision in sorted(path for path in folder.iterdir() if path.is_dir()):
        run.revisions.append(revision.name)
        for file in sorted(revision.glob("*.json")):
            for result in json.loads(file.read_text(encoding="utf-8")):
                check = Check(revision.name, file.stem, result["id"])
                if result["status"] == PASSED:
                    run.passed[check] += 1
                elif result["status"] in BAD:
                    run.bad[check].append(result.get("errorMessage") or result.get("description") or "")
    return run


def read_baseline(file: Path) -> dict[Check, str]:
    entries: dict[Check, str] = {}
    for entry in json.loads(file.read_text(encoding="utf-8")):
        if set(entry) != {"revision", "scenario", "check", "reason"}:
            raise Nonsense(f"{file.name}: an entry has revision, scenario, check and reason: {entry}")
        check = Check(entry["revision"], entry["scenario"], entry["check"])
        if not entry["reason"].strip():
            raise Nonsense(f"{file.name}: no reason for {check}")
        if check in entries:
            raise Nonsense(f"{file.name}: twice: {check}")
        entries[check] = entry["reason"]
    return entries


def judge(direct: Run, gateway: Run, baseline: dict[Check, str]) -> Verdict:
    if direct.bad:
        known = "\n  ".join(str(check) for check in direct.bad)
        raise Nonsense(f"the direct run is not clean, so nothing can be said of the gateway:\n  {known}")
    if not direct.passed:
        raise Nonsense("the direct run has no checks")
    verdict = Verdict()
    lacking: set[tuple[str, str]] = set()
    for check, wanted in direct.passed.items():
        got = min(wanted, gateway.passed[check])
        # One that passes more often than directly but also fails is a failure still.
        missed = max(wanted - got, min(1, len(gateway.bad.get(check, []))))
        verdict.passed[check.revision] += wanted - missed
        if missed == 0:
            if check in baseline:
                verdict.stale[check] = "passes"
            continue
        lacking.add((check.revision, check.scenario))
        if check in baseline:
            verdict.skipped[check.revision] += missed
        else:
            verdict.failed[check.revision] += missed
            said = [words for words in gateway.bad.get(check, []) if words]
            verdict.unexpected[check] = said[0] if said else "no such check in the run through the gateway"
    for check, said in gateway.bad.items():
        # A scenario that goes astray reports this under ids of its own. They are news only
        # where all that passed directly passed again.
        if check not in direct.passed and (check.revision, check.scenario) not in lacking:
            verdict.failed[check.revision] += 1
            verdict.unexpected[check] = f"fails only through the gateway: {said[0]}"
    for check in baseline:
        if check not in direct.passed:
            verdict.stale[check] = "is no check of the direct run"
    return verdict


def report(verdict: Verdict, revisions: list[str]) -> str:
    lines: list[str] = []
    for check, said in sorted(verdict.unexpected.items()):
        lines.append(f"unexpected failure: {check}: {said}")
    for check, why in sorted(verdict.stale.items()):
        lines.append(f"stale baseline entry: {check}: {why}")
    for revision in revisions:
        line = f"conformance-{revision}: {verdict.passed[revision]} passed, {verdict.failed[revision]} failed"
        if verdict.skipped[revision]:
            line += f", {verdict.skipped[revision]} skipped"
        lines.append(line)
    return "\n".join(lines)


def propose(verdict: Verdict) -> str:
    entries = [{**check._asdict(), "reason": ""} for check in sorted(verdict.unexpected)]
    lines = ",\n".join("  " + json.dumps(entry, ensure_ascii=False) for entry in entries)
    return f"[\n{lines}\n]" if entries else "[]"


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(description="Compare a conformance run through the gateway with a direct one.")
    parser.add_argument("direct", type=Path)
    parser.add_argument("gateway", type=Path)
    parser.add_argument("--baseline", type=Path, default=Path(__file__).with_name("baseline.json"))
    parser.add_argument("--propose", action="store_true", help="print the baseline entries that are missing")
    options = parser.parse_args(arguments)
    try:
        direct = read_run(options.direct)
        verdict = judge(direct, read_run(options.gateway), read_baseline(options.baseline))
    except (Nonsense, OSError, ValueError, KeyError) as fault:
        print(f"check.py: {fault}", file=sys.stderr)
        return 2
    print(report(verdict, direct.revisions))
    if options.propose:
        print(propose(verdict))
    return 0 if verdict.is_clean() else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
