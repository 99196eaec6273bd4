"""What an agent has beside what agent files of the second layout hold, so that its copy is the same agent."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Literal

from perdure.core.forgetting.redaction import Redactor
from perdure.core.messages import Waits
from perdure.core.passages import Passage


@dataclass(frozen=True, slots=True, kw_only=True)
class BlockValue:
    """A value that a block had, and the kind of author that wrote it."""

    value: str
    by: Literal["agent", "user", "system"]
    created_at: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class OpenCallCopy:
    """A call without a result, in an answer with a call that waits for a person or the caller; see `ToolCall`."""

    awaits: Waits | None = None
    tool_digest: str | None = None
    loop_arguments: Sequence[str] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class ConversationCopy:
    """A conversation; its own model and options are as `ConversationChanges` has them.

    Attributes:
        blocks: label -> the value that it has in place of the agent's block; None: it has no block of this label.
        messages: its messages, in the form of the file; empty for the first one, whose messages are the agent's.
        open_calls: id -> a call of its last answer that has no result; empty: it waits for nothing.
        turns_read: how many of its turns were read in the background.
    """

    summary: str | None = None
    description: str | None = None
    model: str | None = None
    model_settings: Mapping[str, Any] | None = None
    options: Mapping[str, Any] | None = None
    archived: bool = False
    blocks: Mapping[str, str | None] = field(default_factory=dict)
    messages: Sequence[Mapping[str, Any]] = ()
    open_calls: Mapping[str, OpenCallCopy] = field(default_factory=dict)
    turns_read: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentCopy:
    """An agent's own settings, conversations, passages, and what its blocks held before.

    Attributes:
        block_values: label -> the values of a block, oldest first, with the one that it has.
        passages: the passages of the archive that it inserts into.
        parts: name of a `CopyPart` -> the data that it copied.
    """

    settings: Mapping[str, Any] = field(default_factory=dict)
    follows_default: bool = False
    conversations: Sequence[ConversationCopy] = (ConversationCopy(),)
    passages: Sequence[Passage] = ()
    block_values: Mapping[str, Sequence[BlockValue]] = field(default_factory=dict)
    parts: Mapping[str, Any] = field(default_factory=dict)


class HiddenText:
    """A text that an agent forgot at the time `at`. It is taken out of the rows of a file, as the store erased it."""

    def __init__(self, text: str, at: datetime) -> None:
        self.redactor, self._at = Redactor(text), at

    def redact(
        self,
        rows: Sequence[dict[str, Any]],
        fields: Sequence[str],
        which: Callable[[Mapping[str, Any]], bool] = lambda row: True,
    ) -> None:
        """Redact the text in these fields of the `rows` that `which` selects, in place; lists keep each name once."""
        for row in filter(which, rows):
            texts = {name: row[name] for name in fields if row.get(name) is not None}
            for name, after in self.redactor.redact_fields(texts).items():
                if after != row[name]:
                    row[name] = list(dict.fromkeys(after)) if name in ("tags", "aliases") else after

    def is_old(self, row: Mapping[str, Any]) -> bool:
        """Return whether a row was written before the text was forgotten; later rows may hold it again on purpose."""
        return datetime.fromisoformat(row["created_at"]) <= self._at
