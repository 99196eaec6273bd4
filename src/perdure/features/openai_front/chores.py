"""What chat programs ask beside the chat, such as a title: it is answered by a model alone, and nobody remembers it."""

from __future__ import annotations

import functools
import re
import tomllib
from collections.abc import Mapping, Sequence
from importlib.resources import files
from typing import Any


@functools.cache
def _patterns() -> Sequence[Mapping[str, Any]]:
    text = files(__package__).joinpath("chores.toml").read_text("utf-8")
    found: Sequence[Mapping[str, Any]] = tomllib.loads(text)["chore"]
    return found


def _fits(text: str, pattern: Mapping[str, Any]) -> bool:
    """Whether a message holds the texts of a chore in order, the first one at its `start`, where that is to be so."""
    place = 0
    for part in pattern["texts"]:
        found = text.find(part, place)
        if found < 0 or (found and not place and pattern.get("start")):
            return False
        place = found + len(part)
    return True


_WANTED = re.compile(r"\b(title|name|tags?|keywords|follow-up questions)\b", re.IGNORECASE)
_OF_CHAT = re.compile(r"\b(this|the|our|following|below) (chat|conversation|dialogue|messages)\b", re.IGNORECASE)
_CHAT = re.compile(
    r"(?:^|: )\W{0,3}(user|human|assistant|ai)\W{0,3}:|```|<(chat|conversation|messages)", re.IGNORECASE | re.MULTILINE
)
HEAD_CHARS = 600
"""Within so many characters a program says what it wants."""


_TASK = re.compile(
    r"\b(generate|create|write|suggest|provide|give|produce|make|extract|return|summari[sz]e|turn)\b[^.\n]{0,80}"
    r"\b(titles?|tags|keywords|summary|conversation|chat|dialogue)\b",
    re.IGNORECASE,
)
_BOTH_SPEAK = re.compile(
    r"^\W{0,3}(user|human)\W{0,3}:.*^\W{0,3}(assistant|ai|bot)\W{0,3}:", re.IGNORECASE | re.MULTILINE | re.DOTALL
)


def is_chore(text: str, system: str = "", *, is_alone: bool = False) -> bool:
    """Whether a chat program asks this beside a chat.

    Args:
        system: what the program says beside it; where that wants a title, tags or a summary, `text` may be the chat.
        is_alone: nothing is sent before it, so the chat whose title or tags are wanted is in the text itself. People
            ask for summaries: in a text alone these are wanted only as JSON.
    """
    text = text.replace("\r\n", "\n").strip()
    if any(_fits(text, pattern) for pattern in _patterns()):
        return True
    if is_alone and _TASK.search(system[:HEAD_CHARS]) and _BOTH_SPEAK.search(text):
        return True
    head = text[:HEAD_CHARS]
    return bool(
        is_alone and _WANTED.search(head) and (asks := _OF_CHAT.search(head)) and _CHAT.search(text, asks.end())
    )
