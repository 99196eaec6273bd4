"""Assemble tool calls from streamed fragments.

By the API's rules every fragment has an `index`, and the first of a call its id and name. Servers leave the index out,
number every call 0, repeat id and name in each fragment or make a new id for each, send the name late, arguments as an
object, or several calls under one id; all of that is accepted here.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from perdure.core.incoming.json_limits import parse_json
from perdure.core.messages import ToolCall
from perdure.core.models import ModelDelta
from perdure.providers.masking import WHOLE

CALLS_MAX = 1_000
NAME_CHARS_MAX = 1_000
PARSED_CHARS_MAX = 20_000_000
"""Limits the parsing that finds the end of a call, for servers that repeat the name with every fragment."""


@dataclass(slots=True)
class _Call:
    """A call so far. `key` is the server's index, `position` our own, `sent` the pieces of arguments in deltas."""

    position: int
    key: int | None
    call_id: str
    own_id: bool
    name: str = ""
    arguments: list[str] = field(default_factory=list)
    sent: int = 0
    name_sent: bool = False


class ToolCalls:
    """Takes fragments and returns deltas; `calls` are the calls so far. `id_start`: of ids for calls without one."""

    def __init__(self, id_start: str = "call") -> None:
        self._id_start = id_start
        self._calls: list[_Call] = []
        self._parsed_chars = 0

    def __len__(self) -> int:
        return len(self._calls)

    @property
    def calls(self) -> tuple[ToolCall, ...]:
        """The calls, in the order of their starts; a name can be missing, arguments can be invalid JSON."""
        return tuple(ToolCall(call.call_id, call.name, "".join(call.arguments)) for call in self._calls)

    def add(self, fragment: Mapping[str, Any], *, whole: bool = False) -> list[ModelDelta]:
        """The deltas of a fragment. A `whole` one is a complete call, from an answer that is not streamed.

        Raises: ValueError: too many calls, or a name that is too long.
        """
        function = fragment.get("function")
        function = function if isinstance(function, Mapping) else {}
        name = string_of(function.get("name"))
        arguments = _arguments(function.get("arguments"))
        call_id = string_of(fragment.get("id"))
        index = fragment.get("index")
        key = index if isinstance(index, int) else None
        call = None if whole else self._find(key, call_id, name, arguments)
        if call is None:
            position = len(self._calls)
            if position == CALLS_MAX:
                raise ValueError(f"more than {CALLS_MAX:,} tool calls")
            call = _Call(position, key, call_id or f"{self._id_start}_{position}", not call_id)
            self._calls.append(call)
        elif call_id and call.own_id and not call.name_sent:
            call.call_id, call.own_id = call_id, False
        return self._extend(call, name, arguments)

    def _find(self, key: int | None, call_id: str, name: str, arguments: str) -> _Call | None:
        """Return the call that a fragment continues; None: it begins a new one."""
        if key is not None:
            call = next((call for call in reversed(self._calls) if call.key == key), None)
            if call is None and self._calls and not (call_id or name):
                call = self._calls[-1]  # some servers count fragments, not calls
        elif call_id:
            call = next((call for call in reversed(self._calls) if call.call_id == call_id), None)
            if call is None and self._calls and self._calls[-1].own_id and not name:
                call = self._calls[-1]
        else:
            call = self._calls[-1] if self._calls else None
        if call is None or not name or not call.name:
            return call
        if key is None and not call_id:
            return None
        other_id = bool(call_id) and not call.own_id and call_id != call.call_id
        # A name after complete arguments starts the next call, of a server that gives all calls one index or id.
        return None if other_id or (arguments.strip() and self._is_whole(call)) else call

    def _is_whole(self, call: _Call) -> bool:
        """Whether the arguments of the call are a JSON object. False above a limit, which keeps the time linear."""
        arguments = "".join(call.arguments)
        self._parsed_chars += len(arguments)
        return self._parsed_chars <= PARSED_CHARS_MAX and is_object(arguments)

    def _extend(self, call: _Call, name: str, arguments: str) -> list[ModelDelta]:
        """Add a piece of name and arguments to a call; its deltas. Raises: ValueError: the name is too long."""
        deltas: list[ModelDelta] = []
        added = name
        if call.name and name:  # the name is repeated, or comes in pieces
            added = "" if name == call.name or call.arguments else name
        if len(call.name) + len(added) > NAME_CHARS_MAX:
            raise ValueError(f"a tool's name of more than {NAME_CHARS_MAX:,} characters")
        call.name += added
        if arguments:
            call.arguments.append(arguments)
        if added:
            deltas.append(ModelDelta("tool_name", added, call.position, call.call_id))
            call.name_sent = True
        if call.name_sent:  # arguments that came before the name wait for it
            unsent = call.arguments[call.sent :]
            call.sent = len(call.arguments)
            deltas += [ModelDelta("tool_arguments", piece, call.position, call.call_id) for piece in unsent]
        return deltas


def is_object(text: str) -> bool:
    """Whether this is one whole JSON object."""
    if not text.rstrip().endswith("}"):
        return False
    try:
        return isinstance(parse_json(text, WHOLE), dict)
    except ValueError:
        return False


def string_of(value: Any) -> str:
    """The value if it is a text, else an empty text."""
    return value if isinstance(value, str) else ""


def _arguments(value: Any) -> str:
    """Arguments as text; some servers send them as a JSON object."""
    if value is None or isinstance(value, str):
        return value or ""
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))
