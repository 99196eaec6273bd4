"""Automatic recall: what a search finds for a user's message stands at the end of the request, in its volatile tail.

The search runs before the transaction that records the run's first request (T3): one that finds that it is needed
stores nothing, and is made again with what was found. Later steps of the run copy the text from the recipe of the step
before. Recall never fails a run: what it can't do in time is left out, and an event says so.
"""

from __future__ import annotations

import asyncio
import importlib
import json
import logging
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from perdure.core.agents import AUTOCLEAR, Agent
from perdure.core.conversations import Conversation, ConversationState
from perdure.core.errors import PerdureError
from perdure.core.events import MemoryRecalled
from perdure.core.features import Point
from perdure.core.ids import PassageId
from perdure.core.messages import TRY_AGAIN, Draft, Message, user_texts
from perdure.domain.agents.automatic import AutoRecall, bypasses, find_automatic
from perdure.domain.archives.passages import count_passages
from perdure.engine.log.run_log import NO_RECALL, RecallResult, RunLog
from perdure.engine.ports import Ports, UnitInputs, as_requested, with_next_model
from perdure.engine.prompt.prefixes import current_prefix
from perdure.engine.records.rows import decode_drafts
from perdure.search.ranking.hits import RecallScope, RecallSource
from perdure.storage.tx import Tx

log = logging.getLogger(__name__)

RECALL_PLAN: Point[[Tx, Agent, Conversation, Sequence[str]], tuple[str, Any]] = Point("recall_plan")
"""Name of a feature, and what it recalls for a run that begins with these texts; see `RecallScope.features`."""
RECALLED: Point[[Tx, MemoryRecalled], None] = Point("recalled")
"""Something was recalled for a request."""
IS_SEARCHED: Point[[Tx, ConversationState], bool] = Point("is_searched")
"""Whether an agent has something to be searched that is no passage of its archives."""

ASKED_AGAIN_ROWS = 50
"""Among so many rows the message is looked for that is to be answered again."""
QUERY_CHARS = 2_000
"""Characters of the user's messages that are searched: the beginning and the end of a longer text."""


@dataclass(frozen=True, slots=True)
class RecallPlan:
    """A search for a run's first request: where and what."""

    scope: RecallScope
    query: str


class RecallFirst(Exception):
    """Nothing was stored: memory has to be searched first, by `plan`, and the unit run again."""

    def __init__(self, plan: RecallPlan) -> None:
        super().__init__(plan)
        self.plan = plan


def plan_recall_of_run(tx: Tx, run_log: RunLog, inputs: UnitInputs) -> RecallPlan | None:
    """Return the search for the first request of a claimed run; None: none is needed."""
    run, rows = run_log.run, list[Draft | Message](run_log.messages)
    if run.input_waits and (waiting := tx.runs.waiting_input(run.key)) is not None:
        rows += decode_drafts(waiting)[0]
    opening = tx.conversations.get_state(run.key.agent_id, run.conversation_seq)
    return plan_recall(tx, opening, rows, inputs, model=run.options.model)


