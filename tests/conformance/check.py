#!/usr/bin/env python3
"""Judge conformance runs through the gateway by the same runs without it.

    check.py DIRECT GATEWAY [--baseline baseline.json] [--propose]

judges what suites.py left in its two folders of results (DIRECT is the one in
.direct/ that carries the current key). For each suite, what passes directly must
pass through the gateway: counted are the direct run's own checks, so that a
scenario which bails out early, or passes on silence, gains nothing. What may fail
stands in the baseline, each with its reason:

    [{"suite": "*-http-legacy-2026-07-28", "scenario": "caching", "check": "*", "reason": "…"}]

where `*` stands for anything in a name. Printed for each suite is
`conformance-SUITE: N passed, M failed`, and as skipped what fails as the baseline
says; then the failures that the baseline does not have, and its stale entries:
those of which something passes, or which are about nothing. Exits 1 if there are
any, 2 if the folders or the baseline make no sense. With --propose the missing
entries are printed as JSON, for a person to fill in the reasons.
"""

from __future__ import annotations

import argparse
import itertools
import json
import sys
from collections import Counter, defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from pathlib import Path
from typing import NamedTuple

PASSED = "SUCCESS"
BAD = ("FAILURE", "WARNING")


class Check(NamedTuple):
    """What a check is known by. One scenario may report the same id several times."""

    scenario: str
    check: str


class Entry(NamedTuple):
    """What the baseline lets fail."""

    suite: str
    scenario: str
    check: str
    reason: str

    def __str__(self) -> str:
        return f"{self.suite} {self.scenario} {self.check}"

    def covers(self, suite: str, check: Check) -> bool:
        names = ((suite, self.suite), (check.scenario, self.scenario), (check.check, self.check))
        return all(fnmatchcase(name, pattern) for name, pattern in names)


class Nonsense(Exception):
    """The folders or the baseline cannot be judged."""


@dataclass
class Run:
    """How often each check passed, and what was said of those that did not."""

    passed: Counter[Check] = field(default_factory=Counter)
    bad: dict[Check, list[str]] = field(default_factory=lambda: defaultdict(list))


@dataclass
class Suite:
    name: str
    direct: Run
    gateway: Run


@dataclass
class Result:
    """What came of a suite: counts of checks, of which `missed` through the gateway."""

    name: str
    direct: int = 0
    missed: Counter[Check] = field(default_factory=Counter)
    excused: dict[Check, Entry] = field(default_factory=dict)
    unexpected: dict[Check, str] = field(default_factory=dict)

    @property
    def skipped(self) -> int:
        return sum(self.missed[check] for check in self.excused)

    @property
    def failed(self) -> int:
        return sum(self.missed[check] for check in self.unexpected)

    @property
    def passed(self) -> int:
        return self.direct - sum(self.missed.values())


@dataclass
class Verdict:
    results: list[Result]
    stale: dict[Entry, str] = field(default_factory=dict)

    def is_clean(self) -> bool:
        return not self.stale and not any(result.unexpected for result in self.results)


def read_run(folder: Path) -> Run:
    run = Run()
    for file in sorted(folder.glob("*.json")):
        for result in json.loads(file.read_text(encoding="utf-8")):
            check = Check(file.stem, result["id"])
            if result["status"] == PASSED:
                run.passed[check] += 1
            elif result["status"] in BAD:
                run.bad[check].append(result.get("errorMessage") or result.get("description") or "")
    return run


def read_baseline(file: Path) -> list[Entry]:
    entries: list[Entry] = []
    for told in json.loads(file.read_text(encoding="utf-8")):
        if set(told) != set(Entry._fields):
            raise Nonsense(f"{file.name}: an entry has suite, scenario, check and reason: {told}")
        entry = Entry(**told)
        if not entry.reason.strip():
            raise Nonsense(f"{file.name}: no reason for {entry}")
        entries.append(entry)
    return entries


def judge_suite(suite: Suite, baseline: list[Entry]) -> Result:
    direct, gateway = suite.direct, suite.gateway
    if direct.bad:
        known = "\n  ".join(f"{suite.name} {check.scenario} {check.check}" for check in direct.bad)
        raise Nonsense(f"the direct run is not clean, so nothing can be said of the gateway:\n  {known}")
    if not direct.passed:
        raise Nonsense(f"the direct run of {suite.name} has no checks")
    result = Result(suite.name, direct.passed.total())
    failing: set[str] = set()
    for check, wanted in direct.passed.items():
        got = min(wanted, gateway.passed[check])
        # One that passes more often than directly but also fails is a failure still.
        missed = max(wanted - got, min(1, len(gateway.bad.get(check, []))))
        if missed == 0:
            continue
        result.missed[check] = missed
        excuses = [entry for entry in baseline if entry.covers(suite.name, check)]
        if len(excuses) > 1:
            raise Nonsense(f"twice in the baseline: {suite.name} {check.scenario} {check.check}")
        if excuses:
            result.excused[check] = excuses[0]
        else:
            failing.add(check.scenario)
            said = [words for words in gateway.bad.get(check, []) if words]
            result.unexpected[check] = said[0] if said else "no such check in the run through the gateway"
    for check, said in gateway.bad.items():
        # A scenario that goes astray reports this under ids of its own. They add nothing to a
        # scenario that is reported as failing already; in one whose failures are all excused
        # they are news, unless the baseline has them, too.
        if check in direct.passed or check.scenario in failing:
            continue
        result.missed[check] = 1
        result.direct += 1
        excuses = [entry for entry in baseline if entry.covers(suite.name, check)]
        if excuses:
            result.excused[check] = excuses[0]
        else:
            result.unexpected[check] = f"fails only through the gateway: {said[0]}"
    return result


