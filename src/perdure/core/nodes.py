"""Summary nodes, which replace messages in a conversation's view. The messages themselves stay stored."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from datetime import datetime
from typing import Literal

from perdure.core.ids import AgentId
from perdure.core.runs import Usage

MadeBy = Literal["model", "extract", "engine"]
"""The author of a summary: the agent's model, our own code (`context.window.extract`), or a context engine."""

SummaryMethod = Literal["normal", "aggressive", "fallback", "capped"]
"""How a summary came about: by the model's first answer; by its second, after it was told what was wrong; as an
extract; or by an answer that code cut to its limit."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SummaryNode:
    """A summary of the messages [`from_message_seq`, `upto_message_seq`] of a conversation.

    Nodes make a tree: one of `level` 0 stands for messages, one of a higher level for `children`, nodes of the level
    below. `seq` counts within the conversation, from 0. What a node says changes only when a message that it stands for
    does.

    Args:
        message_count: how many messages it replaces, without the engine's own.
        since, until: the times of the first and last of them.
        tokens: the upper estimate of its text.
        model: the model that was called for it.
        rejected: why an answer of the model was not used; None: its first was, or no model was called.
        usage: the tokens of the model's calls.
        revised_at: when it was written again, because a message behind it was changed or removed.
    """

    agent_id: AgentId
    conversation_seq: int
    seq: int
    level: int
    from_message_seq: int
    upto_message_seq: int
    children: tuple[int, ...] = ()
    message_count: int
    since: datetime
    until: datetime
    text: str
    tokens: int
    made_by: MadeBy
    method: SummaryMethod = "normal"
    model: str | None = None
    rejected: str | None = None
    usage: Usage = field(default_factory=Usage)
    created_at: datetime
    revised_at: datetime | None = None


@dataclass(frozen=True, slots=True)
class ParsedHandle:
    """A parsed handle: a node by its number, or the messages [`first`, `last`] of the agent's log."""

    kind: Literal["node", "messages"]
    first: int
    last: int


def node_handle(seq: int) -> str:
    """Return the handle of a node: `node-3`."""
    return f"node-{seq}"


UNNUMBERED_HANDLE = "msg-000000000000"
"""The handle in a text that a model will see, until its message has a number; as long as the longest."""


def message_handle(first: int, last: int | None = None) -> str:
    """Return the handle of messages: `msg-17`, or `msg-17..40` for several."""
    return f"msg-{first}" if last is None or last == first else f"msg-{first}..{last}"


_HANDLE = re.compile(r"(?:node-(?P<node>\d{1,15})|msg-(?P<first>\d{1,15})(?:\.\.(?P<last>\d{1,15}))?)", re.ASCII)


def parse_handle(text: str) -> ParsedHandle | None:
    """Parse the handle of a node or of messages; None: it is not a handle. Space and quotes around it are ignored."""
    if (match := _HANDLE.fullmatch(text.strip().strip("\"'`").lower())) is None:
        return None
    if (node := match["node"]) is not None:
        return ParsedHandle("node", int(node), int(node))
    first = int(match["first"])
    last = first if match["last"] is None else int(match["last"])
    return ParsedHandle("messages", first, last) if first <= last else None
