#!/usr/bin/env python3
"""Run the suite's client auth scenarios with the gateway as the OAuth client, and judge.

    auth.py GATEWAY_BIN [--only PATTERN] [--revision REVISION]
    auth.py --broken [--only PATTERN]

The suite starts a server and an authorization server; the gateway is started towards
the server, and an SDK client without OAuth calls a tool through it. The client opens
the links that the gateway gives out, as a person would, and does nothing else. There is
no direct run to compare with: every check has to pass, a warning too. What may fail is
in auth_baseline.json, each scenario or check with its reason; an entry that no longer
fails is stale, and fails the run.

With --broken, clients with one fault each take the gateway's place, and each has to fail
the check that is about its fault: a scenario that lets it pass would let the gateway pass
as well. They are our own (../peers/clients/broken.mjs): the suite's broken clients are not
in its npm package.
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


# The fault of a client, a scenario, its revision, and the checks that fail; none for a client
# without a fault, which passes.
BROKEN = (
    ("none", "auth/metadata-default", "2026-07-28", ()),
    ("none", "auth/scope-step-up", "2026-07-28", ()),
    ("none", "auth/basic-cimd", "2026-07-28", ()),
    ("none", "auth/wif-jwt-bearer", "extension", ()),
    ("none", "auth/dpop-nonce", "extension", ()),
    (
        "no-pkce",
        "auth/metadata-default",
        "2026-07-28",
        ("pkce-code-challenge-sent", "pkce-s256-method-used", "pkce-code-verifier-sent"),
    ),
    ("no-application-type", "auth/metadata-default", "2026-07-28", ("sep-837-application-type-present",)),
    ("root-metadata", "auth/metadata-default", "2026-07-28", ("prm-priority-order",)),
    ("ignore-scope", "auth/scope-from-www-authenticate", "2026-07-28", ("scope-from-www-authenticate",)),
    ("ignore-scope", "auth/scope-from-scopes-supported", "2026-07-28", ("scope-from-scopes-supported",)),
    ("scope-anyway", "auth/scope-omitted-when-undefined", "2026-07-28", ("scope-omitted-when-undefined",)),
    ("ignore-403", "auth/scope-step-up", "2026-07-28", ("scope-step-up-escalation",)),
    ("echo-scope", "auth/scope-step-up", "2026-07-28", ("sep-2350-scope-union-on-reauth",)),
    ("no-limit", "auth/scope-retry-limit", "2026-07-28", ("scope-retry-limit",)),
    ("no-document", "auth/basic-cimd", "2026-07-28", ("cimd-client-id-used",)),
    (
        "reuse-credentials",
        "auth/authorization-server-migration",
        "2026-07-28",
        ("sep-2352-reregister-on-as-change", "sep-2352-no-reuse-on-as-change"),
    ),
    ("iss-unchecked", "auth/iss-supported-missing", "2026-07-28", ("sep-2468-client-reject-missing-iss",)),
    ("iss-unchecked", "auth/iss-wrong-issuer", "2026-07-28", ("sep-2468-client-compare-iss-supported",)),
    ("iss-unchecked", "auth/iss-unexpected", "2026-07-28", ("sep-2468-client-compare-iss-unadvertised",)),
    ("iss-normalized", "auth/iss-normalized", "2026-07-28", ("sep-2468-client-no-normalization",)),
    (
        "issuer-unchecked",
        "auth/metadata-issuer-mismatch",
        "2026-07-28",
        ("sep-2468-client-validate-metadata-issuer",),
    ),
    ("workload-audience", "auth/wif-jwt-bearer", "extension", ("wif-assertion-audience",)),
    ("workload-expired", "auth/wif-jwt-bearer", "extension", ("wif-assertion-expired",)),
    ("workload-no-jwt", "auth/wif-jwt-bearer", "extension", ("wif-assertion-missing",)),
    ("workload-retry", "auth/wif-jwt-bearer", "extension", ("wif-no-retry",)),
    ("workload-fallback", "auth/wif-jwt-bearer", "extension", ("wif-grant-fallback",)),
    ("dpop-bearer", "auth/dpop", "extension", ("sep-1932-client-dpop-auth-scheme",)),
    ("dpop-replay", "auth/dpop", "extension", ("sep-1932-client-fresh-proof",)),
    ("dpop-no-token-proof", "auth/dpop", "extension", ("sep-1932-client-token-request-proof",)),
    ("dpop-no-issuer-nonce", "auth/dpop-nonce", "extension", ("sep-1932-client-as-nonce",)),
    ("dpop-no-server-nonce", "auth/dpop-nonce", "extension", ("sep-1932-client-rs-nonce",)),
)


def run_scenario(program: Path | None, scenario: str, revision: str, folder: Path, fault: str = "") -> list[dict]:
    """The checks of one scenario, with the gateway or with a client that has a fault."""
    environment = {"CLIENT_SDK": "typescript2", "CLIENT_GATEWAY": str(program or ""), "CLIENT_FAULT": fault}
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


def judge_broken(checks: list[dict], expected: tuple[str, ...]) -> list[str]:
    """What a client with a fault passes that it should not, or one without a fault fails."""
    failed = {check["id"] for check in checks if check["status"] in ("FAILURE", "WARNING")}
    if not checks:
        return ["no check was made"]
    if not expected:
        return [f"a client without a fault fails {check}" for check in sorted(failed)]
    return [f"it does not fail {check}" for check in expected if check not in failed]


def run_broken(only: str, root: Path) -> int:
    """Runs the clients with faults."""
    faults: list[str] = []
    ran = 0
    for fault, scenario, revision, expected in BROKEN:
        if not (fnmatchcase(scenario, only) or fnmatchcase(fault, only)):
            continue
        checks = run_scenario(None, scenario, revision, root / fault, fault)
        found = judge_broken(checks, expected)
        ran += 1
        print(f"  {'FAIL' if found else 'ok':7} {fault} at {scenario}", flush=True)
        faults += [f"{fault} at {scenario}: {text}" for text in found]
    print(f"broken clients: {ran - len({text.split(': ')[0] for text in faults})} of {ran} as expected")
    for text in faults:
        print(text)
    return 1 if faults else 0


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(description="The suite's auth scenarios with the gateway as the client.")
    parser.add_argument("gateway", type=Path, nargs="?")
    parser.add_argument("--broken", action="store_true", help="run the clients with faults instead")
    parser.add_argument("--only", default="*", help="the scenarios whose names fit this pattern")
    parser.add_argument("--revision", default="*", help="the revisions that fit this pattern")
    parser.add_argument("--keep", type=Path, help="the folder for results and logs")
    options = parser.parse_args(arguments)
    if options.broken:
        with tempfile.TemporaryDirectory() as scratch:
            return run_broken(options.only, options.keep or Path(scratch))
    if options.gateway is None:
        parser.error("GATEWAY_BIN is needed, or --broken")
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
