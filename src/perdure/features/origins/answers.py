"""What was in the request behind an answer: blocks, summaries, recalled texts, searches and messages."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any, Literal

from perdure.app import ModelRegistry
from perdure.context.sections.assemble import View, parse_recalled
from perdure.context.sections.envelopes import is_block_key
from perdure.core.blocks import BlockVersion
from perdure.core.errors import NotFound, PerdureError
from perdure.core.events import MemoryRecalled
from perdure.core.ids import BlockId, MessageId
from perdure.core.messages import Message
from perdure.core.nodes import node_handle
from perdure.core.ports import TokenCounter
from perdure.core.runs import Run, Step
from perdure.core.text.json_strings import json_object
from perdure.core.text.words import STOP_WORDS, stems
from perdure.engine.search.tools import search_tools
from perdure.features.origins.origin_values import (
    AnswerOrigin,
    BlockText,
    MessageText,
    RecalledText,
    SearchText,
    SummaryText,
)
from perdure.library.runs.steps import explain_step
from perdure.storage.tx import Tx

VERSIONS_AT_ONCE = 50
_PIECE = re.compile(r"^\[(\d+)\] (.*(?:\n  .*)*)", re.MULTILINE)
"""A piece of a recalled text. Its lines after the first are indented, so no text can imitate another piece."""
_PASSAGE = re.compile(r"passage-[0-9a-f-]{36}")
EVIDENCE_MAX = 5
SHARE_MIN, ASKED_WEIGHT = 0.15, 0.3
"""A piece has to hold this share of the weight of the answer's words; and what a word of the question weighs."""
MESSAGES_MAX, MESSAGE_CHARS = 300, 4_000
"""Only so many of the newest messages are looked at, and so much of each."""


def last_step(tx: Tx, run: Run) -> Step:
    """The step that brought the run's last answer. Raises: NotFound: the run has called no model."""
    steps = tx.steps.list_by_run(run.key)
    found = next((step for step in reversed(steps) if step.status == "success"), steps[-1] if steps else None)
    if found is None:
        raise NotFound("answer of this run", run.id, hint="it has called no model")
    return found


def answer_of(tx: Tx, run: Run, step: Step, models: ModelRegistry, counter: TokenCounter) -> AnswerOrigin:
    """What was in the request of a step, and its answer; `problem` says why the request can't be built again."""
    brought = [row for row in tx.messages.list_by_run(run, reset=True) if row.step_id == step.id]
    answer = next((row for row in brought if row.role == "assistant"), None)
    origin = AnswerOrigin(
        agent_id=step.agent_id,
        conversation_id=run.conversation_id,
        run_id=run.id,
        step_id=step.id,
        message_id=None if answer is None else answer.id,
        model=step.model,
        model_reason=run.options.model_reason,
        at=step.created_at,
        text="" if answer is None else answer.text,
        exchange=tx.steps.exchange(step),
    )
    try:
        view, request, explanation = explain_step(tx, step, models, counter)
    except PerdureError as error:
        return replace(origin, problem=str(error))
    return replace(
        origin,
        blocks=(*_prompt_blocks(tx, run, view), *_shown_changes(tx, run, view)),
        summaries=_summaries(tx, view),
        recalled=recalled_texts(tx, run, parse_recalled(request.tail)),
        searches=_searches(request.messages),
        messages=tuple(map(MessageText.of, request.messages)),
        tail=request.tail,
        request=request,
        explanation=explanation,
    )


def _prompt_blocks(tx: Tx, run: Run, view: View) -> list[BlockText]:
    """The blocks in the prompt, in the order in which the agent has them; none if the run has its own system text."""
    if run.options.system is not None:
        return []
    found = []
    current = [block.id for block in tx.blocks.list_by_agent(run.key.agent_id, run.conversation_seq)]
    for key in dict.fromkeys([*current, *view.prefix.seen]):
        if key in view.prefix.seen and is_block_key(key):
            number = view.prefix.seen[key]
            version = _find_version(tx, key, number)
            label, text = ("", None) if version is None else (version.label, version.value)
            found.append(BlockText(block_id=key, label=label, version=number, text=text))
    return found


def _find_version(tx: Tx, block_id: str, version: int) -> BlockVersion | None:
    """A version of a block; None: the block was deleted."""
    with suppress(NotFound):
        return tx.blocks.version(BlockId(block_id), version)
    return None


