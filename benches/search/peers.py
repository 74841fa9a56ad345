#!/usr/bin/env python3
"""Tool search of other gateways and libraries, asked the same questions about the same tools.

    peers.py GATEWAY_BIN [--only PATTERN] [--corpus NAME] [--work FOLDER] [--json FILE]

Installs each peer's package, of the version below, into an environment of its own in FOLDER, puts it in front of
servers that list the tools of a corpus (corpus_server.py), starts it over standard streams with its default settings,
and calls its tool that searches with each question of the half `held_out`. Prints sums only: that half is never
looked at. What is measured is what main.rs measures: a question is answered if a tool of the best grade that is
wanted is among the first k; questions that no tool answers are left out. Tokens are those of the answer's text, with
o200k_base. Needs tests/agents/setup.sh, for the tokenizer.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
sys.path[:0] = [str(ROOT / "tests/servers"), str(HERE)]

from corpus_server import load_servers, servers_of  # noqa: E402
from listing import LEGACY, NODE, Child, Failed, list_pages  # noqa: E402

CORPUS_SERVER = HERE / "corpus_server.py"
TOKENS = ROOT / "tests/agents/tokens.mjs"
KINDS = ("plain", "need", "typo", "language")
CORPORA = ("small", "medium200", "medium", "large")
# Servers are listed in the background by some peers: how long the number of tools that they know may take to settle.
SETTLE_SECONDS = 60
OWN = "corpus-"

Json = dict[str, Any]


@dataclass
class Setting:
    """What a peer is started with."""

    gateway: Path
    corpus: str
    # Where it may write.
    folder: Path
    # The port of the servers of the corpus, each at a path of its own name.
    port: int

    @property
    def urls(self) -> dict[str, str]:
        return {name: f"http://127.0.0.1:{self.port}/{name}" for name in servers_of(self.corpus)}

    def write(self, name: str, content: Any) -> str:
        path = self.folder / name
        path.write_text(content if isinstance(content, str) else json.dumps(content))
        return str(path)


@dataclass
class Start:
    """The words after the environment's `bin` folder, and variables."""

    words: list[str]
    environment: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Peer:
    name: str
    package: str
    version: str
    settings: str
    start: Callable[[Setting], Start]
    # The tool that searches, and its arguments for a question.
    tool: str
    arguments: Callable[[str], Json]
    # The names of the tools in an answer, the best first.
    names: Callable[[Json], list[str]]
    # Packages that come along.
    extra: tuple[str, ...] = ()
    # Whether its servers are known only some time after it has started.
    settles: bool = False


# --- How each is started, and read -------------------------------------------------------


def text_of(result: Json) -> str:
    return "\n".join(it.get("text", "") for it in result.get("content", []))


def names_at_lines(pattern: str) -> Callable[[Json], list[str]]:
    return lambda result: re.findall(pattern, text_of(result), re.MULTILINE)


def names_in_json(*path: str) -> Callable[[Json], list[str]]:
    """The names in JSON: the keys lead to a list, and the last of them to a name in each of its elements."""

    def read(result: Json) -> list[str]:
        try:
            said = json.loads(text_of(result))
        except ValueError:
            return []
        for key in path[:-1]:
            said = said.get(key, []) if isinstance(said, dict) else []
        return [it[path[-1]] for it in said if path[-1] in it]

    return read


def start_trunkline(setting: Setting) -> Start:
    text = '[gateway]\nlist_wait = "60s"\n\n[log]\naccess = false\n\n[profiles.default]\ndiscovery = "search"\n'
    text += "".join(f'\n[servers.{name}]\nurl = "{url}"\n' for name, url in setting.urls.items())
    config = setting.write("gateway.toml", text)
    return Start([str(setting.gateway), "stdio", "--config", config])


# The servers of a proxy of several are all listed again for each search: the tools are given to it directly.
FASTMCP = """
import json, sys
from fastmcp import FastMCP
from fastmcp.server.transforms.search import {transform}
from fastmcp.tools.base import Tool, ToolResult

sys.path.insert(0, {here!r})
from corpus_server import corpus_tools

class Listed(Tool):
    async def run(self, arguments):
        return ToolResult(content="called")

server = FastMCP("peer")
for tool in corpus_tools({corpus!r}):
    server.add_tool(Listed(name=tool["name"], description=tool.get("description"), parameters=tool["inputSchema"]))
server.add_transform({transform}())
server.run(show_banner=False)
"""


