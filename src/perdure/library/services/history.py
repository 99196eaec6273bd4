"""Pages of an agent's history, as clients walk through them by the ids of messages."""

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
"""Of shorter pages it happens too often that as many messages are new as would fill some."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HistoryPage:
    """A page of at most `limit` messages that show something.

    `after` are the newer ones and `before` the older ones, whatever the order, and those nearest to the cursor. But
    with `order="desc"` and `after` alone, a client walks through the list as it is shown, to older ones; and so does,
    without an order, one that asks for what comes after the last message of a page (`_continues_page`).

    Args:
        all_types: whether every type of message is shown: else whole pages can't be told by counting.
    """

    before: str | None = None
    after: str | None = None
    limit: int = 100
    order: Literal["asc", "desc"] | None = None
    all_types: bool = True


def list_shown(
    tx: Tx, agent_id: AgentId, conversation_seq: int | None, page: HistoryPage, show: Show[T]
) -> Sequence[T]:
    """What `show` makes of a page of messages; what it makes of one message is not split. Raises: NotFound: there is no
    such message of the agent."""
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
    """Whether a page of this query, the newest first, ended at this message: then a client's loop asks for the page
    behind it, and would otherwise get the messages that it has, again and again.

    No loop asks for what is newer than the first message there is. Elsewhere whole pages tell, if they are long. No
    page ends at a message that is out of view.
    """
    if not tx.messages.by_seqs(agent_id, [seq]):
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
