"""What the results of tools bring from outside."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from perdure.core.ids import is_id
from perdure.core.provenance.sources import Source
from perdure.core.tools.spec import Tool, ToolOutcome

_OWN = frozenset({"ask_user"})
"""Built-in tools that bring nothing: the user's answer is a message of its own."""


def foreign_sources(tool: Tool, arguments: Mapping[str, Any], outcome: ToolOutcome) -> tuple[Source, ...]:
    """Return what the outcome of a tool that runs outside the store brings: what the tool says itself, else the tool.

    A call that was refused brings nothing, one that failed does: its error may hold anything.
    """
    if outcome.refused:
        return ()
    if outcome.sources is not None:
        return outcome.sources
    name = tool.spec.name
    match tool.spec.kind:
        case "memory":
            return ()
        case "builtin" if name in _OWN:
            return ()
        case "builtin" if name in ("fetch_webpage", "web_search"):
            return (Source.of("web", str(arguments.get("url") or arguments.get("query") or name)),)
        case "agents":
            return tuple(Source.of("other_agent", agent) for agent in _agents(arguments, outcome)) or (
                Source.of("other_agent", name),
            )
        case "mcp":
            return (Source.of("mcp", name),)
    return (Source.of("tool", name),)


def _agents(arguments: Mapping[str, Any], outcome: ToolOutcome) -> list[str]:
    """The agents that answered, or were written to."""
    try:
        answers = json.loads(outcome.text)
    except ValueError:
        answers = []
    shapes = [one for one in (answers if isinstance(answers, list) else [answers]) if isinstance(one, Mapping)]
    named = [*(shape.get("agent_id") for shape in shapes), arguments.get("other_agent_id")]
    return list(dict.fromkeys(name.strip() for name in named if isinstance(name, str) and is_id("agent", name.strip())))