def judge(suites: list[Suite], baseline: list[Entry], names: Iterable[str] | None = None) -> Verdict:
    """`names` are those of all suites that there are, when `suites` are only some of them."""
    verdict = Verdict([judge_suite(suite, baseline) for suite in suites])
    left_out = set(names or ()) - {suite.name for suite in suites}
    for entry in baseline:
        matching = [s for s in suites if fnmatchcase(s.name, entry.suite)]
        covered = [(s.name, check) for s in matching for check in s.direct.passed if entry.covers(s.name, check)]
        excused = {(r.name, check) for r in verdict.results for check in r.excused}
        covered += [pair for pair in excused if pair not in covered and entry.covers(*pair)]
        passing = [pair for pair in covered if pair not in excused]
        if passing:
            name, check = passing[0]
            verdict.stale[entry] = f"in {name}, {check.scenario} {check.check} passes"
        elif not covered and not any(fnmatchcase(name, entry.suite) for name in left_out):
            verdict.stale[entry] = "is no check of a direct run"
    return verdict


def report(verdict: Verdict) -> str:
    lines: list[str] = []
    for result in verdict.results:
        for check, said in sorted(result.unexpected.items()):
            lines.append(f"unexpected failure: {result.name} {check.scenario} {check.check}: {said}")
    for entry, why in sorted(verdict.stale.items()):
        lines.append(f"stale baseline entry: {entry}: {why}")
    for result in verdict.results:
        line = f"conformance-{result.name}: {result.passed} passed, {result.failed} failed"
        if result.skipped:
            line += f", {result.skipped} skipped"
        lines.append(line)
    return "\n".join(lines)


# --- Proposing entries -------------------------------------------------------------


def patterns(name: str, names: set[str]) -> list[str]:
    """Patterns that cover `name`: those that cover the most of `names` first, and of them the closest."""
    words = name.split("-", 3)
    open_words = [("*", word) for word in words]
    found = {"-".join(choice) for choice in itertools.product(*open_words)}
    return sorted(found, key=lambda pattern: (-sum(fnmatchcase(n, pattern) for n in names), pattern.count("*")))


def propose(suites: list[Suite], verdict: Verdict) -> str:
    """The entries that are missing, each over as many suites as it is true of."""
    lines: list[str] = []
    failing: dict[Check, set[str]] = defaultdict(set)
    for result in verdict.results:
        for check in result.unexpected:
            failing[check].add(result.name)
    for check, failed in sorted(failing.items()):
        passing = {s.name for s in suites if check in s.direct.passed} - failed
        left = set(failed)
        while left:
            name = min(left)
            fitting = (p for p in patterns(name, left) if not any(fnmatchcase(n, p) for n in passing))
            # Where a suite is excused already, another entry must not cover it.
            taken = {r.name for r in verdict.results if check in r.excused} | (failed - left)
            pattern = next(p for p in fitting if p == name or not any(fnmatchcase(n, p) for n in taken))
            left -= {n for n in left if fnmatchcase(n, pattern)}
            entry = Entry(pattern, check.scenario, check.check, "")
            lines.append("  " + json.dumps(entry._asdict(), ensure_ascii=False))
    return "[\n" + ",\n".join(lines) + "\n]" if lines else "[]"


def read_suites(direct: Path, gateway: Path) -> list[Suite]:
    """The suites of a folder: `of.txt` in each names the direct run that it is to be judged by."""
    suites: list[Suite] = []
    for folder in sorted(path.parent for path in gateway.glob("*/of.txt")):
        against = direct / (folder / "of.txt").read_text(encoding="utf-8").strip()
        suites.append(Suite(folder.name, read_run(against), read_run(folder)))
    return suites


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(description="Judge conformance runs through the gateway by the direct ones.")
    parser.add_argument("direct", type=Path)
    parser.add_argument("gateway", type=Path)
    parser.add_argument("--baseline", type=Path, default=Path(__file__).with_name("baseline.json"))
    parser.add_argument("--propose", action="store_true", help="print the baseline entries that are missing")
    options = parser.parse_args(arguments)
    try:
        suites = read_suites(options.direct, options.gateway)
        if not suites:
            raise Nonsense(f"no suites in {options.gateway}")
        verdict = judge(suites, read_baseline(options.baseline))
    except (Nonsense, OSError, ValueError, KeyError) as fault:
        print(f"check.py: {fault}", file=sys.stderr)
        return 2
    print(report(verdict))
    if options.propose:
        print(propose(suites, verdict))
    return 0 if verdict.is_clean() else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
