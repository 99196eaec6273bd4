"""Settings of an agent's automatic memory: recall before a turn, capture after it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Any, ClassVar, TypeVar

from perdure.core.conversations import Conversation
from perdure.core.errors import InvalidInput
from perdure.core.ids import ArchiveId, is_id
from perdure.domain.values import check_names, check_range

AUTOMATIC_SETTINGS = ("auto_recall", "auto_capture", "bypass_session_patterns")

RECALL_MAX_TOKENS = 20_000
CAPTURE_MIN_TOKENS, CAPTURE_MAX_TOKENS = 50, 100_000
PATTERNS_MAX = 100
PATTERN_MAX_CHARS = 500


@dataclass(frozen=True, slots=True, kw_only=True)
class AutoRecall:
    """Recall of memory before a user's turn; its result is appended to the request. `false` turns it off.

    Args:
        budget_tokens: the largest size of the result.
        floor: the lowest score of a result, 0 to 1.
    """

    name: ClassVar[str] = "auto_recall"
    is_default: ClassVar[bool] = True
    budget_tokens: int = 400
    floor: float = 0.25


@dataclass(frozen=True, slots=True, kw_only=True)
class AutoCapture:
    """Capture of a conversation's messages as passages.

    Args:
        commit_token_threshold: how many tokens of messages may wait before they are captured.
        archive: where the passages go; None: the agent's own archive.
    """

    name: ClassVar[str] = "auto_capture"
    is_default: ClassVar[bool] = False
    commit_token_threshold: int = 2_000
    archive: ArchiveId | None = None


T = TypeVar("T", AutoRecall, AutoCapture)


def find_automatic(kind: type[T], settings: Mapping[str, Any]) -> T | None:
    """Return the setting of the class `kind` in an agent's `settings`, with defaults for missing fields; None: off."""
    value = settings.get(kind.name)
    if value is False or (value is None and not kind.is_default):
        return None
    return kind(**value) if isinstance(value, Mapping) else kind()


def bypasses(settings: Mapping[str, Any], conversation: Conversation) -> bool:
    """Return whether one of the agent's `bypass_session_patterns` matches: the conversation has no recall or capture.

    A pattern is compared with the conversation's id, number, summary, and `name=value` of each setting.
    """
    patterns: Sequence[str] = settings.get("bypass_session_patterns") or ()
    if not patterns:
        return False
    names = [conversation.id, str(conversation.seq), conversation.summary or ""]
    names += [f"{name}={value}" for name, value in conversation.settings.items()]
    return any(fnmatchcase(name, pattern) for pattern in patterns for name in names)


def check_automatic(settings: Mapping[str, Any]) -> None:
    """Check the settings of automatic memory. Raises: InvalidInput, naming field and value."""
    recall = _parse(AutoRecall, settings)
    if recall is not None:
        check_range("auto_recall.budget_tokens", recall.budget_tokens, 1, RECALL_MAX_TOKENS)
        check_range("auto_recall.floor", recall.floor, 0, 1, whole=False)
    capture = _parse(AutoCapture, settings)
    if capture is not None:
        threshold = capture.commit_token_threshold
        check_range("auto_capture.commit_token_threshold", threshold, CAPTURE_MIN_TOKENS, CAPTURE_MAX_TOKENS)
        if capture.archive is not None and not (isinstance(capture.archive, str) and is_id("archive", capture.archive)):
            raise InvalidInput(
                f"auto_capture.archive is {capture.archive!r:.80}: give an archive's id, or leave it out"
            )
    patterns = settings.get("bypass_session_patterns")
    if patterns is None:
        return
    if not isinstance(patterns, list | tuple) or len(patterns) > PATTERNS_MAX:
        raise InvalidInput(
            f"bypass_session_patterns is {patterns!r:.80}: give a list of at most {PATTERNS_MAX} patterns"
        )
    for pattern in patterns:
        if not isinstance(pattern, str) or not pattern or len(pattern) > PATTERN_MAX_CHARS:
            raise InvalidInput(
                f"bypass_session_patterns has {pattern!r:.80}: give texts of 1 to {PATTERN_MAX_CHARS} characters, such"
                " as 'conv-*' or 'team=red'"
            )


def _parse(kind: type[T], settings: Mapping[str, Any]) -> T | None:
    """Build a setting after checking its type and field names; None: it is off. Raises: InvalidInput."""
    value = settings.get(kind.name)
    if isinstance(value, Mapping):
        check_names(kind.name, value, kind)
    elif value is not None and not isinstance(value, bool):
        raise InvalidInput(f"{kind.name} is {value!r:.80}: give true, false, or an object with its fields")
    return find_automatic(kind, settings)
