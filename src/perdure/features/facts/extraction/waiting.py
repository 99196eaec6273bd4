"""The conversations of which this process knows that something waits for extraction.

What they wait with is in the store. Safe to lose: the next process looks for conversations that were left.
"""

from __future__ import annotations

import contextlib
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

from perdure.core.ids import EpisodeId
from perdure.engine.log.run_log import Line

TRIES, WHOLE_TRIES = 5, 3
"""How often what can't be extracted is tried, and a whole batch of turns: then each of them is."""


@dataclass(slots=True)
class LineBacklog:
    """What a conversation waits with.

    Attributes:
        turns, tokens: since it was last looked at.
        due_at: when all of it is extracted, in seconds of the loop.
        tries: how often the batch has failed.
    """

    turns: int = 0
    tokens: int = 0
    due_at: float = 0.0
    tries: int = 0


class Waiting:
    """The backlogs of this process.

    Attributes:
        wake: called about each change, with whether the rest is due at once; None: nobody extracts here.
        taken: the conversations that are extracted because somebody asks for it, as often as it is asked for.
        texts: the texts that are extracted just now.
    """

    def __init__(self) -> None:
        self.lines: dict[Line, LineBacklog] = {}
        self.wake: Callable[[Line, bool], None] | None = None
        self.taken: Counter[Line] = Counter()
        self.texts: Counter[EpisodeId] = Counter()

    @contextlib.contextmanager
    def take(self, line: Line) -> Iterator[None]:
        """Keep the background from extracting a conversation, so that no model is asked twice. It comes back to what
        it has left meanwhile, or what could not be extracted."""
        self.taken[line] += 1
        is_done = False
        try:
            yield
            is_done = True
        finally:
            self.taken[line] -= 1
            self.taken += Counter()  # without those that are 0
            if not is_done or line in self.lines:
                self.note(line)

    @contextlib.contextmanager
    def take_texts(self, ids: Iterable[EpisodeId]) -> Iterator[None]:
        """Keep others from extracting texts."""
        taken = Counter(ids)
        self.texts += taken
        try:
            yield
        finally:
            self.texts -= taken

    def note(self, line: Line, *, turns: int = 0, tokens: int = 0, now: bool = False) -> None:
        """Note that something was said in a conversation, or its agent was given a text; `now`: extract it soon."""
        if self.wake is None:
            return
        backlog = self.lines.setdefault(line, LineBacklog())
        backlog.turns += turns
        backlog.tokens += tokens
        self.wake(line, now)
