#!/usr/bin/env python3
"""Runs the tasks of tasks.json directly against the servers that gather.py installs.

    run_tasks.py [--work FOLDER] [--only PATTERN]

Each task has a scratch folder and servers of its own. Fails if a result lacks what is expected.
"""

from __future__ import annotations

import argparse
import json
import re
import sys
import tempfile
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

from gather import HERE, Source, install

from listing import LEGACY, Child, Failed
from tasks import TASKS, filled, prepare

SERVERS = ("everything", "filesystem", "memory", "git", "time", "sequential-thinking")

Json = dict[str, Any]


class InFolder(Source):
    """A server whose folder is the task's."""

    @property
    def home(self) -> Path:
        return self.work.parent / "scratch"

    @property
    def environment(self) -> dict[str, str]:
        return {**super().environment, "MEMORY_FILE_PATH": str(self.work.parent / "memory.json")}


def start(source: InFolder, log: Path) -> Child:
    child = Child(source, log)
    client = {"name": "run_tasks", "version": "1"}
    child.ask("initialize", {"protocolVersion": LEGACY, "capabilities": {}, "clientInfo": client})
    child.send({"method": "notifications/initialized"})
    return child


def run_step(step: Json, child: Child, kept: Json) -> None:
    tool = step["call"].split("/", 1)[1]
    answer = child.ask("tools/call", {"name": tool, "arguments": filled(step["arguments"], kept)})
    result = answer.get("result", {})
    text = "\n".join(it.get("text") or json.dumps(it) for it in result.get("content", []))
    wanted = filled(step["expect"], kept)
    if "error" in answer or result.get("isError") or wanted not in text:
        raise Failed(f"{step['call']}: expected {wanted!r}, got {json.dumps(answer)[:400]}")
    for name, pattern in step.get("keep", {}).items():
        found = re.search(pattern, text)
        if not found:
            raise Failed(f"{step['call']}: nothing to keep as {name} in {text[:400]!r}")
        kept[name] = found[1]


def run_task(task: Json, entries: dict[str, Json], installed: Path) -> None:
    with tempfile.TemporaryDirectory() as parent:
        work = Path(parent) / "work"
        work.symlink_to(installed)
        folder = Path(parent) / "scratch"
        prepare(folder, task["setup"])
        kept: Json = {"folder": str(folder)}
        children: dict[str, Child] = {}
        try:
            for step in task["steps"]:
                name = step["call"].split("/", 1)[0]
                if name not in children:
                    children[name] = start(InFolder(entries[name], work), Path(parent) / f"{name}.log")
                run_step(step, children[name], kept)
        finally:
            for child in children.values():
                child.stop()


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--work", type=Path, default=HERE / ".work")
    parser.add_argument("--only", default="*", metavar="PATTERN")
    options = parser.parse_args()
    installed = options.work.resolve()
    (installed / "logs").mkdir(parents=True, exist_ok=True)
    sources = json.loads((HERE / "sources.json").read_text())["servers"]
    entries = {it["name"]: it for it in sources if it["name"] in SERVERS}
    for name, entry in entries.items():
        install(Source(entry, installed), installed / "logs" / f"{name}.install.log")
    failed = 0
    for task in json.loads(TASKS.read_text()):
        if not fnmatchcase(task["name"], options.only):
            continue
        try:
            run_task(task, entries, installed)
            print(f"ok      {task['name']}", flush=True)
        except Failed as why:
            failed += 1
            print(f"FAILED  {task['name']}: {why}", flush=True)
    print(f"{failed} failed")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
