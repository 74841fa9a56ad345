#!/usr/bin/env python3
"""Run the suite's client auth scenarios with the gateway as the OAuth client, and judge.

    auth.py GATEWAY_BIN [--only PATTERN] [--revision REVISION]

The suite starts a server and an authorization server; the gateway is started towards
the server, and an SDK client without OAuth calls a tool through it. The client opens
the links that the gateway gives out, as a person would, and does nothing else. There is
no direct run to compare with: every check has to pass, a warning too. What may fail is
in auth_baseline.json, each scenario or check with its reason; an entry that no longer
fails is stale, and fails the run.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from fnmatch import fnmatchcase
from pathlib import Path

import suites

HERE = Path(__file__).resolve().parent
REVISIONS = ("2026-07-28", "2025-11-25", "2025-06-18", "2025-03-26", "extension")
WIRE = {"extension": "2026-07-28"}


def run_scenario(program: Path, scenario: str, revision: str, folder: Path) -> list[dict]:
    """The checks of one scenario."""
    environment = {"CLIENT_SDK": "typescript2", "CLIENT_GATEWAY": str(program)}
    if revision == "extension":
        environment["SUITE_FORCE"] = "1"
    (folder / scenario).parent.mkdir(parents=True, exist_ok=True)
    wire = WIRE.get(revision, revision)
    command = [str(HERE / "run.sh"), "client", scenario, wire, str(folder)]
    done = subprocess.run(
        command, stdin=subprocess.DEVNULL, capture_output=True, text=True, env={**os.environ, **environment}
    )
    if done.returncode != 0:
        return [{"id": "run", "status": "FAILURE", "description": done.stderr.strip()[-500:]}]
    results = list(folder.rglob(f"{scenario.rsplit('/', 1)[1]}.json"))
    return json.loads(results[0].read_text(encoding="utf-8")) if results else []


def judge(name: str, checks: list[dict], baseline: list[dict]) -> tuple[list[str], set[int]]:
    """What is wrong with a scenario, and the entries of the baseline that excuse the rest."""
    counted = [check for check in checks if check["status"] != "INFO"]
    faults, excused = ([] if counted else [f"{name}: no check was made"]), set()
    for check in counted:
        if check["status"] in ("SUCCESS", "SKIPPED"):
            continue
        known = {
            number
            for number, entry in enumerate(baseline)
            if fnmatchcase(name, entry["scenario"]) and fnmatchcase(check["id"], entry["check"])
        }
        excused |= known
        if not known:
            faults.append(f"{name}: {check['status']} {check['id']}: {check.get('description', '')}")
    return faults, excused


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(description="The suite's auth scenarios with the gateway as the client.")
    parser.add_argument("gateway", type=Path)
    parser.add_argument("--only", default="*", help="the scenarios whose names fit this pattern")
    parser.add_argument("--revision", default="*", help="the revisions that fit this pattern")
    parser.add_argument("--keep", type=Path, help="the folder for results and logs")
    options = parser.parse_args(arguments)
    program = options.gateway.resolve()
    baseline = json.loads((HERE / "auth_baseline.json").read_text(encoding="utf-8"))
    listed = suites.read_scenarios(suites.scenario_list())["client"]
    used: set[int] = set()
    faults: list[str] = []
    passed = ran = 0
    with tempfile.TemporaryDirectory() as scratch:
        root = options.keep or Path(scratch)
        for revision in (name for name in REVISIONS if fnmatchcase(name, options.revision)):
            for scenario, revisions in listed.items():
                is_wanted = scenario.startswith("auth/") and fnmatchcase(scenario, options.only)
                if not is_wanted or revision not in revisions:
                    continue
                checks = run_scenario(program, scenario, revision, root / revision)
                found, excused = judge(scenario, checks, baseline)
                used |= excused
                good = sum(check["status"] == "SUCCESS" for check in checks)
                word = "FAIL" if found else "excused" if excused else "ok"
                ran, passed = ran + 1, passed + (word == "ok")
                print(f"  {word:7} {revision} {scenario}: {good} checks passed", flush=True)
                faults += [f"{revision} {fault}" for fault in found]
    if (options.only, options.revision) == ("*", "*"):
        faults += [f"stale: {entry}" for number, entry in enumerate(baseline) if number not in used]
    failed = len({fault.split(": ")[0] for fault in faults})
    print(f"auth: {passed} passed, {failed} failed, {ran} scenarios")
    for fault in faults:
        print(fault)
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