def start_fastmcp(transform: str) -> Callable[[Setting], Start]:
    def start(setting: Setting) -> Start:
        script = FASTMCP.format(transform=transform, here=str(HERE), corpus=setting.corpus)
        return Start(["python", setting.write("server.py", script)], {"FASTMCP_LOG_LEVEL": "ERROR"})

    return start


def start_orchestrator(setting: Setting) -> Start:
    servers = [{"name": name, "url": url, "transport": "http"} for name, url in setting.urls.items()]
    return Start(["mcp-orchestrator"], {"SERVER_CONFIG_PATH": setting.write("servers.json", {"servers": servers})})


def start_smart_proxy(setting: Setting) -> Start:
    # It fails at tools that have annotations.
    urls = {name: url.replace(f":{setting.port}/", f":{setting.port}/bare/") for name, url in setting.urls.items()}
    config = setting.write("servers.json", {"mcpServers": {name: {"url": url} for name, url in urls.items()}})
    return Start(["mcpproxy"], {"MCPPROXY_CONFIG_PATH": config, "MCPPROXY_DATA_DIR": str(setting.folder)})


def start_dehydrator(setting: Setting) -> Start:
    # Two servers may not have a tool of the same name: all are behind one, with the server in the name.
    one = {"command": sys.executable, "args": [str(CORPUS_SERVER), "--corpus", setting.corpus]}
    return Start(["dehydrator-mcp"], {"DEHYDRATOR_SERVERS": json.dumps({"all": one})})


FASTMCP_GATEWAY = """
import asyncio, json, sys
from fastmcp_gateway import GatewayServer

async def main():
    gateway = GatewayServer(json.loads({urls!r}))
    await gateway.populate()
    return gateway

asyncio.run(main()).run(transport="stdio", show_banner=False)
"""


def start_fastmcp_gateway(setting: Setting) -> Start:
    script = FASTMCP_GATEWAY.format(urls=json.dumps(setting.urls))
    return Start(["python", setting.write("server.py", script)], {"FASTMCP_LOG_LEVEL": "ERROR"})


RATEL = """
import asyncio, json, sys
from ratel_ai import ExecutableTool, ToolCatalog, search_capabilities_tool

sys.path.insert(0, {here!r})
from corpus_server import answer, corpus_tools

async def make():
    catalog = ToolCatalog()
    await catalog.register([
        ExecutableTool(id=tool["name"], name=tool["name"], description=tool.get("description", ""),
                       input_schema=tool["inputSchema"], output_schema={{}}, execute=lambda _: {{}})
        for tool in corpus_tools({corpus!r})
    ])
    return search_capabilities_tool(catalog)

async def main():
    search = await make()
    listed = [{{"name": search.id, "description": search.description, "inputSchema": search.input_schema}}]
    for line in sys.stdin:
        request = json.loads(line)
        if request.get("method") == "tools/call":
            found = await search.execute(request["params"]["arguments"])
            result = {{"content": [{{"type": "text", "text": json.dumps(found)}}]}}
            response = {{"jsonrpc": "2.0", "id": request["id"], "result": result}}
        else:
            response = answer(request, "ratel", listed)
        if response:
            print(json.dumps(response), flush=True)

asyncio.run(main())
"""


def start_ratel(setting: Setting) -> Start:
    return Start(["python", setting.write("server.py", RATEL.format(here=str(HERE), corpus=setting.corpus))])


def names_of_ratel(result: Json) -> list[str]:
    hits = [hit for group in json.loads(text_of(result))["tools"]["groups"] for hit in group["hits"]]
    return [hit["toolId"] for hit in sorted(hits, key=lambda hit: -hit["score"])]


def start_pmcp(setting: Setting) -> Start:
    # It starts packages of its own for some names of servers: none of them begins so.
    servers = {f"{OWN}{name}": {"type": "http", "url": url} for name, url in setting.urls.items()}
    config = setting.write("mcp.json", {"mcpServers": servers, "autoStart": list(servers)})
    return Start(["pmcp", "-c", config, "--lock-dir", str(setting.folder), "-l", "error"])


