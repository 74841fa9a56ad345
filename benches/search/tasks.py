"""What the runners of tasks.json share."""

from __future__ import annotations

import json
import re
import subprocess
from pathlib import Path
from typing import Any

TASKS = Path(__file__).resolve().parent / "tasks.json"
PLACEHOLDER = re.compile(r"\{(\w+)(:number)?\}")

Json = dict[str, Any]


def filled(value: Any, kept: Json) -> Any:
    """An argument with the texts that earlier steps kept."""
    if isinstance(value, dict):
        return {key: filled(it, kept) for key, it in value.items()}
    if isinstance(value, list):
        return [filled(it, kept) for it in value]
    if not isinstance(value, str):
        return value
    if (whole := PLACEHOLDER.fullmatch(value)) and whole[2]:
        return json.loads(kept[whole[1]])
    return PLACEHOLDER.sub(lambda found: kept.get(found[1], found[0]), value)


def prepare(folder: Path, setup: Json) -> None:
    """Writes the files. In a repository they are committed, but for those that begin with a plus."""
    folder.mkdir()
    for name, text in setup.get("files", {}).items():
        if not name.startswith("+"):
            path = folder / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
    if setup.get("repository"):
        identity = ["-c", "user.name=Task", "-c", "user.email=task@example.org"]
        for words in (["init", "-q", "-b", "main"], ["add", "."], [*identity, "commit", "-q", "-m", "first"]):
            subprocess.run(["git", "-C", str(folder), *words], check=True)
        for key, value in (("user.name", "Task"), ("user.email", "task@example.org")):
            subprocess.run(["git", "-C", str(folder), "config", key, value], check=True)
    for name, text in setup.get("files", {}).items():
        if name.startswith("+"):
            (folder / name[1:]).write_text(text)
