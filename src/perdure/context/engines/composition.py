"""An engine of two parts: an assembler decides which messages stay, a compressor shortens what is large or leaves."""

from __future__ import annotations

from dataclasses import replace
from typing import ClassVar

from perdure.context.engines.port import LIFE_CYCLE, ContextEngine
from perdure.context.retrieval.stubs import row_tokens, stub_chars
from perdure.context.window.extract import extract, render_extract
from perdure.context.window.plan import STUB_TOKENS, Evict, Plan, Situation, Stub
from perdure.core.errors import InvalidInput


class Compressor:
    """The base of all compressors. Both functions are pure."""

    name: ClassVar[str] = ""

    def shorten(self, situation: Situation) -> Stub | None:
        """Return which messages to show in part before any leaves; None: no more of them."""
        return None

    def summarise(self, situation: Situation, removal: Evict) -> str | None:
        """Return the summary of what leaves, at most `removal.summary_tokens` long; None: a model writes it."""
        return None


class StubResults(Compressor):
    """Old results of tools are shown by a handle before anything leaves the view; the newest stay as they are."""

    name = "stubs"

    def __init__(self, *, keep_results: int = 3, chars: int = 0) -> None:
        """Make the compressor.

        Args:
            keep_results: how many of the newest results stay.
            chars: how much of an older one is shown.

        Raises: InvalidInput.
        """
        for name, value in (("keep_results", keep_results), ("chars", chars)):
            if type(value) is not int or value < 0:
                raise InvalidInput(f"{name} is {value!r:.80}: give a whole number from 0 on")
        self._keep, self._chars = keep_results, chars

    def shorten(self, situation: Situation) -> Stub | None:
        if not situation.can_open:
            return None
        results = [row for row in (*situation.pinned, *situation.rows) if row.role == "tool"]
        stubs = dict(situation.stubs)
        for row in results[: max(0, len(results) - self._keep)]:
            whole = situation.stubs.get(row.seq, stub_chars(row))
            is_read = row.run_seq != situation.run_seq or row.seq <= situation.seen_upto
            if not is_read or whole <= self._chars or situation.tokens_of(row) <= STUB_TOKENS * 2:
                continue
            if row_tokens(row, {**stubs, row.seq: self._chars}, situation.counter) < situation.tokens_of(row):
                stubs[row.seq] = self._chars
        changed = [seq for seq, chars in stubs.items() if situation.stubs.get(seq) != chars]
        return Stub(stubs, sent=True) if changed else None


class Extract(Compressor):
    """What leaves is summarised by code, without a model: identifiers, decisions, open questions, numbers."""

    name = "extract"

    def summarise(self, situation: Situation, removal: Evict) -> str | None:
        found = extract(removal.messages)
        text = render_extract(found, max_tokens=removal.summary_tokens, counter=situation.counter)
        return None if removal.absorbed else text or None


class Composition(ContextEngine):
    """When a request does not fit, the compressor shortens what it can, then the assembler plans.

    The callbacks are the assembler's.
    """

    def __init__(self, assembler: ContextEngine, compressor: Compressor) -> None:
        self.assembler, self.compressor = assembler, compressor
        self.owns_compaction, self.absorbs = assembler.owns_compaction, assembler.absorbs
        self.system_prompt_addition = assembler.system_prompt_addition
        self.timeout_s = assembler.timeout_s
        for name in LIFE_CYCLE:
            if assembler.overrides(name):
                setattr(self, name, getattr(assembler, name))

    def assemble(self, situation: Situation) -> Plan | None:
        return self._with_summary(situation, self.assembler.assemble(situation))

    def plan(self, situation: Situation) -> Plan | None:
        if situation.certificate.fits:
            return None
        shorter = self.compressor.shorten(situation)
        return shorter or self._with_summary(situation, self.assembler.plan(situation))

    def overrides(self, name: str) -> bool:
        return self.assembler.overrides(name) if name == "assemble" else super().overrides(name)

    def _with_summary(self, situation: Situation, found: Plan | None) -> Plan | None:
        """Return the plan with the compressor's summary of what leaves, if it writes one."""
        if not isinstance(found, Evict) or not found.atoms or found.prepared or found.text is not None:
            return found
        return replace(found, text=self.compressor.summarise(situation, found))