def names_of_pmcp(result: Json) -> list[str]:
    return [name.removeprefix(OWN) for name in names_in_json("results", "tool_id")(result)]


# Its server has no tool that searches; its command line has one, which is run for each question.
MCPTOON = """
import json, subprocess, sys

sys.path.insert(0, {here!r})
from corpus_server import answer

listed = [{{"name": "select", "inputSchema": {{"type": "object"}}}}]
program = sys.executable.removesuffix("python") + "mcptoon"
subprocess.run([program, "manifest"], stdout=subprocess.DEVNULL)
for line in sys.stdin:
    request = json.loads(line)
    if request.get("method") == "tools/call":
        words = [program, "select", request["params"]["arguments"]["query"], "--json"]
        said = subprocess.run(words, capture_output=True, text=True)
        result = {{"content": [{{"type": "text", "text": said.stdout or said.stderr}}], "isError": said.returncode != 0}}
        response = {{"jsonrpc": "2.0", "id": request["id"], "result": result}}
    else:
        response = answer(request, "mcptoon", listed)
    if response:
        print(json.dumps(response), flush=True)
"""


def start_mcptoon(setting: Setting) -> Start:
    servers = {name: {"transport": "http", "url": url} for name, url in setting.urls.items()}
    home = setting.write("config.json", {"servers": servers})
    script = setting.write("server.py", MCPTOON.format(here=str(HERE)))
    return Start(["python", script], {"MCPTOON_CONFIG_FILE": home, "MCPTOON_HOME": str(setting.folder)})


def names_of_mcptoon(result: Json) -> list[str]:
    return [f"{it['server']}__{it['name']}" for it in json.loads(text_of(result))]


def by_query(question: str) -> Json:
    return {"query": question}


def as_pattern(question: str) -> Json:
    """A question as a regular expression: any of its words of four letters or more."""
    words = re.findall(r"\w{4,}", question) or [question]
    return {"pattern": "(?i)" + "|".join(map(re.escape, words))}


WHOLE = "5 answers, whole definitions"

PEERS = [
    Peer(
        "Trunkline", "", "", "6 answers, signatures",
        start_trunkline, "find_tools", by_query, names_at_lines(r"^([\w-]+)\("),
    ),
    Peer(
        "FastMCP, BM25SearchTransform", "fastmcp", "4.2.3", WHOLE,
        start_fastmcp("BM25SearchTransform"), "search_tools", by_query, names_in_json("name"),
    ),
    Peer(
        "FastMCP, RegexSearchTransform", "fastmcp", "4.2.3", f"{WHOLE}; any of the question's words of four letters",
        start_fastmcp("RegexSearchTransform"), "search_tools", as_pattern, names_in_json("name"),
    ),
    Peer(
        "mcp-orchestrator", "mcp-orchestrator", "0.1.2", "3 answers, whole definitions; with fastmcp 2",
        start_orchestrator, "tool_search", by_query, names_in_json("tool_references", "tool_name"), extra=("fastmcp<3",),
    ),
    Peer(
        "smart-mcp-proxy", "smart-mcp-proxy", "0.3.1", f"{WHOLE}; with fastmcp 2, tools without annotations",
        start_smart_proxy, "retrieve_tools", by_query, names_in_json("tools", "name"), extra=("fastmcp<3",), settles=True,
    ),
    Peer(
        "dehydrator", "dehydrator", "0.3.1", "5 answers, whole descriptions; BM25, without its paid reranker",
        start_dehydrator, "tool_search", by_query, names_at_lines(r"^- ([\w-]+__[\w-]+): "),
    ),
    Peer(
        "ratel-ai", "ratel-ai", "0.12.0", f"{WHOLE}; BM25; a library",
        start_ratel, "search_capabilities", by_query, names_of_ratel,
    ),
    Peer(
        "fastmcp-gateway", "fastmcp-gateway", "0.35.0", "all tools with every word, signatures and descriptions",
        start_fastmcp_gateway, "discover_tools", by_query, names_at_lines(r"^(\w[\w-]*)\("),
    ),
    Peer(
        "pmcp", "pmcp", "3.0.0", "20 answers, short descriptions",
        start_pmcp, "gateway.catalog_search", by_query, names_of_pmcp, settles=True,
    ),
    Peer(
        "mcptoon select", "mcptoon", "0.8.31", "3 answers, whole descriptions; a command, not a tool",
        start_mcptoon, "select", by_query, names_of_mcptoon,
    ),
]


