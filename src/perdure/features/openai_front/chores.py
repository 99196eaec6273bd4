"""What chat programs ask beside the chat, such as a title: it is answered by a model alone, and nobody remembers it."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from perdure.core.text.tables import read_table

_PATTERNS: Sequence[Mapping[str, Any]] = read_table(__file__)["chore"]


def _matches_chore(text: str, pattern: Mapping[str, Any]) -> bool:
    """Whether a message has the texts of a chore's pattern in order, the first at its `start` if it says so."""
    place = 0
    for part in pattern["texts"]:
        found = text.find(part, place)
        if found < 0 or (found and not place and pattern.get("start")):
            return False
        place = found + len(part)
    return True


_VERB = (
    r"(?:^|[.!?:]\s+)(?:please |you |your task is to )?(?:generate|create|write|suggest|provide|give|produce|make"
    r"|extract|return|propose|summari[sz]e|turn)\b[^.?!\n]{0,80}\b"
)
_WANTED = r"titles?|tags|keywords|follow-?ups?|queries"
_TASK = re.compile(rf"{_VERB}(?:{_WANTED})\b", re.IGNORECASE | re.MULTILINE)
_TASK_OF_SYSTEM = re.compile(rf"{_VERB}(?:{_WANTED}|summary)\b", re.IGNORECASE | re.MULTILINE)
_OF_CHAT = re.compile(
    r"\b(?:this|the|our|following|below|user'?s?) (?:chat|conversation|dialogue|discussion|messages)\b", re.IGNORECASE
)
_DIALOGUE = re.compile(
    r"^\W{0,3}(?:user|human)\W{0,3}:.*^\W{0,3}(?:assistant|ai|bot)\W{0,3}:"
    r"|<(?:chat|conversation|messages|dialogue)(?:_history)?>",
    re.IGNORECASE | re.MULTILINE | re.DOTALL,
)
HEAD_CHARS = 600
"""Within so many characters a program says what it wants."""


def is_chore(text: str, system: str = "", *, is_alone: bool = False) -> bool:
    """Whether a chat program asks this beside a chat.

    Args:
        system: what the program says beside it; where that wants a title, tags or a summary, `text` may be the chat.
        is_alone: nothing is sent before it, so the chat whose title or tags are wanted is in the text itself. People
            ask for summaries: a text alone that wants one is no chore.
    """
    text = text.replace("\r\n", "\n").strip()
    if any(_matches_chore(text, pattern) for pattern in _PATTERNS):
        return True
    tasks = ((_TASK, text[:HEAD_CHARS]), (_TASK_OF_SYSTEM, system[:HEAD_CHARS]))
    asks = any(task.search(head) and _OF_CHAT.search(head) for task, head in tasks)
    return is_alone and asks and _DIALOGUE.search(text) is not None
