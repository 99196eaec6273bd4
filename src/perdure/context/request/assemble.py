"""Assembly: from a prefix, the log and a recipe to the request; and the canonical form of a request."""

from __future__ import annotations

import functools
import hashlib
import json
import operator
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Any, Protocol, cast

from perdure.context.request.authorship import marked_message, marked_text
from perdure.context.request.prefix import Counts
from perdure.context.retrieval.stubs import is_cut, shown
from perdure.context.sections.envelopes import envelope
from perdure.context.sections.summary import summary_message
from perdure.core.errors import IllegalLog
from perdure.core.messages import Message, parts_to_json
from perdure.core.models import ModelOptions, ModelRequest, ToolChoice
from perdure.core.runs import Prefix, Recipe
from perdure.core.text.zones import zone

__all__ = ["View", "assemble", "canonical", "check_legal", "digest_of", "recalled_in", "tail"]

_NONE: Mapping[int, int] = {}


class _Digest(Protocol):
    def update(self, data: bytes, /) -> None: ...

    def copy(self) -> _Digest: ...

    def hexdigest(self) -> str: ...


@dataclass(frozen=True, slots=True)
class View:
    """What a conversation's model is shown: a prefix and the log rows that follow it, legal by construction.

    A view only grows; a new prefix begins a new one. Legality is checked on the rows that are added, and the digest
    goes on from where it was, so that a long view costs no more to extend than a short one.

    Args:
        stubs: row number -> characters, for rows that are not shown whole.
        rows: those that follow the prefix, whole.
        messages: what the request shows: the summary, the pinned rows, then the rows, cut where they are stubs; the
            engine's have the prefix's marker.
    """

    prefix: Prefix
    stubs: Mapping[int, int]
    pinned: tuple[Message, ...]
    rows: tuple[Message, ...]
    messages: tuple[Message, ...]
    _digest: _Digest = field(compare=False, repr=False)

    @classmethod
    def of(cls, prefix: Prefix, pinned: Sequence[Message] = (), stubs: Mapping[int, int] = _NONE) -> View:
        """The view of a prefix, before any row that follows it."""
        before = (summary_message(prefix),) if prefix.summary else ()
        shown_first = (*before, *(marked_message(shown(message, stubs), prefix.marker) for message in pinned))
        digest = hashlib.sha256()
        for line in _head(prefix.tools, prefix.system):
            digest.update(_bytes(line))
        for message in shown_first:
            digest.update(_message_bytes(message))
        return cls(prefix, stubs, tuple(pinned), (), shown_first, digest)

    @property
    def next_seq(self) -> int:
        """The first sequence number that this view does not know of."""
        return self.rows[-1].seq + 1 if self.rows else self.prefix.from_message_seq

    def following(self, messages: Sequence[Message]) -> Sequence[Message]:
        """Those of the conversation's `messages` (in order) that come after the view's own; none if there is a gap.

        An agent's rows are numbered without gaps, so behind one stands a row that the caller does not have: another
        conversation's, or one that was put into this.
        """
        seq = self.next_seq
        rows = [message for message in messages if message.seq >= seq]
        return rows if rows and rows[0].seq == seq and rows[-1].seq == seq + len(rows) - 1 else ()

    def with_stubs(self, stubs: Mapping[int, int]) -> View:
        """The same rows, shown so."""
        return View.of(self.prefix, self.pinned, stubs).extended(self.rows)

    def extended(self, rows: Sequence[Message]) -> View:
        """The view with these rows after its own. Raises: IllegalLog."""
        if not rows:
            return self
        check_legal(rows)
        added = rows
        if any(row.kind == "approval" for row in rows):  # what a person decided is no model's business
            added = [row for row in rows if row.kind != "approval"]
        if self.stubs or any(map(is_cut, added)):
            added = [shown(row, self.stubs) for row in added]
        if marker := self.prefix.marker:
            marked = [marked_message(row, marker) for row in added]
            if any(map(operator.is_not, marked, added)):
                added = marked
        digest = self._digest.copy()
        for message in added:
            digest.update(_message_bytes(message))
        all_rows = (*self.rows, *rows)
        # One tuple serves as both, as long as nothing is shown otherwise.
        shown_rows = all_rows if added is rows and self.messages is self.rows else (*self.messages, *added)
        return View(self.prefix, self.stubs, self.pinned, all_rows, shown_rows, digest)

    def digest(self, tail: str) -> str:
        """`digest_of` the request that shows this view and this tail."""
        digest = self._digest
        if tail:
            digest = digest.copy()
            digest.update(_bytes(_line({"tail": tail})))
        return digest.hexdigest()


