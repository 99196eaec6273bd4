"""The audit of a model's summary: what it must have of its source and lacks, and what it names that is not there.

The items are extracted by code, each with the message or the node that it is from. Everything is linear in the texts.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from perdure.context.window.extract import Extract, Item, rank_items, render_items, render_most, specific_names
from perdure.context.window.summary import cut_at_sentence, key_words, words_of
from perdure.core.nodes import message_handle
from perdure.core.ports import TokenCounter

ALSO_MAX = 60  # the most items appended to a summary
REQUIRED_SHARE = 0.25  # of a summary's size, for the items without which it is not accepted
INVENTED_CHARS_MIN = 5  # a shorter name that the source lacks is taken for an abbreviation
INVENTED_SHOWN = 12  # made-up names that a repair lists

_SENTENCES = ("tasks", "questions", "decisions")
_DETAILS = ("paths", "identifiers", "numbers")
_DIGITS = re.compile(r"\d(?:[\d.,:/'’–T-]*\d)?")
_GROUPED = re.compile(r"(?<=\d)[,'’\u00a0\u202f](?=\d{3}(?!\d))")
_HANDLE = re.compile(r"\b(?:msg|node)-\d+(?:\.\.\d+)?", re.IGNORECASE)
_ONE_HANDLE = re.compile(r"(msg|node)-(\d+)(?:\.\.(\d+))?")


@dataclass(frozen=True, slots=True)
class SourceText:
    """What a summary is checked against.

    Args:
        shown: the text to summarise, as the model is shown it.
        text: all that it may take names from.
        items: what was extracted from it; `Item.seq` is the number of a message or node.
        handle: turns such a number into a handle.
        messages: the first and last message that the summary stands for.
        nodes: the nodes that it stands for.
    """

    shown: str
    text: str
    items: Extract
    messages: tuple[int, int]
    nodes: tuple[int, ...] = ()
    handle: Callable[[int], str] = message_handle


@dataclass(frozen=True, slots=True)
class AuditedSummary:
    """A summary after a check against its source, with what it lacked appended. `missing`: required items for which
    there was no room; `invented`: names and handles in it that the source does not contain."""

    text: str
    missing: tuple[str, ...] = ()
    invented: tuple[str, ...] = ()


def audit_summary(summary: str, source: SourceText, *, max_tokens: int, counter: TokenCounter) -> AuditedSummary:
    """Return the summary with the items it lacks, the most valuable first, as many as fit; and what is wrong with it.

    Tasks, open questions, decisions, paths, identifiers and numbers count; of results and call arguments only those
    that several messages have. The first of them, up to a quarter of the size, are required.
    """
    invented = tuple(find_invented(summary, source))
    lacking = _find_missing(summary, source.items)

    def render(count: int) -> str:
        """Return the summary with the first `count` missing items behind it."""
        also = " | ".join(render_items(lacking[:count], source.handle))
        return f"{summary}\n\nAlso: {also}" if count else summary

    text = render_most(len(lacking), render, max_tokens, counter) or summary
    required = required_items(source.items, max_tokens=max_tokens, counter=counter)
    left = {item for _, item in lacking} & {item for _, item in required}
    # What stands in the text now was put there; details of one message stand in one line, so each is looked for.
    missing = [one for one in required if one[1] in left and " ".join(one[1].text.split()) not in text]
    return AuditedSummary(text, tuple(render_items(missing, source.handle)), invented)


def cut_for_missing(summary: str, source: SourceText, *, max_tokens: int, counter: TokenCounter) -> str:
    """Return the summary, cut so that the required items have room behind it, with them."""
    required = required_items(source.items, max_tokens=max_tokens, counter=counter)
    room = max_tokens - counter.count("\n\nAlso: " + " | ".join(render_items(required, source.handle)))
    cut = cut_at_sentence(summary, max(1, room), counter)
    return audit_summary(cut, source, max_tokens=max_tokens, counter=counter).text


def required_items(items: Extract, *, max_tokens: int, counter: TokenCounter) -> Sequence[tuple[str, Item]]:
    """Return (field, item) for each item that a summary of this size must have to be accepted."""
    candidates = _candidates(items)[:ALSO_MAX]
    limit = int(max_tokens * REQUIRED_SHARE)
    chosen: list[tuple[str, Item]] = []
    for candidate in candidates:
        if counter.count(" | ".join(render_items([*chosen, candidate]))) <= limit:
            chosen.append(candidate)
    return chosen


def find_invented(summary: str, source: SourceText) -> Sequence[str]:
    """Return the identifiers, paths, addresses and handles of a summary that its source does not have."""
    known = _letters(source.text)
    invented = [
        name
        for name in specific_names(_HANDLE.sub(" ", summary))
        if len(name) >= INVENTED_CHARS_MIN and _letters(name) not in known
    ]
    shown = set(_HANDLE.findall(source.text))
    handles = _HANDLE.findall(summary)
    invented += [handle for handle in handles if handle not in shown and not _is_behind(handle.lower(), source)]
    return list(dict.fromkeys(invented))[:INVENTED_SHOWN]


def _is_behind(handle: str, source: SourceText) -> bool:
    """Whether a handle opens something that the summary stands for."""
    match = _ONE_HANDLE.fullmatch(handle)
    if match is None:
        return False
    first, last = int(match[2]), int(match[3] or match[2])
    if match[1] == "node":
        return first in source.nodes
    return source.messages[0] <= first <= last <= source.messages[1]


def _letters(text: str) -> str:
    """Return the letters and digits of a text, folded: names are compared without the signs around and in them."""
    return "".join(filter(str.isalnum, text.casefold()))


def _candidates(items: Extract) -> list[tuple[str, Item]]:
    """Return (field, item) for each item that a summary should have, the most valuable first."""
    return [
        (name, item) for name, item in rank_items(items) if name in _SENTENCES or (name in _DETAILS and item.worth > 1)
    ]


def _find_missing(summary: str, items: Extract) -> list[tuple[str, Item]]:
    """Return (field, item) for each item that a summary lacks, the most valuable first."""
    folded = summary.casefold()
    numbers = set(_DIGITS.findall(_GROUPED.sub("", summary)))
    summary_words = key_words(words_of(summary))

    def is_covered(name: str, item: Item) -> bool:
        """Whether the summary has an item of this field: its text, its numbers, or half of a sentence's words."""
        if name in _SENTENCES:
            item_words = key_words(words_of(item.text))
            return (
                len(item_words & summary_words) * 2 >= len(item_words) if item_words else item.text.casefold() in folded
            )
        if name == "numbers":
            return set(_DIGITS.findall(_GROUPED.sub("", item.text))) <= numbers
        return item.text.casefold() in folded

    candidates = _candidates(items)[: ALSO_MAX * 4]
    return [(name, item) for name, item in candidates if not is_covered(name, item)][:ALSO_MAX]
