"""For programs: one JSON object a line, on stdout. Scripts rely on these shapes."""

from __future__ import annotations

import json
from dataclasses import asdict
from datetime import datetime
from typing import Any, Protocol, TextIO

from rich.console import RenderableType

from perdure.cli.views.text import call_shape
from perdure.cli.views.view import AgentRow, ConversationRow, ModelRow, Output
from perdure.context.request.explain import Explanation
from perdure.context.request.overview import ContextOverview
from perdure.core.agents import LISTED
from perdure.core.blocks import Block, BlockVersion
from perdure.core.conversations import Reset
from perdure.core.errors import PerdureError, RunFailed
from perdure.core.messages import Message, parts_to_json
from perdure.core.passages import Passage
from perdure.core.text.reprs import attributes
from perdure.library.agent import AsyncAgent
from perdure.library.messages.reply import Reply
from perdure.library.runs.steps import StepInfo
from perdure.search.ranking.hits import Why

FILE_FIELDS = ("file_name", "first_line", "last_line", "page")
"""Further fields of a passage that is part of a file."""


class JsonView(Output):
    """One JSON object for each message and each command; nothing for what only people need."""

    def __init__(self, out: TextIO) -> None:
        self._out = out

    def show(self, shape: object, *parts: RenderableType) -> None:
        line = json.dumps(shape, ensure_ascii=False, default=_time)
        try:
            line.encode(getattr(self._out, "encoding", None) or "utf-8")
        except UnicodeEncodeError:  # lone surrogates are such text
            line = json.dumps(shape, default=_time)
        print(line, file=self._out, flush=True)

    def error(self, error: PerdureError) -> None:
        self.show({"error": error_shape(error)})

    def show_reply(self, agent: AsyncAgent, reply: Reply) -> None:
        self.show(reply_shape(agent, reply))


def _time(value: object) -> str:
    """Return a time in ISO 8601. Raises: TypeError: it is something else."""
    if isinstance(value, datetime):
        return value.isoformat()
    raise TypeError(f"a {type(value).__name__} has no form in JSON")


def fields(value: object, *names: str, **others: str) -> dict[str, Any]:
    """A JSON object of attributes: `names`, and `others` as key -> path such as `author.id`. Times are in ISO 8601."""
    found = attributes(value, *names, **others)
    return {name: one.isoformat() if isinstance(one, datetime) else one for name, one in found.items()}


def reply_shape(agent: AsyncAgent, reply: Reply) -> dict[str, Any]:
    """A run. `pending` is there if it stopped at waiting calls, `error` if it failed."""
    shape: dict[str, Any] = {
        "agent": agent.name,
        "agent_id": agent.id,
        **fields(reply, "run_id", "text", "stop_reason"),
        "usage": asdict(reply.usage),
        "edits": [fields(edit, "label", "version", "diff") for edit in reply.edits],
        "messages": [message_shape(message) for message in reply.messages],
    }
    if reply.pending:
        shape["pending"] = [call_shape(call) for call in reply.pending]
    if reply.failure is not None:
        failed = RunFailed(reply.failure.message, run_id=reply.run_id, stop_reason=reply.stop_reason, reply=reply)
        shape["error"] = error_shape(failed) | {"kind": reply.failure.kind}
    return shape


def error_shape(error: PerdureError) -> dict[str, str]:
    """An error: its code and its message."""
    return {"type": error.code, "message": str(error)}


def message_shape(message: Message) -> dict[str, Any]:
    """A message with its parts."""
    return {
        **fields(message, "id", "seq", "role", "text", "created_at", "occurred_at"),
        "parts": json.loads(parts_to_json(message.parts)),
    }


def conversation_shape(row: ConversationRow) -> dict[str, Any]:
    """A conversation as a list prints it."""
    shape = fields(row.info, "id", "summary", "created_at", "last_message_at", number="seq")
    return shape | {"archived": row.info.archived_at is not None}


