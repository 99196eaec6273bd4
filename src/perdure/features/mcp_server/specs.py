"""The tools, as `tools.toml` has them."""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from perdure.core.text.tables import read_table
from perdure.features.notes.values import note_kinds


@dataclass(frozen=True, slots=True)
class MemoryToolSpec:
    """A tool.

    Args:
        description: what models read of it.
        schema: the JSON schema of its arguments.
        request: method and path of a request to the API that needs the same scope; empty: it changes nothing.
        kept: the arguments that are stored, without credentials.
    """

    name: str
    description: str
    schema: Mapping[str, Any]
    request: Sequence[str]
    kept: Sequence[str]


@functools.cache
def _file() -> Mapping[str, Any]:
    return read_table(__file__, "tools.toml")


def instructions() -> str:
    """Return what a client shows its model about the whole server."""
    return str(_file()["instructions"]).strip()


@functools.cache
def tool_specs(*, runs_commands: bool = True) -> Mapping[str, MemoryToolSpec]:
    """All tools by name, in the order of the file; of a server that runs commands, or not."""
    tables = {name: table for name, table in _file().items() if isinstance(table, Mapping)}
    return {name: _spec(name, table, runs_commands) for name, table in tables.items()}


def offered_specs(*, read_only: bool, runs_commands: bool) -> Sequence[MemoryToolSpec]:
    """The tools of a server that only reads, or not, and may run commands, or not."""
    return [spec for spec in tool_specs(runs_commands=runs_commands).values() if not (read_only and spec.request)]


def _spec(name: str, table: Mapping[str, Any], runs_commands: bool) -> MemoryToolSpec:
    properties = {key: dict(value) for key, value in table["properties"].items() if runs_commands or key != "command"}
    if name == "note":  # the fields of each kind in one line
        kinds = "; ".join(f"{kind.name}: {', '.join(kind.fields)}" for kind in note_kinds().values())
        properties["fields"]["description"] = f"Name -> text. The first field of a kind is required. {kinds}."
    schema = {
        "type": "object",
        "properties": properties,
        "required": table.get("required", []),
        "additionalProperties": False,
    }
    description = " ".join(table["description"].split())
    return MemoryToolSpec(name, description, schema, table.get("request", "").split(), table.get("kept", ()))
