"""Import of message history from elsewhere: parse messages, derive their ids, add the new ones."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Any, Literal, get_args

from perdure.core.conversations import Conversation
from perdure.core.errors import InvalidInput
from perdure.core.features import Point
from perdure.core.ids import AgentId, ConversationId, Ids, MessageId, derived_id
from perdure.core.messages import Draft, Part, Text
from perdure.core.passages import Archive
from perdure.core.sources import Source
from perdure.storage.tx import Tx

KEY_MAX_CHARS = 255
NAME_MAX_CHARS = 200

IMPORTED: Point[[Tx, AgentId, Conversation | Archive, Collection[str], bool, Ids, datetime], None] = Point("imported")
"""Messages of a conversation, or passages of an archive, were imported, by their ids. The last argument but two says
whether they are to be read for what can be known from them, also if they were passed over before."""

ImportedRole = Literal["user", "assistant", "system"]


@dataclass(frozen=True, slots=True, kw_only=True)
class ImportedMessage:
    """A message of a conversation from elsewhere.

    Args:
        occurred_at: its time, with a zone.
        name: the speaker, where a role has several.
        id: its id at the source. A second import of the same id adds nothing.
        parts: the whole message, where it is more than `text`: tool calls, or results under the role `tool`.
        source: what it came from first, such as "chatgpt"; empty: what the import comes from.
        reset: whether a reset has taken it out of view.
    """

    role: ImportedRole | Literal["tool"]
    text: str
    occurred_at: datetime
    name: str | None = None
    id: str | None = None
    parts: tuple[Part, ...] = ()
    source: str = ""
    reset: bool = False


def imported_message(value: Any, *, limit_chars: int) -> ImportedMessage:
    """Parse a tuple (role, name, text, occurred_at), a mapping or an `ImportedMessage`; its time in UTC.

    Other keys of a mapping are ignored. Raises: InvalidInput: which part can't be used, and why.
    """
    match value:
        case ImportedMessage():
            fields: Mapping[str, Any] = {name: getattr(value, name) for name in ImportedMessage.__slots__}
        case tuple() | list():
            if len(value) != 4:
                raise InvalidInput(f"it has {len(value)} parts: give (role, name, text, occurred_at)")
            fields = dict(zip(("role", "name", "text", "occurred_at"), value, strict=True))
        case Mapping():
            fields = value
        case _:
            raise InvalidInput(
                f"it is {value!r:.80}: give role, text and occurred_at, and name and id if there are any"
            )
    role: Any = fields.get("role")
    text = fields.get("text", fields.get("content"))
    if role not in get_args(ImportedRole):
        found = "missing" if role is None else f"{role!r:.80}"
        raise InvalidInput(f"role is {found}: it can be {', '.join(map(repr, get_args(ImportedRole)))}")
    if not isinstance(text, str) or not text.strip():
        raise InvalidInput(f"text is {'missing' if text is None else f'{text!r:.80}'}: give a text that is not empty")
    if len(text) > limit_chars:
        raise InvalidInput(f"text has {len(text):,} characters, the limit is {limit_chars:,}")
    return ImportedMessage(
        role=role,
        text=text,
        occurred_at=parse_time("occurred_at", fields.get("occurred_at", fields.get("created_at"))),
        name=_parse_short_text("name", fields.get("name"), NAME_MAX_CHARS),
        id=_parse_short_text("id", fields.get("id"), KEY_MAX_CHARS),
    )


def parse_time(name: str, value: Any) -> datetime:
    """Parse a datetime with a zone, or its ISO 8601 text, into UTC; `name` is its field. Raises: InvalidInput."""
    how = "give a time with a zone, such as 2026-11-20T15:30:00+01:00"
    if isinstance(value, str):
        try:
            value = datetime.fromisoformat(value)
        except ValueError:
            raise InvalidInput(f"{name} is {value!r:.60}: {how}") from None
    if not isinstance(value, datetime):
        raise InvalidInput(f"{name} is {value!r:.60}: {how}")
    if value.utcoffset() is None:
        raise InvalidInput(f"{name} is {value.isoformat()}, a time without a zone: {how}")
    try:
        return value.astimezone(UTC)
    except OverflowError:
        raise InvalidInput(f"{name} is {value.isoformat()}: in UTC this is before the year 1 or after 9999") from None


class Importer:
    """Builds the drafts of one import, in order.

    A message's id derives from its conversation and its own `id`, or else from its content and how many equal
    messages came before it. So a second import of the same history has the same ids. `source`: what the messages come
    from; empty: the import itself.
    """

    def __init__(self, agent_id: AgentId, conversation_id: ConversationId, source: str = "") -> None:
        self._scope = (agent_id, conversation_id)
        self._sources = (Source.of("import", source),) if source else ()
        self._repeats: Counter[str] = Counter()
        self._newest: datetime | None = None
        self.out_of_order = 0
        """How many messages are older than one before them."""

    def draft(self, message: ImportedMessage) -> Draft:
        """Build the message to store."""
        if self._newest is not None and message.occurred_at < self._newest:
            self.out_of_order += 1
        else:
            self._newest = message.occurred_at
        return Draft(
            id=MessageId(self._message_id(message)),
            role=message.role,
            parts=message.parts or (Text(message.text),),
            name=message.name,
            occurred_at=message.occurred_at,
            sources=(Source.of("import", message.source),) if message.source else self._sources,
        )

    def _message_id(self, message: ImportedMessage) -> str:
        """Derive the id of a message; see the class."""
        if message.id is not None:
            return derived_id("message", *self._scope, "id", message.id)
        content = [message.role, message.name, message.occurred_at.isoformat(), message.text]
        key = derived_id("message", *self._scope, "said", json.dumps(content))
        self._repeats[key] += 1
        return key if self._repeats[key] == 1 else derived_id("message", key, str(self._repeats[key]))


@dataclass(frozen=True, slots=True)
class ImportCount:
    """How many messages of an import are `new`, and how many are stored already but out of view by a `reset`."""

    new: int
    reset: int


def add_imported(
    tx: Tx, agent_id: AgentId, conversation_seq: int, drafts: Sequence[Draft], tokens: Sequence[int], *, at: datetime
) -> ImportCount:
    """Append those of `drafts` that the conversation does not have, in order; `tokens` is the estimate of each.

    No run of it may be active, for the messages would separate its calls from their results. Raises: NotFound.
    """
    existing = tx.messages.find_existing([draft.id for draft in drafts])
    new: dict[MessageId, tuple[Draft, int]] = {}
    for draft, count in zip(drafts, tokens, strict=True):
        if draft.id not in existing:
            new.setdefault(draft.id, (as_imported(draft, at), count))
    if new:
        added, counts = zip(*new.values(), strict=True)
        tx.messages.append((agent_id, conversation_seq), added, counts, at=at)
    return ImportCount(len(new), len(tx.messages.find_reset(sorted(existing))))


def as_imported(draft: Draft, at: datetime) -> Draft:
    """Return a message with the source that all messages of an import have, if it has none."""
    return replace(draft, sources=draft.sources or (Source.of("import", f"messages of {at:%Y-%m-%d %H:%M:%S}"),))


def _parse_short_text(name: str, value: Any, limit: int) -> str | None:
    """Return the field `name` of a message after checking it: None or 1 to `limit` characters. Raises: InvalidInput."""
    if value is None:
        return None
    if not isinstance(value, str) or not 1 <= len(value) <= limit:
        raise InvalidInput(f"{name} is {value!r:.80}: give a text of 1 to {limit} characters, or leave it out")
    return value


def message_ids(
    agent_id: AgentId, conversation_id: ConversationId, messages: Sequence[ImportedMessage]
) -> list[MessageId]:
    """Return the ids that messages have in a conversation."""
    importer = Importer(agent_id, conversation_id)
    return [importer.draft(message).id for message in messages]
