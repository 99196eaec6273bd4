"""What readers find in exports of other programs."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from typing import Any, Final, Literal, get_args

from perdure.core.passages import Passage
from perdure.domain.blocks.units import NewBlock
from perdure.domain.conversations.importing import KEY_MAX_CHARS, ImportedMessage

ImportSource = Literal["chatgpt", "claude", "mem0", "zep", "letta-db", "markdown", "jsonl"]

IMPORT_SOURCES: Final[tuple[ImportSource, ...]] = get_args(ImportSource)

_MILLISECONDS = 1e11
"""A larger number is a time in milliseconds, for in seconds it would be in the year 5138."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceAgent:
    """An agent of the source, which comes before what is its own.

    Args:
        id: its id at the source, which `agent` of the other items names.
        file: its agent file, where the source has one.
    """

    id: str
    name: str
    system: str | None = None
    description: str | None = None
    blocks: tuple[NewBlock, ...] = ()
    file: bytes | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceConversation:
    """A conversation of the source, with its messages in order.

    Args:
        created_at: None: as its first message.
        is_whole: these are all messages that it has now: others that an earlier import brought are no part of it.
        is_first: it is what the agent said in its first conversation.
        agent: the id of a `SourceAgent`; empty: the agent of the import.
    """

    id: str
    title: str = ""
    created_at: datetime | None = None
    messages: Sequence[ImportedMessage]
    is_whole: bool = False
    is_first: bool = False
    archived: bool = False
    agent: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceMemory:
    """A text that the source remembers.

    Args:
        passage: all of it, where the source is an export of Perdure.
        agent: as that of a conversation.
    """

    id: str
    text: str
    created_at: datetime
    tags: tuple[str, ...] = ()
    metadata: dict[str, Any] = field(default_factory=dict)
    passage: Passage | None = None
    agent: str = ""


@dataclass(frozen=True, slots=True)
class LeftOut:
    """Things of the source that are not imported. `why`: what they are and why, in the plural."""

    why: str
    count: int = 1


SourceItem = SourceAgent | SourceConversation | SourceMemory | LeftOut


def time_of(value: Any) -> datetime | None:
    """Return the time of seconds or milliseconds since 1970, or of ISO 8601 text, in UTC, which a text without a zone
    is in; None: it is none of them."""
    try:
        if isinstance(value, (int, float)) and not isinstance(value, bool):
            seconds = value / 1000 if abs(value) > _MILLISECONDS else value
            return datetime(1970, 1, 1, tzinfo=UTC) + timedelta(seconds=seconds) if seconds > 0 else None
        if isinstance(value, str):
            found = datetime.fromisoformat(value.strip().replace(" UTC", "+00:00"))
            return found.replace(tzinfo=UTC) if found.utcoffset() is None else found.astimezone(UTC)
    except (ValueError, OverflowError):
        pass
    return None


def fill_times(times: Sequence[datetime | None], otherwise: datetime) -> list[datetime]:
    """Return the times with those before, else behind, in place of those that are missing."""
    known = next((one for one in times if one is not None), otherwise)
    filled = []
    for one in times:
        known = known if one is None else one
        filled.append(known)
    return filled


def key_of(value: Any) -> str:
    """Return an id of the source as the part of an id here: any value, of bounded length."""
    text = str(value)
    return text if 0 < len(text) <= KEY_MAX_CHARS else f"{text[:100]}…{hash_of(text)}"


def hash_of(*texts: str) -> str:
    """Return a short digest of texts."""
    import hashlib

    return hashlib.sha256("\0".join(texts).encode("utf-8", "surrogatepass")).hexdigest()[:32]


def text_in(value: Any) -> str:
    """Return a text without white space around it; empty if it is none."""
    return value.strip() if isinstance(value, str) else ""


def object_in(value: Any) -> Mapping[str, Any]:
    """Return an object of JSON; of another value an empty one."""
    return value if isinstance(value, dict) else {}


def list_in(value: Any) -> Sequence[Any]:
    """Return a list of JSON; of another value an empty one."""
    return value if isinstance(value, list) else []


def joined(texts: Iterable[str]) -> str:
    """Return the texts that are not empty, a paragraph each."""
    return "\n\n".join(filter(None, texts))


def of_agent(item: SourceConversation | SourceMemory, agent: str) -> SourceConversation | SourceMemory:
    """Return the item as that of an agent of the source."""
    return replace(item, agent=agent)
