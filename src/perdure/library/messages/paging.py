"""Pages of an agent's history, by the ids of messages; and history that took place elsewhere, with its times."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import takewhile
from typing import Any, Literal, TypeVar

from perdure.core.conversations import Conversation
from perdure.core.errors import InvalidInput, NotFound
from perdure.core.ids import AgentId, ConversationId, MessageId
from perdure.core.messages import HISTORY_KINDS, Message
from perdure.domain.conversations.importing import ImportedMessage, Importer, imported_message
from perdure.domain.conversations.units import Batch, batch_of, join_rows
from perdure.domain.values import batches
from perdure.engine.conversations.importing import import_drafts
from perdure.engine.ports import Ports, UnitInputs
from perdure.engine.prompt.system_messages import render_system_message
from perdure.storage.tx import Tx

T = TypeVar("T")
Show = Callable[[Message], Sequence[T]]
Place = tuple[AgentId, int]
"""The agent of a message, and its number."""

SCANNED_MAX = 10_000
SCANNED_AT_ONCE = 100
BATCH_ROWS_AT_ONCE = 8


@dataclass(frozen=True, slots=True, kw_only=True)
class HistoryPage:
    """Which page of a history: at most `limit` messages, without those that the client does not get.

    In any order, `after` selects newer messages and `before` older ones, those nearest to the cursor. There are two
    exceptions, both for clients that read page after page with `after=<last item>`. With `order="desc"`, `after` alone
    selects older messages. In a list that shows the newest first without an order, the page after the newest page is
    empty: newer messages would repeat that page.

    Args:
        order: None: as `newest_first` says; a page with one cursor shows the oldest first.
    """

    before: str | None = None
    after: str | None = None
    limit: int = 100
    order: Literal["asc", "desc"] | None = None
    newest_first: bool = False

    @property
    def has_one_cursor(self) -> bool:
        """Whether only one end of the page is known."""
        return (self.after is None) != (self.before is None)

    @property
    def ascending(self) -> bool:
        """Whether the page shows the oldest message first."""
        if self.order is None:
            return self.has_one_cursor or not self.newest_first
        return self.order == "asc"


@dataclass(frozen=True, slots=True)
class History:
    """The messages of a list: of one agent, of one of its conversations, or of all agents."""

    tx: Tx
    inputs: UnitInputs
    agent_id: AgentId | None = None
    conversation_seq: int | None = None

    def cursor(self, message_id: str | None) -> Place | None:
        """The place of the message at a page's edge, also of one that a reset took out of view meanwhile; None for
        None. Raises: NotFound: the list has no such message."""
        if message_id is None:
            return None
        place = self.tx.messages.place(MessageId(message_id))
        if self.agent_id not in (None, place[0]):
            raise NotFound("message", message_id)
        return place

    def load(self, after: Place | None, before: Place | None, *, limit: int, newest_first: bool) -> Sequence[Message]:
        """A page of the list between two places, both excluded, in the order of the log."""
        if self.agent_id is None:
            return self.tx.messages.list_of_all_agents(
                after=after, before=before, limit=limit, newest_first=newest_first
            )
        # The system messages have the lowest numbers, those of the log follow.
        sources: list[Callable[..., Sequence[Message]]]
        sources = [self._system_messages, partial(self.tx.messages.list, kinds=HISTORY_KINDS)]
        page: list[Message] = []
        for source in reversed(sources) if newest_first else sources:
            if len(page) < limit:
                page += source(
                    self.agent_id,
                    conversation_seq=self.conversation_seq,
                    after_seq=None if after is None else after[1],
                    before_seq=None if before is None else before[1],
                    limit=limit - len(page),
                    newest_first=newest_first,
                )
        return page

    def _system_messages(self, *args: Any, **kwargs: Any) -> Sequence[Message]:
        """The system messages that `tx.system_messages.list` returns for these arguments, rendered."""
        found = self.tx.system_messages.list(*args, **kwargs)
        return [render_system_message(self.tx, one, self.inputs) for one in found]


def list_shown(history: History, page: HistoryPage, show: Show[T]) -> Sequence[T]:
    """Return `show(message)` for the messages of a page, joined to one list; a message is not split over two pages. A
    batch of results is one message, at the index of its first row. Raises: NotFound: the list has no such message."""

    def scan(after: Place | None, before: Place | None, *, newest_first: bool) -> list[tuple[Place, Sequence[T]]]:
        """Return (index, shown parts) of the first messages between two indexes that show anything."""
        found: list[tuple[Place, Sequence[T]]] = []
        scanned = 0
        # An empty page says that the list has ended, so the first that is shown is looked for however far it is.
        while len(found) < page.limit and (scanned < SCANNED_MAX or not found):
            size = max(page.limit - len(found), SCANNED_AT_ONCE if scanned else 0)
            messages = history.load(after, before, limit=size, newest_first=newest_first)
            places = [(message.agent_id, message.seq) for message in messages]
            whole = _load_batches(history.tx, messages)
            shown = [(place, _show(message, whole, show)) for place, message in zip(places, messages, strict=True)]
            found += [(place, parts) for place, parts in shown if parts]
            scanned += len(messages)
            if len(messages) < size:
                break
            after, before = (after, places[-1]) if newest_first else (places[-1], before)
        return found[: page.limit]

    after, before = history.cursor(page.after), history.cursor(page.before)
    if page.order == "desc" and before is None:
        after, before = None, after
    elif page.order is None and page.newest_first and after is not None and before is None:
        newest = scan(None, None, newest_first=True)
        if newest and newest[-1][0] == after:
            return []
    newest_first = before is not None if page.has_one_cursor else page.order != "asc"
    groups = [parts for _, parts in scan(after, before, newest_first=newest_first)]
    if newest_first:
        groups.reverse()
    flat = [part for parts in groups for part in parts]
    return flat if page.ascending else flat[::-1]


def load_whole(tx: Tx, message_id: MessageId) -> Message:
    """The message, or the batch that it is a row of. Raises: NotFound."""
    message = tx.messages.get(message_id)
    batch = batch_of(message)
    return message if batch is None else _load_batches(tx, [message])[batch]


def find_result(tx: Tx, message_id: MessageId, call_id: str) -> MessageId:
    """The id of the row, in a message's batch, with the result of this call; else the message's. Raises: NotFound."""
    row = tx.messages.get(message_id)
    for batch_row in (row, *_load_others(tx, row), *_load_others(tx, row, newest_first=True)):
        if any(result.call_id == call_id for result in batch_row.results):
            return batch_row.id
    return message_id


def _show(message: Message, whole: Mapping[Batch, Message], show: Show[T]) -> Sequence[T]:
    """What `show` makes of a row; of the rows of a batch the first shows all of it (`whole`), the others nothing."""
    batch = batch_of(message)
    if batch is None:
        return show(message)
    return show(whole[batch]) if whole[batch].id == message.id else ()


def _load_batches(tx: Tx, page: Sequence[Message]) -> dict[Batch, Message]:
    """Return batch -> all its rows as one message, for each batch of results with rows on a page."""
    conversations: dict[tuple[AgentId, int], list[Message]] = {}
    for message in page:
        conversations.setdefault((message.agent_id, message.conversation_seq), []).append(message)
    rows: dict[Batch, list[Message]] = {}
    for found in conversations.values():
        found.sort(key=lambda message: message.seq)
        # The rows of a batch follow one another within their conversation: only those at the ends have others outside.
        for row in [*_load_others(tx, found[0], newest_first=True), *found, *_load_others(tx, found[-1])]:
            if (batch := batch_of(row)) is not None:
                rows.setdefault(batch, []).append(row)
    return {batch: join_rows(found) for batch, found in rows.items()}


def _load_others(tx: Tx, row: Message, *, newest_first: bool = False) -> list[Message]:
    """The rows of a row's batch of results behind it, in order; with `newest_first` those before it, newest first."""
    others: list[Message] = []
    batch = batch_of(row)
    seq = row.seq
    more = batch is not None
    while more:
        page = tx.messages.list(
            row.agent_id,
            conversation_seq=row.conversation_seq,
            after_seq=None if newest_first else seq,
            before_seq=seq if newest_first else None,
            limit=BATCH_ROWS_AT_ONCE,
            newest_first=newest_first,
        )
        same = list(takewhile(lambda one: batch_of(one) == batch, page))
        others += same
        more = len(same) == BATCH_ROWS_AT_ONCE
        seq = same[-1].seq if same else seq
    return others