def _log_rows(view: View) -> Sequence[Message]:
    """The messages of the log that are in the request, in order."""
    return (*view.pinned, *view.rows)


def _shown_changes(tx: Tx, run: Run, view: View) -> list[BlockText]:
    """The changes of blocks that messages behind the prompt show, in their order."""
    own = _own_edits(tx, run, view)
    found: list[BlockText] = []
    for row in _log_rows(view):
        if row.kind == "memory_delta":
            found += _change_of_delta(tx, view, row)
        found += own.get(row.id, ())
    return found


def _own_edits(tx: Tx, run: Run, view: View) -> Mapping[MessageId, Sequence[BlockText]]:
    """Map each message with calls to the versions of blocks that the agent made by these, whose results show them."""
    callers = {row.id: row for row in _log_rows(view) if row.calls}
    if not callers:
        return {}
    since = next(iter(callers.values())).created_at
    current = [block.id for block in tx.blocks.list_by_agent(run.key.agent_id, run.conversation_seq)]
    found: dict[MessageId, list[BlockText]] = {}
    for key in dict.fromkeys([*(key for key in view.prefix.seen if is_block_key(key)), *current]):
        for version in _versions_since(tx, BlockId(key), since):
            message_id = version.author.message_id
            if message_id in callers:
                text = BlockText(
                    block_id=key,
                    label=version.label,
                    version=version.version,
                    text=version.value,
                    message_id=message_id,
                    change="edited",
                )
                found.setdefault(message_id, []).append(text)
    return found


def _versions_since(tx: Tx, block_id: BlockId, since: datetime) -> list[BlockVersion]:
    """The versions of a block from a time on, oldest first; none of a deleted block."""
    found: list[BlockVersion] = []
    before: int | None = None
    with suppress(NotFound):
        while page := tx.blocks.versions(block_id, limit=VERSIONS_AT_ONCE, before=before):
            found += [version for version in page if version.created_at >= since]
            before = page[-1].version
            if page[-1].created_at < since:
                break
    return found[::-1]


def _change_of_delta(tx: Tx, view: View, row: Message) -> list[BlockText]:
    """The change of a block that a memory delta, `row`, tells of; empty: it is about something else."""
    fields = json_object(row.text) or {}  # none: a row of an older store
    if fields.get("label") is None:  # of facts, files: of no block
        return []
    version = fields.get("version")
    block_id = fields.get("block") or _block_of(tx, view, row, fields)
    text = fields.get("value")
    if text is None and block_id is not None and version is not None:  # the prompt shows it already
        shown = _find_version(tx, block_id, version)
        text = None if shown is None else shown.value
    return [
        BlockText(
            block_id=block_id,
            label=str(fields.get("label")),
            version=version,
            text=text,
            message_id=row.id,
            change=fields.get("op"),
        )
    ]


def _block_of(tx: Tx, view: View, row: Message, fields: Mapping[str, Any]) -> str | None:
    """The id of the block that a delta (`row`, with `fields`) shows, by its label and version; None: there is none."""
    blocks = tx.blocks.list_by_agent(row.agent_id, row.conversation_seq)
    for key in dict.fromkeys([*(block.id for block in blocks), *view.prefix.seen]):
        version = _find_version(tx, key, fields.get("version", -1)) if is_block_key(key) else None
        if version is not None and version.label == fields.get("label"):
            return key
    return None


def _summaries(tx: Tx, view: View) -> tuple[SummaryText, ...]:
    """The summaries in the request, oldest first."""
    prefix, found = view.prefix, []
    for node in tx.nodes.list_by_seqs(prefix.agent_id, prefix.conversation_seq, prefix.nodes):
        ends = [
            tx.messages.list(
                node.agent_id,
                conversation_seq=node.conversation_seq,
                after_seq=node.from_message_seq - 1,
                before_seq=node.upto_message_seq + 1,
                newest_first=newest_first,
                kinds=None,
                reset=True,
                limit=1,
            )
            for newest_first in (False, True)
        ]
        first, last = (rows[0].id if rows else None for rows in ends)
        found.append(
            SummaryText(
                handle=node_handle(node.seq),
                text=node.text,
                message_count=node.message_count,
                first_message_id=first,
                last_message_id=last,
            )
        )
    return tuple(found)


