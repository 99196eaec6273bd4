"""For programs: one JSON object a line, on stdout. Scripts rely on these shapes."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any, TextIO

from perdure.cli.views.pending import call_shape, pending_shape
from perdure.cli.views.view import AgentRow, ConversationRow, ModelRow, View
from perdure.context.request.explain import Explanation, RequestDiff
from perdure.context.window.overview import ContextOverview
from perdure.core.answers import PendingCall
from perdure.core.blocks import Author, Block, BlockVersion
from perdure.core.conversations import Conversation, Reset
from perdure.core.errors import PerdureError, RunFailed
from perdure.core.ids import StepId
from perdure.core.messages import Message, parts_to_json
from perdure.core.passages import Passage
from perdure.core.runs import Usage
from perdure.library.agent import AsyncAgent
from perdure.library.reply import Reply
from perdure.library.services.steps import StepInfo


class JsonView(View):
    """One JSON object for each message and each command; nothing for what only people need."""

    def __init__(self, out: TextIO) -> None:
        self._out = out

    def show_reply(self, agent: AsyncAgent, reply: Reply) -> None:
        self._print(reply_shape(agent, reply))

    def show_pending(self, calls: Sequence[PendingCall]) -> None:
        self._print({"pending": [pending_shape(call) for call in calls]})

    def show_blocks(self, blocks: Sequence[Block]) -> None:
        self._print({"blocks": [block_shape(block) for block in blocks]})

    def show_versions(self, label: str, versions: Sequence[BlockVersion]) -> None:
        self._print({"label": label, "versions": [version_shape(version) for version in versions]})

    def show_restore(self, block: Block, version: int, diff: str) -> None:
        self._print({"restored": version, "block": block_shape(block), "diff": diff})

    def show_results(self, query: str, messages: Sequence[Message], passages: Sequence[Passage]) -> None:
        self._print(
            {
                "query": query,
                "messages": [message_shape(message) for message in messages],
                "passages": [passage_shape(passage) for passage in passages],
            }
        )

    def show_recall(self, budget_tokens: int | None) -> None:
        self._print({"auto_recall": None if budget_tokens is None else {"budget_tokens": budget_tokens}})

    def show_new_conversation(self, conversation: Conversation) -> None:
        self._print({"conversation": conversation.id})

    def show_conversations(self, rows: Sequence[ConversationRow]) -> None:
        self._print({"conversations": [conversation_shape(row) for row in rows]})

    def show_switch(self, row: ConversationRow) -> None:
        self._print({"conversation": row.id})

    def show_reset(self, resets: Sequence[Reset]) -> None:
        self._print({"reset": [reset_shape(reset) for reset in resets]})

    def show_agents(self, rows: Sequence[AgentRow]) -> None:
        self._print({"agents": [agent_shape(row) for row in rows]})

    def show_model(self, row: ModelRow) -> None:
        self._print({"model": model_shape(row)})

    def show_context(self, overview: ContextOverview, steps: Sequence[StepInfo] | None = None) -> None:
        listed = {} if steps is None else {"steps": [step_shape(step) for step in steps]}
        self._print({"context": context_shape(overview), **listed})

    def show_explanation(self, explanation: Explanation) -> None:
        self._print({"step": explanation_shape(explanation)})

    def show_diff(self, old: StepId, new: StepId, diff: RequestDiff) -> None:
        self._print({"diff": {"steps": [old, new], **asdict(diff)}})

    def show_commands(self, commands: Mapping[str, str]) -> None:
        self._print({"commands": dict(commands)})

    def error(self, error: PerdureError) -> None:
        self._print({"error": error_shape(error)})

    def _print(self, value: object) -> None:
        print(to_line(value, self._out), file=self._out, flush=True)


def to_line(value: object, out: TextIO) -> str:
    """JSON on one line, in ASCII if the stream can't encode the text; lone surrogates are such text."""
    line = json.dumps(value, ensure_ascii=False)
    try:
        line.encode(getattr(out, "encoding", None) or "utf-8")
    except UnicodeEncodeError:
        return json.dumps(value)
    return line


def reply_shape(agent: AsyncAgent, reply: Reply) -> dict[str, Any]:
    """A run. `pending` is there if it stopped at waiting calls, `error` if it failed."""
    shape: dict[str, Any] = {
        "agent": agent.name,
        "agent_id": agent.id,
        "run_id": reply.run_id,
        "text": reply.text,
        "stop_reason": reply.stop_reason,
        "usage": {name: getattr(reply.usage, name) for name in Usage.__slots__},
        "edits": [{"label": edit.label, "version": edit.version, "diff": edit.diff} for edit in reply.edits],
        "messages": [message_shape(message) for message in reply.messages],
    }
    if reply.pending:
        shape["pending"] = [call_shape(call) for call in reply.pending]
    if reply.failure is not None:
        failed = RunFailed(reply.failure.message, run_id=reply.run_id, stop_reason=reply.stop_reason, reply=reply)
        shape["error"] = error_shape(failed) | {"kind": reply.failure.kind}
    return shape


def error_shape(error: PerdureError) -> dict[str, str]:
    return {"type": error.code, "message": str(error)}


