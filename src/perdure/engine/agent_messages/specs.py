"""The specs of the tools by which an agent writes to others: names and arguments as in Letta, texts of our own."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from perdure.core.tools.spec import ToolSpec, object_schema

WAIT_TOOL = "send_message_to_agent_and_wait_for_reply"
ASYNC_TOOL = "send_message_to_agent_async"
TAGS_TOOL = "send_message_to_agents_matching_tags"
ALL_TAGS_TOOL = "send_message_to_agents_matching_all_tags"

_MESSAGE = {"type": "string", "description": "What to say. The other agent is told who you are."}
_OTHER = {"type": "string", "description": "The id of the other agent: agent-, then a uuid."}


def _tags(description: str) -> dict[str, Any]:
    """The schema of a list of tags."""
    return {"type": "array", "items": {"type": "string"}, "description": description}


def _spec(name: str, description: str, properties: Mapping[str, Any]) -> ToolSpec:
    """A tool with these arguments, all of them required."""
    return ToolSpec(
        name=name,
        description=description,
        parameters=object_schema(properties, tuple(properties)),
        kind="agents",
        tool_type="letta_multi_agent_core",
        idempotent=True,  # a call that is repeated finds the runs that it began
        parallel=True,
    )


_SPECS = (
    _spec(
        WAIT_TOOL,
        "Send a message to another agent and wait for its reply. Returns the reply.",
        {"message": _MESSAGE, "other_agent_id": _OTHER},
    ),
    _spec(
        ASYNC_TOOL,
        "Send a message to another agent and go on without its reply. If it has something to say, it writes to you.",
        {"message": _MESSAGE, "other_agent_id": _OTHER},
    ),
    _spec(
        TAGS_TOOL,
        "Send a message to all other agents with certain tags and wait for their replies. Returns a reply or an error"
        " for each agent.",
        {
            "message": _MESSAGE,
            "match_all": _tags("An agent needs all of these tags; empty: no condition."),
            "match_some": _tags("An agent needs at least one of these tags; empty: no condition."),
        },
    ),
    _spec(
        ALL_TAGS_TOOL,
        "Send a message to all other agents that have all of these tags and wait for their replies. Returns a reply or"
        " an error for each agent.",
        {"message": _MESSAGE, "tags": _tags("An agent needs all of these tags.")},
    ),
)

AGENT_TOOL_SPECS: Mapping[str, ToolSpec] = {spec.name: spec for spec in _SPECS}
"""Name -> spec, of every tool that writes to agents."""

MULTI_AGENT_TOOLS = (WAIT_TOOL, ASYNC_TOOL, TAGS_TOOL)
"""What `include_multi_agent_tools` gives an agent."""
