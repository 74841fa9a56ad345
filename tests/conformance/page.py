"""docs/conformance.md, from what came of all suites: `all.sh GATEWAY_BIN --write`."""

from __future__ import annotations

from pathlib import Path

from check import Entry, Result, Verdict

FILE = Path(__file__).resolve().parents[2] / "docs/conformance.md"

SDKS = {
    "python": "Python SDK 2.x",
    "typescript": "TypeScript SDK 2.x",
    "rmcp": "rmcp",
    "typescript1": "TypeScript SDK 1.x",
    "typescript2": "TypeScript SDK 2.x",
}
TRANSPORTS = {"http": "HTTP", "replicas": "HTTP, three replicas", "stdio": "stdio"}
ERAS = {"legacy": "Legacy", "modern": "Modern", "both": "both"}

BEGIN = """# Conformance

The official conformance suite (`@modelcontextprotocol/conformance`) runs through the gateway on every
change: `tests/conformance/all.sh GATEWAY_BIN` runs all of it and judges, and with `--write` it wrote this
page. Counted are checks. What passes without the gateway has to pass through it; a check that a scenario
never came to counts as failed.

## Server scenarios

The suite asks, the gateway is in between, and one everything-server is behind it, which speaks one era
alone, or both. Where it does not speak the era of the scenarios' revision, the gateway joins the two;
directly, the same server then answers in the revision's own era. The gateway leaves names and URIs as they are.
With *three replicas*, three gateways share a store, and nginx sends each request to the next one over a new connection.

"""
CLIENTS = """
## Client scenarios

The suite starts a server of its own, the gateway is in between, and a client on an official SDK does
there what the scenario wants to see. Those of `auth/` ask for a client that logs in, which is the gateway:
`tests/conformance/auth.py GATEWAY_BIN` runs them, and each of their checks has to pass. `auth.py --broken` runs
clients with one fault each in the gateway's place, and each has to fail the check that is about its fault.

"""
EXCLUDED = """
## What is excluded, and why

`*` stands for anything. An exclusion of which something passes fails the run.

"""
NOTHING = "Nothing.\n"
REPAIRED = """
## Lists that are not quite valid

The gateway accepts lists that the official SDKs accept, and sends only entries that are valid for the client's
revision. Repairs are logged once for each definition and shown in `/status`; an entry without a flaw keeps its bytes.

| in a server's lists | for clients |
| --- | --- |
| `null` in the place of an optional member that the schema of MCP defines | it is absent; never within `_meta`, `default`, `const`, `enum`, `examples` or members of others |
| a malformed optional member: a text as hint, a number as title, icons without `src`, a date without a time | the member is dropped, the entry stays |
| a malformed required member: no name, no `inputSchema` of objects | the entry is left out |
| a schema that is not valid 2020-12: keywords of draft-03 to 2019-09, `(?P<name>…)`, dangling `$ref`, unknown types | keywords with an exact equivalent are translated, others are removed; calls are checked with the repaired schema |
| an `outputSchema` of anything but objects | Legacy clients get it as the property `result` of an object, and results likewise |
| structured content that is no object, of a tool without `outputSchema` | Legacy clients get it as the property `result` of an object, except in results of 256 KiB or more |
| a `nextCursor` that is empty, no text or was returned before | the list ends there and keeps its entries |
| a list that is `null` | it is empty |
| none of the capabilities `tools`, `prompts` and `resources` | the server is asked once for each list, and has those that it returns |
"""


def table(head: list[str], rows: list[list[str]]) -> str:
    lines = [head, ["---"] * len(head), *rows]
    return "".join("| " + " | ".join(line) + " |\n" for line in lines)


def counts(result: Result) -> list[str]:
    return [str(result.direct), str(result.passed), str(result.skipped or "")]


def render(results: list[Result], baseline: list[Entry]) -> str:
    servers, clients = [], []
    for result in results:
        first, second, era, revision = result.name.split("-", 3)
        if first == "client":
            clients.append([SDKS[second], revision, *counts(result)])
        else:
            servers.append([SDKS[first], TRANSPORTS[second], ERAS[era], revision, *counts(result)])
    counted = ["directly", "through the gateway", "excluded"]
    excluded = [[f"`{entry.suite}`", f"`{entry.scenario}`", f"`{entry.check}`", entry.reason] for entry in baseline]
    return (
        BEGIN
        + table(["server", "over", "era", "scenarios", *counted], servers)
        + CLIENTS
        + table(["client", "scenarios", *counted], clients)
        + EXCLUDED
        + (table(["suite", "scenario", "check", "reason"], excluded) if excluded else NOTHING)
        + REPAIRED
    )


def write(verdict: Verdict, baseline: list[Entry]) -> None:
    FILE.write_text(render(verdict.results, baseline), encoding="utf-8")


def is_current(verdict: Verdict, baseline: list[Entry]) -> bool:
    return FILE.exists() and FILE.read_text(encoding="utf-8") == render(verdict.results, baseline)
