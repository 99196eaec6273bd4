"""Recall: one text within a budget of tokens, from all that agents and archives hold, for any program's model."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from perdure.app import App
from perdure.core.errors import InvalidInput
from perdure.core.ids import AgentId, ArchiveId
from perdure.core.text.zones import is_zone
from perdure.domain.agents.automatic import check_score
from perdure.library.checks import check_text
from perdure.search.recalled import Recalled, RecallScope

__all__ = ["BUDGET_MAX_TOKENS", "BUDGET_TOKENS", "check_recall", "recall"]

BUDGET_TOKENS = 2_000
BUDGET_MAX_TOKENS = 200_000


def check_recall(query: Any, budget_tokens: Any, floor: Any) -> None:
    """Nothing, when this can be asked. Raises: InvalidInput."""
    check_text("query", query)
    if not query.strip():
        raise InvalidInput("query is empty: say what is looked for")
    if type(budget_tokens) is not int or not 1 <= budget_tokens <= BUDGET_MAX_TOKENS:
        raise InvalidInput(f"budget_tokens is {budget_tokens!r:.80}: give a number from 1 to {BUDGET_MAX_TOKENS:,}")
    check_score("floor", floor)


async def recall(
    app: App,
    query: str,
    *,
    budget_tokens: int,
    agent_id: AgentId | None,
    archives: Sequence[ArchiveId] | None,
    conversation_seq: int | None = None,
    blocks: bool = True,
    messages: bool = True,
    floor: float = 0.0,
    explain: bool = False,
    timezone: str = "UTC",
) -> Recalled:
    """What `AsyncAgent.recall` and `AsyncPerdure.recall` give. Raises: InvalidInput, NotFound, StoreError."""
    check_recall(query, budget_tokens, floor)
    if archives is not None and not isinstance(archives, list | tuple | set | frozenset):
        raise InvalidInput(f"archives is {archives!r:.80}: give a list of ids")
    for archive_id in archives or ():
        check_text("an archive's id", archive_id)
    if agent_id is None and not archives:
        raise InvalidInput("there is nothing to recall from: name an agent, archives, or both")
    if not is_zone(timezone):
        raise InvalidInput(f"time zone {timezone!r:.80} is not known here: use a name such as 'Europe/Rome'")
    scope = RecallScope(
        agent_id=agent_id,
        archives=None if archives is None else tuple(archives),
        conversation_seq=conversation_seq,
        messages=messages,
        blocks=blocks,
    )
    return await app.search.recall(
        scope,
        query,
        budget_tokens=budget_tokens,
        count=app.ports.counter.count,
        floor=floor,
        explain=explain,
        timezone=timezone,
    )