# --- The measurement -----------------------------------------------------------------------


@dataclass(frozen=True)
class Process:
    """A command as listing.Child starts it."""

    words: list[str]
    environment: dict[str, str]


def install(peer: Peer, work: Path) -> Path:
    """The `bin` folder of the peer's environment."""
    folder = work / "peers" / f"{peer.package}-{peer.version}"
    done = folder / ".done"
    if not done.exists():
        subprocess.run([sys.executable, "-m", "venv", str(folder)], check=True)
        wanted = [f"{peer.package}=={peer.version}", *peer.extra]
        subprocess.run([str(folder / "bin/pip"), "install", "--quiet", "--disable-pip-version-check", *wanted], check=True)
        done.touch()
    return folder / "bin"


@contextmanager
def servers() -> Iterator[int]:
    """The port of the servers of all corpora."""
    child = subprocess.Popen([sys.executable, str(CORPUS_SERVER), "--port", "0"], stdout=subprocess.PIPE, text=True)
    try:
        yield json.loads(child.stdout.readline())["port"]
    finally:
        child.terminate()
        child.wait()
        child.stdout.close()


@contextmanager
def started(peer: Peer, setting: Setting, work: Path) -> Iterator[Child]:
    start = peer.start(setting)
    words = start.words if not peer.package else [str(install(peer, work) / start.words[0]), *start.words[1:]]
    # Not this user's: some look for the configurations of other programs there, or keep something.
    environment = {"HOME": str(setting.folder), **start.environment}
    child = Child(Process(words, environment), setting.folder / "log")
    try:
        client = {"name": "peers", "version": "1"}
        opened = child.ask("initialize", {"protocolVersion": LEGACY, "capabilities": {}, "clientInfo": client})
        if "error" in opened:
            raise Failed(opened["error"]["message"])
        child.send({"method": "notifications/initialized"})
        yield child
    finally:
        child.stop()


def spellings(corpus: str) -> dict[str, str]:
    """The tools of a corpus by how gateways write their names: with the server's, or without if no other has it."""
    listed = load_servers()
    chosen = [(server, tool) for server in servers_of(corpus) for tool in listed[server]]
    known = {plain(tool["name"]): f"{server}/{tool['name']}" for server, tool in reversed(chosen)}
    for server, tool in chosen:
        for joint in ("__", "_", "::"):
            known[plain(f"{server}{joint}{tool['name']}")] = f"{server}/{tool['name']}"
    return known


def plain(name: str) -> str:
    return re.sub(r"\W", "_", name).lower()


@dataclass
class Tally:
    """The answers to a half's questions."""

    ranks: list[int | None] = field(default_factory=list)
    kinds: list[str] = field(default_factory=list)
    texts: list[str] = field(default_factory=list)
    counts: list[int] = field(default_factory=list)
    refused: int = 0
    unknown: int = 0
    seconds: list[float] = field(default_factory=list)


def ask_all(peer: Peer, child: Child, corpus: str) -> Tally:
    known, tally = spellings(corpus), Tally()
    for question in json.loads((HERE / f"questions/{corpus}.json").read_text()):
        if question["half"] != "held_out" or not question["wants"]:
            continue
        begin = time.monotonic()
        answer = child.ask("tools/call", {"name": peer.tool, "arguments": peer.arguments(question["question"])})
        tally.seconds.append(time.monotonic() - begin)
        result = answer.get("result", {})
        is_refused = "error" in answer or bool(result.get("isError"))
        names = [] if is_refused else [known.get(plain(name)) for name in peer.names(result)]
        best = max(question["wants"].values())
        wanted = {name for name, grade in question["wants"].items() if grade == best}
        tally.ranks.append(next((rank for rank, name in enumerate(names[:10], start=1) if name in wanted), None))
        tally.kinds.append(question["kind"])
        tally.texts.append(json.dumps(answer.get("error")) if "error" in answer else text_of(result))
        tally.counts.append(len(names))
        tally.refused += is_refused
        tally.unknown += names.count(None)
    return tally


