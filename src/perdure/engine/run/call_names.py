"""The ids under which the calls of one answer are told and kept: a repeated one is renamed before it is told."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import replace

from perdure.core.messages import Part, Reasoning, Text, ToolCall
from perdure.engine.run.log import RunLog

ID_CHARS_MAX = 200
"""Longer ones are cut; of a model's own they have up to 64."""


class CallNames:
    """The ids of one answer's calls, each unique within the run: some models number their calls anew in each answer."""

    def __init__(self, log: RunLog) -> None:
        self._taken = {call.call_id for message in log.messages for call in message.calls}
        self._names: dict[int, tuple[str, str]] = {}

    def name_of(self, index: int, call_id: str | None, *, avoid: Collection[str] = ()) -> str:
        """The id of the call that has this number in the answer's deltas; the same for all of them.

        Args:
            avoid: ids that this call may not have either.
        """
        if index not in self._names:
            self._names[index] = (call_id or "", self._unique(call_id, avoid))
        return self._names[index][1]

    def of(self, parts: Sequence[Part]) -> tuple[Part, ...]:
        """The parts of the whole answer, the calls under the ids they were told under; without those that say
        nothing."""
        if len(parts) == 1 and isinstance(parts[0], Text) and parts[0].text:  # most answers
            return tuple(parts)
        names = list(self._names.values())
        kept: list[Part] = []
        for part in parts:
            if isinstance(part, ToolCall):
                known = next((one for one in names if one[0] == part.call_id), None)
                if known is not None:
                    names.remove(known)
                call_id = self._unique(part.call_id) if known is None else known[1]
                kept.append(part if call_id == part.call_id else replace(part, call_id=call_id))
            elif isinstance(part, (Text, Reasoning)) and not part.text and getattr(part, "signature", None) is None:
                # Nothing to keep; but reasoning that is only a signature has to go back to its provider.
                continue
            else:
                kept.append(part)
        return tuple(kept)

    def _unique(self, call_id: str | None, avoid: Collection[str] = ()) -> str:
        base = (call_id or "call")[:ID_CHARS_MAX]
        found, count = base, 1
        while found in self._taken or found in avoid:
            count += 1
            found = f"{base}-{count}"
        self._taken.add(found)
        return found