def reset_shape(reset: Reset) -> dict[str, Any]:
    """A reset of a conversation."""
    return fields(reset, "conversation_id", "number", "created_at", messages="message_count")


def passage_shape(passage: Passage) -> dict[str, Any]:
    """A passage, with its place where it is part of a file."""
    place = {name: passage.source[name] for name in FILE_FIELDS if name in passage.source}
    return fields(passage, "id", "text", "tags", "occurred_at", "state") | place


class ScoredHit(Protocol):
    """A hit of a search."""

    @property
    def score(self) -> float:
        """It compares within one search only."""

    @property
    def why(self) -> Why | None:
        """Its explanation, on request."""


def score_shape(hit: ScoredHit) -> dict[str, Any]:
    """The score of a search hit and, if known, why it was found."""
    return {"score": hit.score} | ({"why": asdict(hit.why)} if hit.why is not None else {})


def block_shape(block: Block) -> dict[str, Any]:
    """A memory block."""
    names = ("id", "label", "value", "limit_chars", "read_only", "description", "version")
    return fields(block, *names) | {"chars_current": len(block.value)}


def version_shape(version: BlockVersion) -> dict[str, Any]:
    """A version of a block, with its author and its diff."""
    names = ("version", "created_at", "value", "diff", "agent_name", "reason")
    return fields(version, *names, label="author.label") | {
        "author": fields(version.author, "kind", "id", "run_id", "message_id"),
        "sources": [str(source.source) for source in version.author.sources],
    }


def agent_shape(row: AgentRow) -> dict[str, Any]:
    """An agent as a list prints it."""
    info = fields(row.info, *LISTED)
    return info | fields(row, "used_at", messages="info.message_count")


def model_shape(row: ModelRow) -> dict[str, Any]:
    """Windows in tokens, prices in US dollars per million tokens; null means unknown."""
    facts = asdict(row.facts)
    del facts["family"]
    return {**fields(row, "handle", "reason", "problem"), "known": row.facts.known, **facts}


def context_shape(overview: ContextOverview) -> dict[str, Any]:
    """What fills the window, in tokens."""
    tokens = [f"{part}_tokens" for part in ("window", "used", "reserve", "free", "over", "estimated", "measured")]
    return {
        **fields(overview, "model", *tokens, "sent", "rewrite", "hidden_messages", "pending_edits"),
        **_view_shape(overview),
        "parts": [asdict(part) for part in overview.parts],
        "results": asdict(overview.results),
    }


def step_shape(step: StepInfo) -> dict[str, Any]:
    """Prices in US dollars, null means unknown; `rewritten` is null where the prefix is unchanged."""
    names = ("id", "run_id", "conversation_id", "index", "status", "model", "created_at", "estimated_tokens")
    return fields(step, *names, "price", "rewritten") | {"usage": asdict(step.usage), "prefix": step.prefix_seq}


def explanation_shape(explanation: Explanation) -> dict[str, Any]:
    """The tokens of the parts sum to `input_tokens`; prices in US dollars, null means unknown."""
    facts = ("model", "status", "created_at", "measured", "doubtful", "prefix_reason")
    amounts = ("input_tokens", "estimated_tokens", "certified_tokens", "hit_rate")
    prices = ("input_price", "output_price", "price", "redacted")
    return {
        **fields(explanation, *facts, *amounts, *prices, id="step_id", prefix="prefix_seq"),
        **_view_shape(explanation),
        "usage": asdict(explanation.usage),
        "parts": [asdict(use) | {"plain_tokens": use.plain_tokens} for use in explanation.segments],
        "digest": explanation.digest or None,
    }


def _view_shape(window: ContextOverview | Explanation) -> dict[str, Any]:
    """The messages in view, for JSON: how many, which summaries stand for older ones, which are shown in part."""
    return {
        "messages": window.message_count,
        "summaries": list(window.nodes),
        "shown_in_part": {str(seq): chars for seq, chars in window.stubs.items()},
    }
