"""Pages of an agent's history; clients page by the ids of messages."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal, TypeVar

from perdure.core.errors import NotFound
from perdure.core.ids import AgentId, MessageId
from perdure.core.messages import Message
from perdure.storage.tx import Tx

T = TypeVar("T")
Show = Callable[[Message], Sequence[T]]

SCANNED_MAX = 10_000
FIRST_SCANNED = 20
WHOLE_PAGE = 50
"""The shortest page for which counting messages tells where a page ends (`_continues_page`)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HistoryPage:
    """Which page of a history: at most `limit` messages, without those that the client does not get.

    In any order, `after` selects newer messages and `before` older ones, those nearest to the cursor. There are two
    exceptions. With `order="desc"` and `after` alone, `after` selects older ones, which follow in that order. So it
    does without an order, after the last message of a page (`_continues_page`).

    Args:
        all_types: whether every type of message is shown. If not, the end of a page can't be found by counting.
    """

    before: str | None = None
    after: str | None = None
    limit: int = 100
    order: Literal["asc", "desc"] | None = None
    all_types: bool = True


def list_shown(
    tx: Tx, agent_id: AgentId, conversation_seq: int | None, page: HistoryPage, show: Show[T]
) -> Sequence[T]:
    """Return the results of `show` for a page of messages; the results for one message stay on one page.

    Raises: NotFound: the agent has no such message.
    """
    before, after = _cursor_seq(tx, agent_id, page.before), _cursor_seq(tx, agent_id, page.after)
    if (
        after is not None
        and before is None
        and (
            page.order == "desc"
            or (page.order is None and _continues_page(tx, agent_id, conversation_seq, after, page, show))
        )
    ):
        before, after = after, None
    newest_shown_first = page.order != "asc"
    backwards = before is not None if (after is None) != (before is None) else newest_shown_first
    groups: list[Sequence[T]] = []
    scanned = 0
    while len(groups) < page.limit and scanned < SCANNED_MAX:
        missing = page.limit - len(groups)
        size = missing if page.all_types else max(missing, 100)
        messages = tx.messages.list(
            agent_id,
            conversation_seq=conversation_seq,
            after_seq=after,
            before_seq=before,
            limit=size,
            newest_first=backwards,
        )
        groups += [parts for message in messages if (parts := show(message))]
        scanned += len(messages)
        if len(messages) < size:
            break
        if backwards:
            before = messages[-1].seq
        else:
            after = messages[-1].seq
    del groups[page.limit :]
    if backwards:
        groups.reverse()
    flat = [one for parts in groups for one in parts]
    return flat[::-1] if newest_shown_first else flat


def _continues_page(
    tx: Tx, agent_id: AgentId, conversation_seq: int | None, seq: int, page: HistoryPage, show: Show[T]
) -> bool:
    """Whether a client that pages from the newest message to the oldest got a page that ended at this message. It then
    wants the older messages next.

    That is so for the first message of the history, and for a message at which a whole, long page ends. No page ends at
    a message that is out of view.
    """
    if not tx.messages.list_by_seqs(agent_id, [seq]):
        return False
    older = tx.messages.list(
        agent_id, conversation_seq=conversation_seq, before_seq=seq, limit=FIRST_SCANNED, newest_first=True
    )
    if len(older) < FIRST_SCANNED and not any(show(message) for message in older):
        return True
    if page.limit < WHOLE_PAGE or not page.all_types:
        return False
    return (tx.messages.count_after(agent_id, seq, conversation_seq=conversation_seq) + 1) % page.limit == 0


def _cursor_seq(tx: Tx, agent_id: AgentId, message_id: str | None) -> int | None:
    """The number of the message that a page begins after or before. Raises: NotFound: the agent has no such message.

    A message that a reset took out of view still counts, so that a client can go on paging.
    """
    if message_id is None:
        return None
    owner_id, seq = tx.messages.place(MessageId(message_id))
    if owner_id != agent_id:
        raise NotFound("message", message_id)
    return seq
