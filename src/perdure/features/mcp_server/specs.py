"""The descriptions of the tools, as `tools.toml` has them."""

from __future__ import annotations

import functools
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from perdure.features.notes.kinds import note_kinds

_NOTE = ("POST", "/v1/agents/*/notes")
WRITING: Mapping[str, tuple[str, str]] = {
    "memory_remember": ("POST", "/v1/agents/*/archival-memory"),
    "memory_forget": ("POST", "/v1/agents/*/forget"),
    "memory_edit_block": ("PATCH", "/v1/agents/*/core-memory/blocks/*"),
    "note": _NOTE,
    "index_output": _NOTE,  # the API has neither outputs nor counts
    "track": _NOTE,
}
"""The tools that change something, which a server that only reads has not -> method and path of a request to the API
that needs the same scope."""


@dataclass(frozen=True, slots=True)
class MemoryToolSpec:
    """A tool: its name, what models read of it, and the JSON schema of its arguments."""

    name: str
    description: str
    schema: Mapping[str, Any]


@functools.cache
def _file() -> Mapping[str, Any]:
    return tomllib.loads(Path(__file__).with_name("tools.toml").read_text("utf-8"))


def instructions() -> str:
    """Return what a client shows its model about the whole server."""
    return str(_file()["instructions"]).strip()


@functools.cache
def tool_specs() -> Mapping[str, MemoryToolSpec]:
    """All tools by name, in the order of the file."""
    return {name: _spec(name, table) for name, table in _file().items() if isinstance(table, Mapping)}


def offered_specs(*, read_only: bool, runs_commands: bool) -> Sequence[MemoryToolSpec]:
    """The tools of a server that only reads, or not, and may run commands, or not."""
    specs = [spec for spec in tool_specs().values() if not (read_only and spec.name in WRITING)]
    return specs if runs_commands else [_without_command(spec) for spec in specs]


def _without_command(spec: MemoryToolSpec) -> MemoryToolSpec:
    properties = {name: value for name, value in spec.schema["properties"].items() if name != "command"}
    return replace(spec, schema={**spec.schema, "properties": properties})


def _spec(name: str, table: Mapping[str, Any]) -> MemoryToolSpec:
    properties = {key: dict(value) for key, value in table["properties"].items()}
    for value in properties.values():
        if value["description"] == "@fields":
            value["description"] = _describe_fields()
    schema = {
        "type": "object",
        "properties": properties,
        "required": table.get("required", {}).get("names", []),
        "additionalProperties": False,
    }
    return MemoryToolSpec(name, " ".join(table["description"].split()), schema)


def _describe_fields() -> str:
    """Return the fields of each kind of note in one line; the first of each is required."""
    kinds = "; ".join(f"{kind.name}: {', '.join(kind.fields)}" for kind in note_kinds().values())
    return f"Name -> text. The first field of a kind is required. {kinds}."
