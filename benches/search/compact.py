"""Tools without what tool search does not read."""

from __future__ import annotations

from typing import Any

LEVELS = 3
DESCRIPTION = 300
KEPT = ("type", "description", "enum", "default", "format", "items", "properties", "required", "anyOf", "oneOf", "allOf")

Json = dict[str, Any]


def compact_tool(tool: Json) -> Json:
    """A tool as its server lists it, less output schemas, icons and `_meta`; its input schema compact."""
    kept = {key: tool[key] for key in ("name", "title", "description") if tool.get(key)}
    definitions = {**tool.get("inputSchema", {}).get("$defs", {}), **tool.get("inputSchema", {}).get("definitions", {})}
    kept["inputSchema"] = compact_schema(tool.get("inputSchema", {}), 0, definitions)
    if tool.get("annotations"):
        kept["annotations"] = tool["annotations"]
    return kept


def compact_schema(schema: Any, level: int, definitions: Json) -> Any:
    """A schema with shorter descriptions, references resolved, and nothing below the third level of properties."""
    if not isinstance(schema, dict):
        return schema
    if isinstance(schema.get("$ref"), str):
        schema = {**definitions.get(schema["$ref"].rsplit("/", 1)[-1], {}), **schema}
    kept: Json = {}
    for key in KEPT:
        if key not in schema:
            continue
        value = schema[key]
        if key == "description":
            kept[key] = clip(str(value), DESCRIPTION)
        elif key == "properties" and isinstance(value, dict):
            if level < LEVELS:
                kept[key] = {name: compact_schema(it, level + 1, definitions) for name, it in value.items()}
        elif key == "required" and level >= LEVELS:
            continue
        elif key == "enum" and isinstance(value, list):
            kept[key] = value[:40]
        elif key == "default":
            if isinstance(value, (str, int, float, bool)) and len(str(value)) < 80:
                kept[key] = value
        elif key == "items":
            if level < LEVELS:
                kept[key] = compact_schema(value, level + 1, definitions)
        elif key in ("anyOf", "oneOf", "allOf") and isinstance(value, list):
            if level < LEVELS:
                kept[key] = [compact_schema(it, level + 1, definitions) for it in value[:8]]
        else:
            kept[key] = value
    return kept


def clip(text: str, length: int) -> str:
    return text if len(text) <= length else text[:length].rstrip() + "…"