def recalled_texts(tx: Tx, run: Run, text: str) -> tuple[RecalledText, ...]:
    """The pieces of `text`, which was recalled for a request, with their sources, as an event of the run has them."""
    if not text:
        return ()
    sources: Sequence[Mapping[str, Any]] = ()
    after = 0
    while events := tx.events.list(run.key, after=after):
        sources = next((event.event.sources for event in events if isinstance(event.event, MemoryRecalled)), sources)
        after = events[-1].seq
    pieces = {int(match[1]): match[2].replace("\n  ", "\n") for match in _PIECE.finditer(text)}
    return tuple(
        RecalledText(
            kind=str(source.get("kind")),
            id=str(source.get("id")),
            name=str(source.get("name") or ""),
            score=float(source.get("score") or 0),
            text=pieces.get(number, ""),
        )
        for number, source in enumerate(sources, start=1)
    )


def _searches(messages: Sequence[Message]) -> tuple[SearchText, ...]:
    """The agent's searches whose results are in the request."""
    calls = {call.call_id: call for row in messages for call in row.calls if call.name in search_tools()}
    return tuple(
        SearchText(
            tool=result.name,
            arguments=calls[result.call_id].arguments if result.call_id in calls else "",
            message_id=row.id,
            text=result.text,
            passage_ids=tuple(dict.fromkeys(_PASSAGE.findall(result.text))),
        )
        for row in messages
        for result in row.results
        if result.name in search_tools()
    )


# --- what holds the words of the answer


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestPiece:
    """A piece of a request that holds words of its answer.

    Args:
        id: what `why` is asked for: of a block with the number of the line; of a message, its id.
        name: the label, the source, the tool, or who said it.
        words: the words of the answer that it holds, as stems.
    """

    kind: Literal["block", "recalled", "summary", "search", "message"]
    id: str
    name: str
    text: str
    words: frozenset[str] = frozenset()


def find_evidence(origin: AnswerOrigin) -> list[RequestPiece]:
    """Return the pieces of a request that contain most of the answer's words, at most five, the best first.

    Each adds words that those before it lack, but for a second one. Words in few places count more, and those of the
    question less, which an answer repeats anyway.
    """
    answer = _words(origin.text)
    asked = next((_words(message.text) for message in reversed(origin.messages) if message.role == "user"), frozenset())
    pieces = [replace(one, words=found) for one in _pieces(origin) if (found := answer & _words(one.text))]
    held = Counter(word for piece in pieces for word in piece.words)
    weights = {word: (ASKED_WEIGHT if word in asked else 1) / count for word, count in held.items()}

    def weight(words: frozenset[str]) -> float:
        """Return the sum of the words' weights."""
        return sum(weights[word] for word in words)

    least, left, chosen = SHARE_MIN * sum(weights.values()), frozenset(weights), list[RequestPiece]()
    while pieces and len(chosen) < EVIDENCE_MAX:
        # Of pieces that hold the same, a short one says it more clearly.
        best = max(pieces, key=lambda one: (weight(one.words & left), weight(one.words), -len(one.text)))
        if weight(best.words & left if len(chosen) > 1 else best.words) < least:
            break
        chosen.append(best)
        pieces.remove(best)
        left -= best.words
    return chosen


def _words(text: str) -> frozenset[str]:
    """The words of a text that tell something, as stems."""
    return frozenset(stems(text)) - STOP_WORDS


def _pieces(origin: AnswerOrigin) -> Iterator[RequestPiece]:
    """What a request holds, in pieces: lines of blocks, recalled texts, summaries, searches, and messages."""
    for block in {one.block_id: one for one in origin.blocks if one.block_id and one.text}.values():
        for number, line in enumerate((block.text or "").split("\n"), start=1):
            yield RequestPiece(kind="block", id=f"{block.block_id}:{number}", name=block.label, text=line)
    for piece in origin.recalled:
        yield RequestPiece(kind="recalled", id=piece.id, name=piece.name or piece.kind, text=piece.text)
    for summary in origin.summaries:
        yield RequestPiece(kind="summary", id=summary.handle, name=summary.handle, text=summary.text)
    for search in origin.searches:
        yield RequestPiece(kind="search", id=search.message_id, name=search.tool, text=search.text[:MESSAGE_CHARS])
    searches = {search.message_id for search in origin.searches}
    for one in origin.messages[-MESSAGES_MAX:]:
        if one.id is not None and one.id not in searches and one.kind == "message" and one.role != "assistant":
            yield RequestPiece(kind="message", id=one.id, name=one.name or one.role, text=one.text[:MESSAGE_CHARS])
