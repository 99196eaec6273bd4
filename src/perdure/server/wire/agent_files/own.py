"""The part of an agent file that only Perdure reads: `metadata.perdure` of the document, by ids of the file.

Other readers ignore it. It has what makes the agent of the file the same agent: its own settings, facts with their
deletions and corrections, passages, schedules, and the values that its blocks had.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields, is_dataclass, replace
from datetime import UTC, datetime
from typing import Any

from pydantic import TypeAdapter, ValidationError

from perdure.core.facts.copies import AgentCopy
from perdure.server.errors import AgentFileInvalid

NAME = "perdure"
VERSION = 1

_COPY = TypeAdapter(AgentCopy)


def own_part(copy: AgentCopy) -> dict[str, Any]:
    """The part of a file with one agent."""
    return {NAME: {"version": VERSION, "agents": {"agent-0": _COPY.dump_python(copy, mode="json")}}}


def own_copies(document: Mapping[str, Any]) -> Mapping[str, AgentCopy]:
    """Id of an agent in the file -> its copy; none of a file that Perdure did not write. Raises: AgentFileInvalid."""
    metadata = document.get("metadata")
    part = metadata.get(NAME) if isinstance(metadata, dict) else None
    if part is None:
        return {}
    agents = part.get("agents") if isinstance(part, dict) else None
    if not isinstance(agents, dict) or part.get("version") != VERSION:
        raise AgentFileInvalid(f"`metadata.{NAME}` of the file has another version than {VERSION}: upgrade Perdure")
    try:
        return {id_: _with_zones(_COPY.validate_python(copy)) for id_, copy in agents.items()}
    except ValidationError as error:
        problem = error.errors(include_url=False, include_input=False)[0]
        place = ".".join(map(str, problem["loc"]))
        raise AgentFileInvalid(f"`metadata.{NAME}` of the file: {place}: {problem['msg']:.200}") from error


def _with_zones(value: Any) -> Any:
    """A value of a copy with all its times in a zone, those without one in UTC."""
    match value:
        case datetime(tzinfo=None):
            return value.replace(tzinfo=UTC)
        case Mapping():
            return {name: _with_zones(inner) for name, inner in value.items()}
        case list() | tuple():
            return type(value)(map(_with_zones, value))
        case _ if is_dataclass(value) and not isinstance(value, type):
            return replace(value, **{one.name: _with_zones(getattr(value, one.name)) for one in fields(value)})
    return value
