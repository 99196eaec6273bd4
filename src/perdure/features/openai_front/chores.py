"""What chat programs ask beside the chat, such as a title: it is answered by a model alone, and nobody remembers it."""

from __future__ import annotations

import functools
import tomllib
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.resources import files


@dataclass(frozen=True, slots=True)
class ChorePattern:
    """The texts that a chore of a program holds, in order; `start`: the first one stands at the beginning."""

    program: str
    texts: Sequence[str]
    start: bool = False

    def fits(self, text: str) -> bool:
        """Whether a message is such a chore."""
        place = 0
        for number, part in enumerate(self.texts):
            found = text.find(part, place)
            if found < 0 or (self.start and number == 0 and found > 0):
                return False
            place = found + len(part)
        return True


@functools.cache
def _patterns() -> Sequence[ChorePattern]:
    text = files(__package__).joinpath("chores.toml").read_text("utf-8")
    return [ChorePattern(**one) for one in tomllib.loads(text)["chore"]]


def is_chore(text: str) -> bool:
    """Whether a chat program asks this beside a chat."""
    text = text.replace("\r\n", "\n").strip()
    return any(pattern.fits(text) for pattern in _patterns())