def plan_recall(
    tx: Tx, opening: ConversationState, rows: Sequence[Draft | Message], inputs: UnitInputs, *, model: str | None
) -> RecallPlan | None:
    """Return the search for the first request after these messages; None: none is needed, or it was made.

    A new agent's chat has nothing out of view: it needs no search, and imports nothing for one. An agent whose requests
    begin with an empty view recalls only if it says so itself.

    Args:
        opening: the state of the agent and the conversation.
        rows: the messages of the run.
        model: of the run, if it has one of its own.
    """
    if inputs.recalled is not None:
        return None
    conversation, agent = opening.conversation, opening.agent
    prefix = current_prefix(tx, conversation, inputs)
    first_seq = conversation.first_seq if prefix is None else prefix.from_message_seq
    if not (first_seq or opening.passages or opening.has_others or opening.has):
        return None
    if rows and rows[0].name == TRY_AGAIN:
        rows = tx.messages.list(agent.id, conversation_seq=conversation.seq, limit=ASKED_AGAIN_ROWS, newest_first=True)
        rows = [row for row in rows if row.role == "user"][:1]
    texts = user_texts(rows)
    if not (query := _query(texts)):
        return None
    agent = with_next_model(agent, inputs.models) if model is None else replace(agent, model=model)
    agent = as_requested(agent, inputs.models)
    setting = find_automatic(AutoRecall, agent.settings)
    if setting is None or bypasses(agent.settings, conversation):
        return None
    if agent.settings.get(AUTOCLEAR) and AutoRecall.name not in opening.agent.settings:
        return None
    features = dict(RECALL_PLAN(tx, agent, conversation, texts)) if "graph" in opening.has else None
    recalls = first_seq or any((features or {}).values()) or opening.passages or opening.has_others
    if not recalls and not any(IS_SEARCHED(tx, opening)):
        return None
    pinned = frozenset(() if prefix is None else prefix.pinned)  # rows before the first one in view
    scope = RecallScope(
        agent_id=agent.id,
        blocks=False,
        in_view=(conversation.seq, first_seq),
        pinned=pinned,
        features=features,
        fills=True,
        budget_tokens=setting.budget_tokens,
        floor=setting.floor,
        in_words=inputs.models.traits(agent.model).plain,
    )
    return RecallPlan(scope, query)


async def recall(plan: RecallPlan, ports: Ports) -> RecallResult:
    """Search memory within the time limit; return the text for the request, and the event that tells of it."""

    def count(text: str) -> int:
        """Return the tokens of a text as it stands in the tail."""
        shown = text if plan.scope.in_words else json.dumps(text, ensure_ascii=False)  # as it stands in the tail
        return ports.counter.count(shown)

    limit_s = ports.settings.recall_timeout_s
    try:
        importlib.import_module("perdure.search.recall")  # with numpy: longer than a search
        async with asyncio.timeout(limit_s):
            recalled = await ports.search.recall(plan.scope, plan.query, count=count, vector_timeout_s=limit_s / 2)
    except TimeoutError:
        return _left_out(f"it was not done within {limit_s:g} s")
    except PerdureError as error:
        return _left_out(str(error))
    except Exception as error:
        log.exception("automatic recall stopped at a defect")
        return _left_out(f"{type(error).__name__}: {error}")
    if not recalled.sources:
        return NO_RECALL
    sources = tuple(
        {"kind": source.kind, "id": source.id, "score": source.score, "name": _name(source)}
        for source in recalled.sources
    )
    return RecallResult(recalled.text, MemoryRecalled(tokens=recalled.tokens, sources=sources))


def count_recalled(tx: Tx, event: MemoryRecalled) -> None:
    """Count that facts and passages were recalled: what is used fades later. No ranking reads it."""
    RECALLED(tx, event)
    count_passages(tx, [PassageId(source["id"]) for source in event.sources if source["kind"] == "passage"])


def _left_out(problem: str) -> RecallResult:
    """Return a recall without a text, with the event that says why."""
    log.warning("automatic recall is left out: %s", problem)
    return RecallResult("", MemoryRecalled(tokens=0, sources=(), problem=problem))


def _name(source: RecallSource) -> str:
    """Return the name of a source for people: file and lines, who a fact is about, or speaker and day."""
    if source.kind == "passage":
        place = source.source or {}
        name = source.path or source.archive_name or ""
        page = f" (page {place['page']})" if place.get("page") else ""
        return name if source.lines is None else f"{name}:{source.lines[0]}-{source.lines[1]}{page}"
    if source.kind == "fact":
        return f"fact about {source.entities[0]}"
    speaker = source.name or source.role or "turn"
    return f"{speaker} {source.occurred_at:%Y-%m-%d}" if source.occurred_at else speaker


def _query(texts: Sequence[str]) -> str:
    """Return the text to search, both ends of a long one; empty if it holds no letter, as a choice often does."""
    text = "\n".join(texts).strip()
    if not any(map(str.isalpha, text)):
        return ""
    half = QUERY_CHARS // 2
    return text if len(text) <= QUERY_CHARS else f"{text[:half]}\n{text[-half:]}"
