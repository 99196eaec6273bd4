"""The conversations of which this process knows that something waits for extraction.

What they wait with is in the store. Safe to lose: the next process looks for conversations that were left.
"""

from __future__ import annotations

import contextlib
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

from perdure.core.conversations import ConversationKey
from perdure.core.ids import EpisodeId

TRIES, WHOLE_TRIES = 5, 3
"""How often a text is tried that can't be extracted, and a whole batch of turns before each is tried alone."""


@dataclass(slots=True)
class ConversationBacklog:
    """What of a conversation waits for extraction, as far as this process knows.

    Attributes:
        turns, tokens: how much was said since extraction last looked.
        due_at: when all of it is extracted, in seconds of the event loop's clock.
        tries: how often the batch has failed.
    """

    turns: int = 0
    tokens: int = 0
    due_at: float = 0.0
    tries: int = 0


class ConversationBacklogs:
    """The backlogs of this process.

    Attributes:
        backlogs: conversation -> its backlog; not there: nothing waits.
        wake: called about each change with the conversation and whether it is due at once; None: nothing is extracted.
        taken: conversation -> how many callers have it extracted now, and wait for it.
        texts: the episodes that are extracted just now.
    """

    def __init__(self) -> None:
        self.backlogs: dict[ConversationKey, ConversationBacklog] = {}
        self.wake: Callable[[ConversationKey, bool], None] | None = None
        self.taken: Counter[ConversationKey] = Counter()
        self.texts: Counter[EpisodeId] = Counter()

    @contextlib.contextmanager
    def take(self, conversation_key: ConversationKey) -> Iterator[None]:
        """Inside the context, keep the background from extracting a conversation; afterwards it does what is left."""
        self.taken[conversation_key] += 1
        is_done = False
        try:
            yield
            is_done = True
        finally:
            self.taken[conversation_key] -= 1
            self.taken += Counter()  # without those that are 0
            if not is_done or conversation_key in self.backlogs:
                self.note(conversation_key)

    @contextlib.contextmanager
    def take_texts(self, ids: Iterable[EpisodeId]) -> Iterator[None]:
        """Keep other tasks from extracting the episodes with these ids."""
        taken = Counter(ids)
        self.texts += taken
        try:
            yield
        finally:
            self.texts -= taken

    def note(self, conversation_key: ConversationKey, *, turns: int = 0, tokens: int = 0, now: bool = False) -> None:
        """Note that so much was said in a conversation, or that its agent got a text; `now`: extract it at once."""
        if self.wake is None:
            return
        backlog = self.backlogs.setdefault(conversation_key, ConversationBacklog())
        backlog.turns += turns
        backlog.tokens += tokens
        self.wake(conversation_key, now)