# --- history from elsewhere


@dataclass(frozen=True, slots=True, kw_only=True)
class ImportResult:
    """The result of an import.

    Args:
        skipped: messages that were there already, from an earlier import of the same history.
        reset: how many of the skipped ones a reset has taken out of view.
        out_of_order: messages that are older than one before them; they keep the order of the import.
    """

    conversation_id: ConversationId
    imported: int
    skipped: int
    out_of_order: int
    reset: int = 0

    @property
    def hint(self) -> str:
        """Advice if a reset hides imported messages; else empty."""
        if not self.reset:
            return ""
        subject = "1 of the skipped messages was" if self.reset == 1 else f"{self.reset:,} of the skipped messages were"
        return (
            f"{subject} taken out of view by a reset, and stays so: import the history into a new conversation instead"
        )


def check_messages(messages: Any, *, limit_chars: int) -> list[ImportedMessage]:
    """The messages as `ImportedMessage`s, checked. Raises: InvalidInput, with the index of the first unusable one."""
    if isinstance(messages, str | bytes) or not isinstance(messages, Iterable):
        raise InvalidInput(f"messages is {messages!r:.80}: give a list of (role, name, text, occurred_at)")
    checked = []
    for index, message in enumerate(messages):
        try:
            checked.append(imported_message(message, limit_chars=limit_chars))
        except InvalidInput as error:
            raise InvalidInput(f"message {index}: {error}") from error
    return checked


async def import_history(
    ports: Ports,
    conversation: Conversation,
    messages: Iterable[ImportedMessage],
    *,
    source: str = "",
    progress: Callable[[int], None] = lambda done: None,
) -> ImportResult:
    """Put the messages at the conversation's end, in transactions of up to 500; what is there already is skipped.

    Args:
        source: as that of an `Importer`.
        progress: takes how many messages are stored or skipped, after each transaction.
    Raises: ConversationBusy, ApprovalPending, StoreError: what was imported before stays; the same import goes on
        there.
    """
    importer = Importer(conversation.agent_id, conversation.id, source)
    done = new = reset = 0
    for batch in batches(messages):
        drafts = [importer.draft(message) for message in batch]
        added = await import_drafts(conversation.agent_id, conversation.seq, drafts, ports)
        new, reset = new + added.new, reset + added.reset
        done += len(drafts)
        progress(done)
    return ImportResult(
        conversation_id=conversation.id,
        imported=new,
        skipped=done - new,
        out_of_order=importer.out_of_order,
        reset=reset,
    )
