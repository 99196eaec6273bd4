"""The engine's tools by name, with their descriptions of `engine_tools.toml`, and those of them that have a trait."""

from __future__ import annotations

import inspect
import tomllib
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from perdure.core.features import find_features
from perdure.core.specs import ToolSpec, ToolTrait

CHECKPOINT_TOOL: Final = "update_working_checkpoint"

# What most tools of a family have. Each is safe to run again: the result of a memory tool is in the transaction of its
# edit, a builtin tool leaves nothing changed, and a call to an agent finds the runs that it began.
_FAMILIES: Final[Mapping[str, Mapping[str, Any]]] = {
    "memory": {"kind": "memory", "tool_type": "letta_core", "traits": ["repeats"]},
    "context": {
        **{"kind": "memory", "tool_type": "perdure_context", "parallel": True},
        **{"writes_memory": False, "traits": ["repeats"]},
    },
    "builtin": {"kind": "builtin", "tool_type": "letta_builtin", "parallel": True, "traits": []},
    "agents": {"kind": "agents", "tool_type": "letta_multi_agent_core", "parallel": True, "traits": []},
    "helpers": {"kind": "helpers", "tool_type": "letta_builtin", "parallel": True, "traits": []},
}
_ORDER: Final = ("type", "enum", "items", "description")


def _load_specs(family: str) -> dict[str, ToolSpec]:
    """Return name -> spec of the tools of a family in `_FAMILIES`, in the order of the files."""
    specs = {}
    for name, table in (pair for tools in _TOOLS for pair in tools.get(family, {}).items()):
        values = {
            **_FAMILIES[family],
            **table,
            "traits": frozenset([*_FAMILIES[family]["traits"], *table.get("traits", ())]),
        }
        parameters = _object_schema(values.pop("arguments", {}), values.pop("required", ()))
        specs[name] = ToolSpec(name=name, parameters=parameters, idempotent=True, **values)
    return specs


def _object_schema(arguments: Mapping[str, Any], required: Sequence[str]) -> dict[str, Any]:
    """Return the JSON schema of an object: name -> argument as the file writes it, and the names that must be given."""
    properties = {name: _schema(value) for name, value in arguments.items()}
    return {"type": "object", "properties": properties, "required": list(required), "additionalProperties": False}


def _schema(value: Any) -> dict[str, Any]:
    """Return the JSON schema of an argument from its form in the file: a description, or a table."""
    if isinstance(value, str):
        return {"type": "string", "description": value}
    if "number" in value:
        return {"type": "integer", "description": value["number"]}
    if "texts" in value:
        return {"type": "array", "items": {"type": "string"}, "description": value["texts"]}
    if "arguments" in value:
        return _object_schema(value["arguments"], value["required"])
    own = value | ({"items": _schema(value["items"])} if "items" in value else {})
    return {key: own[key] for key in _ORDER if key in own}


_FILES = [
    Path(__file__).with_name("engine_tools.toml"),
    *(feature.tool_file for feature in find_features() if feature.tool_file.is_file()),
]
_TOOLS: list[Mapping[str, Mapping[str, Any]]] = [tomllib.loads(file.read_text(encoding="utf-8")) for file in _FILES]

MEMORY_TOOL_SPECS: Final = _load_specs("memory")
"""Name -> spec, of every built-in memory tool."""

CONTEXT_TOOL_SPECS: Final = _load_specs("context")
"""Name -> spec, of the tools that open what is out of view. The engine adds them to every request with tools; they are
not stored. So each word counts: one description names all arguments."""

BUILTIN_TOOL_SPECS: Final = _load_specs("builtin")
"""Name -> spec, of every built-in tool."""

AGENT_TOOL_SPECS: Final = {**_load_specs("agents"), **_load_specs("helpers")}
"""Name -> spec, of every tool that writes to agents or has helpers work."""

MULTI_AGENT_TOOLS: Final = tuple(name for name, spec in AGENT_TOOL_SPECS.items() if "multi_agent" in spec.traits)
"""What `include_multi_agent_tools` gives an agent."""

ENGINE_TOOL_SPECS: Final[Mapping[str, ToolSpec]] = {**MEMORY_TOOL_SPECS, **CONTEXT_TOOL_SPECS, **BUILTIN_TOOL_SPECS}
"""Name -> spec."""


def feature_tools(*, searching: bool) -> dict[str, Callable[..., Any]]:
    """Return name -> function of the features' memory tools: the coroutines, which search, or all others."""
    return {
        name: function
        for feature in find_features()
        if feature.tools
        for name, function in vars(feature.load(feature.tools)).items()
        if name in MEMORY_TOOL_SPECS and inspect.iscoroutinefunction(function) == searching
    }


def tools_with(trait: ToolTrait) -> tuple[str, ...]:
    """Return the names of the engine's tools that have a trait."""
    return tuple(spec.name for spec in ENGINE_TOOL_SPECS.values() if trait in spec.traits)


def tool_writes_memory(name: str) -> bool:
    """Return whether a tool of the engine keeps a text beyond its conversation; for safety true for unknown tools."""
    spec = ENGINE_TOOL_SPECS.get(name)
    return spec is None or spec.writes_memory


REPEATING_TOOLS = frozenset(tools_with("repeats"))
"""Built-in tools whose results only repeat blocks or hits of searches, or say that they worked. The search of history
excludes their results, or it would find earlier searches and edits instead of the messages. It also excludes outputs of
megabytes, which `search_output` searches."""

DEFAULT_TOOLS: Final = {kind: tuple(names) for kind, names in _TOOLS[0]["of_agents"].items()}
"""Agent type -> the tools it has from the start."""

DEFAULT_RULES: Final[Mapping[str, tuple[dict[str, str], ...]]] = {
    kind: tuple(
        {"type": "exit_loop" if name == last else "continue_loop", "tool_name": name}
        for name in (last, *(name for name in DEFAULT_TOOLS[kind] if name != last))
    )
    for kind, last in _TOOLS[0]["last"].items()
}
"""Agent type -> the rules of these tools."""

FINISH_TOOLS: Final = tuple(_TOOLS[0]["last"].values())
"""The tools by which an agent says that it is done with edits of memory, and why it made them."""

FILE_TOOLS = ("open_files", "grep_files", "semantic_search_files")
"""The tools of an agent with a folder."""

ARCHIVAL_TOOLS = ("archival_memory_insert", "archival_memory_search")
