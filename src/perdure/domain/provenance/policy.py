"""What the results of tools bring from outside, and the setting `untrusted_writes`: what becomes of memory that an
agent writes after content from outside entered its context."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Literal, get_args

from perdure.core.agents import Agent
from perdure.core.errors import InvalidInput, UntrustedWrite
from perdure.core.features import Point
from perdure.core.ids import is_id
from perdure.core.sources import OUTSIDE, Source, WriteSource
from perdure.core.specs import Tool, ToolOutcome
from perdure.core.text.json_strings import json_or
from perdure.core.tools.engine_specs import tool_writes_memory
from perdure.domain.provenance.context import context_sources
from perdure.storage.tx import Tx

UNTRUSTED_WRITES = "untrusted_writes"

MEMORY_OWNER: Point[[Tx, Agent], Agent | None] = Point("memory_owner")
"""The agent whose memory another one keeps; None: it keeps its own."""

WritePolicy = Literal["allow", "label", "approve", "block"]
POLICIES: Final[tuple[WritePolicy, ...]] = get_args(WritePolicy)
"""From the most permissive to the strictest."""
DEFAULT_POLICY: Final[WritePolicy] = "label"

NAMED = 3
"""How many sources a text names."""


@dataclass(frozen=True, slots=True)
class WriteGate:
    """The policy for one write of memory, and the sources in its context; without any it is the agent's own words."""

    policy: WritePolicy
    sources: tuple[WriteSource, ...] = ()

    def check(self, tool: str, *, is_approved: bool) -> None:
        """Check that `tool` may write. `is_approved`: a person has approved the call. Raises: UntrustedWrite."""
        if self.policy == "block" or (self.policy == "approve" and not is_approved):
            raise UntrustedWrite(tool, describe_sources(self.sources), self.policy)


OPEN_GATE = WriteGate("allow")


def policy_of(settings: Mapping[str, Any]) -> WritePolicy:
    """Return the policy in an agent's settings, else the default one."""
    value = settings.get(UNTRUSTED_WRITES)
    return next((policy for policy in POLICIES if policy == value), DEFAULT_POLICY)


def check_policy(settings: Mapping[str, Any]) -> None:
    """Check an agent's setting `untrusted_writes`. Raises: InvalidInput."""
    value = settings.get(UNTRUSTED_WRITES)
    if value is not None and value not in POLICIES:
        raise InvalidInput(f"{UNTRUSTED_WRITES} is {value!r:.80}: it can be {', '.join(POLICIES)}")


def load_policy(tx: Tx, agent: Agent) -> WritePolicy:
    """Return the policy for what an agent writes: its own or, if stricter, that of an agent with which it shares a
    block or archive. A companion has the policy of the agent whose memory it keeps."""
    owner = next(filter(None, MEMORY_OWNER(tx, agent)), agent)
    settings = [owner.settings, *tx.sources.settings_of_sharers(owner.id, UNTRUSTED_WRITES, but=agent.id)]
    return max(map(policy_of, settings), key=POLICIES.index)


def load_gate(tx: Tx, agent: Agent, conversation_seq: int, *, before_seq: int) -> WriteGate:
    """Return the gate for a write by a call in the message with the number `before_seq`. Raises: NotFound."""
    sources = context_sources(tx, agent.id, conversation_seq, before_seq=before_seq)
    return gate_of(tx, agent, sources)


def gate_of(tx: Tx, agent: Agent, sources: tuple[WriteSource, ...]) -> WriteGate:
    """Return the gate for a write by this agent with these sources in its context."""
    if not sources or (policy := load_policy(tx, agent)) == "allow":
        return OPEN_GATE
    return WriteGate(policy if is_from_outside(source.source for source in sources) else "label", sources)


def is_from_outside(sources: Iterable[Source]) -> bool:
    """Return whether one of these sources has a label in `OUTSIDE`, to which policies for writes apply."""
    return any(source.label in OUTSIDE for source in sources)


def writes_memory(tx: Tx, tool: Tool) -> bool:
    """Return whether calls of a tool may change memory: of a built-in one, or of a custom one that takes the agent."""
    if tool.spec.kind == "memory":
        return tool_writes_memory(tool.spec.name)
    code = tx.tools.code(tool.id) if tool.spec.kind == "custom" else None
    return code is not None and code.takes_agent


def describe_sources(sources: Sequence[WriteSource]) -> str:
    """Return the first sources in words, each with the message that brought it last."""
    named = [f"{one.source}" + (f" ({one.message_ids[-1]})" if one.message_ids else "") for one in sources[:NAMED]]
    more = len(sources) - len(named)
    return ", ".join(named) + (f" and {more} more" if more else "")


_OWN = frozenset({"ask_user"})
"""Built-in tools that bring nothing: the user's answer is a message of its own."""


def foreign_sources(tool: Tool, arguments: Mapping[str, Any], outcome: ToolOutcome) -> tuple[Source, ...]:
    """Return the sources of a tool's outcome: those that it names, else one for the tool. None for a tool that reads
    the agent's own store, or a refused call; a failed call has them, as its error may hold any text."""
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
    """Return the ids of the agents that answered a call, or to which it wrote, each once."""
    answers = json_or(outcome.text, [])
    shapes = [answer for answer in (answers if isinstance(answers, list) else [answers]) if isinstance(answer, Mapping)]
    named = [*(shape.get("agent_id") for shape in shapes), arguments.get("other_agent_id")]
    return list(dict.fromkeys(name.strip() for name in named if isinstance(name, str) and is_id("agent", name.strip())))
