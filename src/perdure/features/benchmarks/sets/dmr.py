"""Deep memory retrieval (DMR): one question about five earlier chats of two people, as MSC-Self-Instruct has them.

A line of the file is an object with `previous_dialogs` (a list of objects with `dialog`, a list of objects with
`text`), `dialog` (the last chat) and `self_instruct`, where B is the question and A the answer. The data does not say
when the chats took place: they are given a day each, and the speakers take turns, the first one first.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import UTC, datetime, timedelta

from perdure.core.errors import InvalidInput
from perdure.features.benchmarks.sets.reading import Node, read_lines
from perdure.features.benchmarks.sets.values import Case, CaseQuestion, CaseTurn, DataSet, Setup

FIRST_DAY = datetime(2024, 1, 1, 12, tzinfo=UTC)
_SPEAKERS = ("Speaker 1", "Speaker 2")


def load(setup: Setup, seed: int) -> Sequence[Case]:
    """Return a case for each line. Raises: InvalidInput."""
    if setup.data is None:
        raise InvalidInput("--data is missing: give msc_self_instruct.jsonl, or `sample`")
    return [_case(row, f"dmr-{number}") for number, row in enumerate(read_lines(setup.data), 1)]


def _case(row: Node, name: str) -> Case:
    """Return the case of a line. Raises: InvalidInput."""
    chats = [one.get("dialog") for one in row.get("previous_dialogs").items()]
    if (last := row.find("dialog")) is not None:
        chats.append(last)
    turns = [turn for number, chat in enumerate(chats, 1) for turn in _turns(chat, number)]
    asked = row.get("self_instruct")
    question = CaseQuestion(id=name, kind="retrieval", text=asked.get("B").text, answer=asked.get("A").text)
    return Case(id=name, turns=turns, questions=[question])


def _turns(chat: Node, number: int) -> Iterator[CaseTurn]:
    """Yield the turns of a chat. Raises: InvalidInput."""
    for at, item in enumerate(chat.items()):
        named = item.find("id")
        second = named.text == _SPEAKERS[1] if named is not None and named.text in _SPEAKERS else at % 2 == 1
        if not (text := item.get("text").text):
            continue
        yield CaseTurn(
            id=f"{number}:{at + 1}",
            session=str(number),
            role="assistant" if second else "user",
            speaker=_SPEAKERS[second],
            at=FIRST_DAY + timedelta(days=number, minutes=at),
            text=text,
        )


DATA_SET = DataSet(
    title="DMR (deep memory retrieval)",
    load=load,
    line="new",
    default_judge="f1",
    about="One question about what was said in five earlier chats.",
)
