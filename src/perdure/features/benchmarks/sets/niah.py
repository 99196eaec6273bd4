"""Needle in a haystack (NIAH): one sentence hidden in a text of a given length at a given depth, and asked for.

The text is that of a file of yours, repeated if it is short, or sentences that are made from the words in `niah.toml`.
The needles are our own. A length is in tokens, of four characters each.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from functools import cache
from itertools import count
from pathlib import Path
from random import Random
from typing import Any

from perdure.core.errors import InvalidInput
from perdure.core.text.tables import read_table
from perdure.features.benchmarks.sets.reading import read_bytes
from perdure.features.benchmarks.sets.values import Case, CaseQuestion, CaseTurn, DataSet, Setup

LENGTHS = (1_000, 4_000, 16_000)
DEPTHS = (0.0, 25.0, 50.0, 75.0, 100.0)
CHARS_PER_TOKEN = 4
PARAGRAPH_CHARS = 1_200
BEGAN = datetime(2024, 3, 1, 9, tzinfo=UTC)
_READ = "I have read it."
_END = re.compile(r"(?<=[.!?。！？])\s+|\n\s*\n")


@cache
def _texts() -> Mapping[str, Any]:
    """Return the needles and the words of sentences."""
    return read_table(__file__, "niah.toml")


def load(setup: Setup, seed: int) -> Sequence[Case]:
    """Return a case for each cell of the grid. Raises: InvalidInput."""
    given = [] if setup.data is None else _sentences(setup.data)
    return [
        _case(length, depth, seed, given) for length in setup.lengths or LENGTHS for depth in setup.depths or DEPTHS
    ]


def _case(length: int, depth: float, seed: int, given: Sequence[str]) -> Case:
    """Return the case of a cell."""
    name = f"niah-{length}-{depth:g}-{seed}"
    chance = Random(name)
    needle = chance.choice(_texts()["needles"])
    answer = chance.choice(_texts()["answers"])
    hay: list[str] = []
    source, chars = _repeat(given, chance) if given else _generated_text(chance), 0
    while chars < length * CHARS_PER_TOKEN:
        hay.append(next(source))
        chars += len(hay[-1]) + 1
    at = round(len(hay) * depth / 100)
    sentences = [*hay[:at], said := needle["said"].format(answer=answer), *hay[at:]]
    turns = [*_turns(sentences)]
    evidence = frozenset(turn.id for turn in turns if said in turn.text)
    question = CaseQuestion(id=name, kind="needle", text=needle["asked"], answer=answer, evidence=evidence)
    return Case(id=name, turns=turns, questions=[question], place=(length, depth))


def _turns(sentences: Sequence[str]) -> Iterator[CaseTurn]:
    """Yield the sentences as paragraphs of a user, each with the answer that it was read."""
    paragraphs: list[str] = [""]
    for sentence in sentences:
        if len(paragraphs[-1]) + len(sentence) > PARAGRAPH_CHARS and paragraphs[-1]:
            paragraphs.append("")
        paragraphs[-1] = f"{paragraphs[-1]} {sentence}".strip()
    for number, text in enumerate(paragraphs, 1):
        at = BEGAN + timedelta(minutes=number)
        yield CaseTurn(id=f"{number}", session="1", role="user", speaker="User", at=at, text=text)
        yield CaseTurn(
            id=f"{number}r", session="1", role="assistant", speaker="Assistant", at=at, text="I have read it."
        )


def _sentences(data: Path) -> Sequence[str]:
    """Return the sentences of a text. Raises: InvalidInput: there is none."""
    text = read_bytes(data).decode("utf-8", "replace")
    found = [" ".join(one.split())[:PARAGRAPH_CHARS] for one in _END.split(text)]
    if not (kept := [one for one in found if one]):
        raise InvalidInput(f"{data.name}: it has no text to hide a needle in")
    return kept


def _repeat(given: Sequence[str], chance: Random) -> Iterator[str]:
    """Yield sentences in their order without an end, from a random one on."""
    first = chance.randrange(len(given))
    yield from (given[number % len(given)] for number in count(first))


def _generated_text(chance: Random) -> Iterator[str]:
    """Yield sentences without an end, made from words."""
    words: Mapping[str, Sequence[str]] = _texts()["words"]
    while True:
        form = chance.choice(_texts()["forms"])
        yield form.format(**{name: chance.choice(choices) for name, choices in words.items()})


DATA_SET = DataSet(
    title="NIAH (needle in a haystack)",
    load=load,
    line="fork",
    default_judge="exact",
    about="One sentence in a text of a given length, at a given depth, as a picture.",
    by_seed=True,
)