def assemble(model: str, view: View, recipe: Recipe, *, options: ModelOptions | None = None) -> ModelRequest:
    """The request that the recipe stands for; `view` reaches from its prefix to `recipe.upto_message_seq`.

    Where the agent's tool rules ask something of the model, that goes before the agent's own options, but for a choice
    of no tool at all.
    """
    options = options or ModelOptions()
    if recipe.single_calls:
        options = replace(options, parallel_tool_calls=False)
    if recipe.tool_choice is not None and options.tool_choice != "none":
        options = replace(options, tool_choice=cast("ToolChoice", recipe.tool_choice))
    return ModelRequest(
        model=model,
        system=view.prefix.system,
        tools=view.prefix.tools,
        messages=view.messages,
        tail=recipe.tail,
        options=options,
    )


def check_legal(messages: Sequence[Message]) -> None:
    """Nothing, when every call is followed by its one result before anything else is said.

    Raises: IllegalLog.
    """
    open_calls: set[str] = set()
    for message in messages:
        if message.role == "tool":
            for result in message.results:
                if result.call_id not in open_calls:
                    raise IllegalLog(
                        f"{message.id} has a result for {result.call_id!r}, which was not asked or answered twice"
                    )
                open_calls.remove(result.call_id)
            continue
        if message.kind == "approval":
            continue
        if open_calls:
            raise IllegalLog(f"{message.id} stands between call {min(open_calls)!r} and its result")
        for call in message.calls:
            if call.call_id in open_calls:
                raise IllegalLog(f"{message.id} has two calls with the id {call.call_id!r}")
            open_calls.add(call.call_id)
    if open_calls:
        raise IllegalLog(f"call {min(open_calls)!r} has no result")


def canonical(request: ModelRequest) -> bytes:
    """Our canonical form of a request: tools, system, messages, tail, one JSON line each. Equal bytes, equal
    request."""
    parts = [*map(_bytes, _head(request.tools, request.system)), *map(_message_bytes, request.messages)]
    if request.tail:
        parts.append(_bytes(_line({"tail": request.tail})))
    return b"".join(parts)


def digest_of(request: ModelRequest) -> str:
    """The SHA-256 of the canonical form, in hexadecimal digits: what a recipe records."""
    return hashlib.sha256(canonical(request)).hexdigest()


def _head(tools: Sequence[Mapping[str, Any]], system: str) -> Iterator[str]:
    for tool in tools:
        yield _line({"tool": tool})
    yield _line({"system": system})


def _message_bytes(message: Message) -> bytes:
    line = f'{{"role":"{message.role}","kind":"{message.kind}","parts":{parts_to_json(message.parts)}}}\n'
    return line.encode("utf-8", "surrogatepass")


_line = json.JSONEncoder(ensure_ascii=False, separators=(",", ":"), sort_keys=True).encode
"""One line of the canonical form, without its end."""


def _bytes(line: str) -> bytes:
    return f"{line}\n".encode("utf-8", "surrogatepass")


# Not from `strftime`, which would ask the process's locale, and takes longer than all the rest of the tail.
_WEEKDAYS = ("Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday")


def tail(now: datetime, timezone: str, counts: Counts, recalled: str = "", *, marker: str = "") -> str:
    """The volatile tail: the date where the agent lives, current counts, and what was recalled for the newest message.
    It is in the recipe, not in the log."""
    more = {"recalled": recalled} if recalled else {}
    text = envelope(
        "context_status",
        **_moment(now.replace(second=0, microsecond=0), timezone),
        recall_messages=counts.messages,
        archival_passages=counts.passages,
        **more,
    )
    return marked_text(text, marker)


@functools.lru_cache(maxsize=64)  # within a minute all agents of a time zone are told the same
def _moment(minute: datetime, timezone: str) -> Mapping[str, str]:
    local = minute.astimezone(zone(timezone))
    return {
        "date": local.date().isoformat(),
        "weekday": _WEEKDAYS[local.weekday()],
        "time": f"{local.hour:02}:{local.minute:02}",
        "timezone": timezone,
    }


def recalled_in(status: str) -> str:
    """What was recalled, as it stands in a tail; empty if nothing was."""
    if '"recalled": ' not in status:
        return ""
    found = json.loads(status).get("recalled", "")
    return found if isinstance(found, str) else ""