def settle(peer: Peer, child: Child) -> None:
    """Waits until a search finds something, and as much as before."""
    deadline, before = time.monotonic() + SETTLE_SECONDS, -1
    while time.monotonic() < deadline:
        answer = child.ask("tools/call", {"name": peer.tool, "arguments": peer.arguments("list")})
        size = len(text_of(answer.get("result", {})))
        if size == before and size > 200:
            return
        before = size
        time.sleep(3)


def measure(peer: Peer, setting: Setting, work: Path) -> Json:
    with started(peer, setting, work) as child:
        listed = list_pages(child.ask, "tools/list", "tools")
        if peer.settles:
            settle(peer, child)
        tally = ask_all(peer, child, setting.corpus)
    shown = [{key: tool[key] for key in ("name", "description", "inputSchema") if key in tool} for tool in listed]
    meta, *tokens = count_tokens([json.dumps(shown, separators=(",", ":"), ensure_ascii=False), *tally.texts])
    found = [rank for rank in tally.ranks if rank]
    number = len(tally.ranks)
    kinds = {kind: [rank for rank, it in zip(tally.ranks, tally.kinds) if it == kind] for kind in KINDS}
    return {
        "peer": peer.name,
        "corpus": setting.corpus,
        "questions": number,
        "first": sum(rank == 1 for rank in found) / number,
        "five": sum(rank <= 5 for rank in found) / number,
        "by_kind": {kind: sum(rank is not None and rank <= 5 for rank in it) / len(it) for kind, it in kinds.items()},
        "mrr": sum(1 / rank for rank in found) / number,
        "median": statistics.median(tokens),
        "p95": sorted(tokens)[len(tokens) * 95 // 100],
        "answers": statistics.mean(tally.counts),
        "empty": sum(count == 0 for count in tally.counts),
        "refused": tally.refused,
        "unknown": tally.unknown,
        "tools": len(listed),
        "meta": meta,
        "query_ms": statistics.median(tally.seconds) * 1e3,
    }


def count_tokens(texts: list[str]) -> list[int]:
    command = [str(NODE), str(TOKENS)]
    counted = subprocess.run(command, input=json.dumps(texts), capture_output=True, text=True, check=True)
    return json.loads(counted.stdout)


def row_of(it: Json) -> str:
    kinds = " / ".join(f"{share:.2f}" for share in it["by_kind"].values())
    found = f"{it['first']:.2f} | {it['five']:.2f} | {kinds} | {it['mrr']:.2f}"
    tokens = f"{it['median']:,.0f} | {it['p95']:,}"
    count = f"{it['answers']:.1f} | {it['empty']} of {it['questions']} | {it['refused']}"
    rest = f"{it['tools']}, {it['meta']:,} | {it['query_ms']:.0f} ms"
    return f"| {it['peer']} | {it['corpus']} | {found} | {tokens} | {count} | {rest} |"


HEAD = """\
| peer | tools | recall@1 | recall@5 | of each kind | MRR | tokens | 95 % | answers | none | refused | lists | query |
|---|---|--:|--:|--:|--:|--:|--:|--:|--:|--:|--:|--:|"""


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("gateway", type=Path)
    parser.add_argument("--only", default="*", metavar="PATTERN", help="peers by name")
    parser.add_argument("--corpus", action="append", choices=CORPORA)
    parser.add_argument("--work", type=Path, default=HERE / ".work")
    parser.add_argument("--json", type=Path, help="a file to write the figures to")
    options = parser.parse_args()
    work, rows, failed = options.work.resolve(), [], 0
    print(HEAD)
    with servers() as port:
        for corpus in options.corpus or CORPORA:
            for number, peer in enumerate(PEERS):
                if not fnmatchcase(peer.name, options.only):
                    continue
                folder = work / "runs" / f"{number}-{corpus}-{os.getpid()}"
                folder.mkdir(parents=True)
                try:
                    rows.append(measure(peer, Setting(options.gateway.resolve(), corpus, folder, port), work))
                    print(row_of(rows[-1]), flush=True)
                    if rows[-1]["unknown"]:
                        print(f"{peer.name}: {rows[-1]['unknown']} names of no tool", file=sys.stderr)
                except (Failed, ValueError, subprocess.CalledProcessError) as why:
                    failed += 1
                    print(f"| {peer.name} | {corpus} | FAILED: {why}, see {folder / 'log'} |", flush=True)
    if options.json:
        options.json.write_text(json.dumps(rows, indent=1) + "\n")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
