"""Summary nodes: what stands in a conversation's view for messages that left it. The messages themselves stay."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from datetime import datetime
from typing import Literal

from perdure.core.ids import AgentId
from perdure.core.runs import Usage

__all__ = ["Handle", "MadeBy", "SummaryNode", "message_handle", "node_handle", "parse_handle"]

MadeBy = Literal["model", "extract"]
"""Who wrote a summary: the agent's model, or our own code, from the identifiers, numbers and questions it found."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SummaryNode:
    """A summary of the messages [`from_message_seq`, `upto_message_seq`] of a conversation.

    Nodes make a tree: one of `level` 0 stands for messages, one of a higher level for `children`, nodes of the level
    below. `seq` counts within the conversation, from 0; a node never changes.

    Args:
        message_count: how many messages it stands for, the engine's own not counted.
        since, until: when the first and last of them were said.
        tokens: the upper estimate of its text.
        model: the model that wrote it, or was asked to.
        rejected: why the model's own summary was not used; None: it was, or none was asked for.
        usage: what asking the model took.
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
    model: str | None = None
    rejected: str | None = None
    usage: Usage = field(default_factory=Usage)
    created_at: datetime


@dataclass(frozen=True, slots=True)
class Handle:
    """What a handle names: a node by its number, or the messages [`first`, `last`] of the agent's log."""

    kind: Literal["node", "messages"]
    first: int
    last: int


def node_handle(seq: int) -> str:
    """`node-3`."""
    return f"node-{seq}"


def message_handle(first: int, last: int | None = None) -> str:
    """`msg-17`, or `msg-17..40` for several."""
    return f"msg-{first}" if last is None or last == first else f"msg-{first}..{last}"


_HANDLE = re.compile(r"(?:node-(?P<node>\d{1,15})|msg-(?P<first>\d{1,15})(?:\.\.(?P<last>\d{1,15}))?)", re.ASCII)


def parse_handle(text: str) -> Handle | None:
    """The inverse of the two above; None for what is no handle. Space and quotes around it are passed over."""
    found = _HANDLE.fullmatch(text.strip().strip("\"'`").lower())
    if found is None:
        return None
    if (node := found["node"]) is not None:
        return Handle("node", int(node), int(node))
    first = int(found["first"])
    last = first if found["last"] is None else int(found["last"])
    return Handle("messages", first, last) if first <= last else None