def message_shape(message: Message) -> dict[str, Any]:
    return {
        "id": message.id,
        "seq": message.seq,
        "role": message.role,
        "text": message.text,
        "parts": json.loads(parts_to_json(message.parts)),
        "created_at": message.created_at.isoformat(),
        "occurred_at": message.occurred_at.isoformat(),
    }


def conversation_shape(row: ConversationRow) -> dict[str, Any]:
    return {
        "id": row.id,
        "number": row.number,
        "summary": row.summary,
        "created_at": row.created_at.isoformat(),
        "last_message_at": None if row.used_at is None else row.used_at.isoformat(),
        "archived": row.archived,
    }


def reset_shape(reset: Reset) -> dict[str, Any]:
    return {
        "conversation_id": reset.conversation_id,
        "number": reset.number,
        "messages": reset.message_count,
        "created_at": reset.created_at.isoformat(),
    }


FILE_FIELDS = ("file_name", "first_line", "last_line", "page")
"""Further fields of a passage that is part of a file."""


def passage_shape(passage: Passage) -> dict[str, Any]:
    return {
        "id": passage.id,
        "text": passage.text,
        "tags": list(passage.tags),
        "occurred_at": passage.occurred_at.isoformat(),
        **{name: passage.source[name] for name in FILE_FIELDS if name in passage.source},
    }


def block_shape(block: Block) -> dict[str, Any]:
    return {
        "id": block.id,
        "label": block.label,
        "value": block.value,
        "chars_current": len(block.value),
        "limit_chars": block.limit_chars,
        "read_only": block.read_only,
        "description": block.description,
        "version": block.version,
    }


def version_shape(version: BlockVersion) -> dict[str, Any]:
    return {
        "version": version.version,
        "author": author_shape(version.author),
        "created_at": version.created_at.isoformat(),
        "value": version.value,
        "diff": version.diff,
    }


def author_shape(author: Author) -> dict[str, str | None]:
    return {"kind": author.kind, "id": author.id, "run_id": author.run_id, "message_id": author.message_id}


def agent_shape(row: AgentRow) -> dict[str, Any]:
    return {
        "name": row.name,
        "id": row.id,
        "model": row.model,
        "created_at": row.created_at.isoformat(),
        "used_at": row.used_at.isoformat(),
        "messages": row.message_count,
    }


def model_shape(row: ModelRow) -> dict[str, Any]:
    """Windows in tokens, prices in US dollars per million tokens; null means unknown."""
    facts = asdict(row.facts)
    del facts["family"]
    return {"handle": row.handle, "reason": row.reason, "problem": row.problem, "known": row.facts.known, **facts}


def context_shape(overview: ContextOverview) -> dict[str, Any]:
    return {
        "model": overview.model,
        "window_tokens": overview.window_tokens,
        "used_tokens": overview.used_tokens,
        "reserve_tokens": overview.reserve_tokens,
        "free_tokens": overview.free_tokens,
        "over_tokens": overview.over_tokens,
        "estimated_tokens": overview.estimated_tokens,
        "measured_tokens": overview.measured_tokens,
        "parts": [asdict(part) for part in overview.parts],
        "sent": overview.sent,
        "rewrite": overview.rewrite,
        "messages": overview.message_count,
        "hidden_messages": overview.hidden_messages,
        "summaries": list(overview.nodes),
        "shown_in_part": {str(seq): chars for seq, chars in overview.stubs.items()},
        "pending_edits": overview.pending_edits,
    }


def step_shape(step: StepInfo) -> dict[str, Any]:
    """Prices in US dollars, null means unknown; `rewritten` is null where the prefix is unchanged."""
    return {
        "id": step.id,
        "run_id": step.run_id,
        "conversation_id": step.conversation_id,
        "index": step.index,
        "status": step.status,
        "model": step.model,
        "created_at": step.created_at.isoformat(),
        "estimated_tokens": step.estimated_tokens,
        "usage": asdict(step.usage),
        "price": step.price,
        "prefix": step.prefix_seq,
        "rewritten": step.rewritten,
    }


def explanation_shape(explanation: Explanation) -> dict[str, Any]:
    """The tokens of the parts sum to `input_tokens`; prices in US dollars, null means unknown."""
    return {
        "id": explanation.step_id,
        "model": explanation.model,
        "status": explanation.status,
        "created_at": explanation.created_at.isoformat(),
        "measured": explanation.measured,
        "doubtful": explanation.doubtful,
        "input_tokens": explanation.input_tokens,
        "estimated_tokens": explanation.estimated_tokens,
        "certified_tokens": explanation.certified_tokens,
        "usage": asdict(explanation.usage),
        "hit_rate": explanation.hit_rate,
        "input_price": explanation.input_price,
        "output_price": explanation.output_price,
        "price": explanation.price,
        "parts": [asdict(use) | {"plain_tokens": use.plain_tokens} for use in explanation.segments],
        "prefix": explanation.prefix_seq,
        "prefix_reason": explanation.prefix_reason,
        "messages": explanation.message_count,
        "summaries": list(explanation.nodes),
        "shown_in_part": {str(seq): chars for seq, chars in explanation.stubs.items()},
        "digest": explanation.digest or None,
    }
