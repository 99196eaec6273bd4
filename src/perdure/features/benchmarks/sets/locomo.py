"""LoCoMo: questions about long talks of two people, and the events of their lives.

The file is a list of objects as they are published, `locomo10.json`: `conversation` with `session_N` and
`session_N_date_time`, `qa` with category and evidence, and `event_summary`. The numbers of the categories are those of
the data's own evaluation; some published tables swap them.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from datetime import timedelta

from perdure.core.errors import InvalidInput
from perdure.features.benchmarks.sets.reading import Node, read_json
from perdure.features.benchmarks.sets.values import ABSTENTION, Case, CaseQuestion, CaseTurn, DataSet, Setup

CATEGORIES: Mapping[int, str] = {1: "multi-hop", 2: "temporal", 3: "open-domain", 4: "single-hop", 5: ABSTENTION}
"""Category 5, adversarial, asks for what was not said, or was said by the other one."""
EVENTS = "event summary"
_SESSION = re.compile(r"session_(\d+)")
_EVIDENCE = re.compile(r"D:?(\d+):(\d+)")  # the labels hold slips: 'D8:6; D9:17', 'D:11:26', 'D30:05'
_TIMES = ("%I:%M %p on %d %B, %Y",)


def load(setup: Setup, seed: int) -> Sequence[Case]:
    """Return a case for each talk. Raises: InvalidInput."""
    if setup.data is None:
        raise InvalidInput("--data is missing: give locomo10.json, or `sample`")
    return [_case(row) for row in read_json(setup.data).items()]


def _case(row: Node) -> Case:
    """Return the case of a talk. Raises: InvalidInput."""
    name, talk = row.get("sample_id").text, row.get("conversation")
    numbers = sorted(int(match[1]) for key in talk.as_a(dict, "an object") if (match := _SESSION.fullmatch(key)))
    turns = [turn for number in numbers for turn in _turns(talk, number)]
    known = {turn.id: turn.session for turn in turns}
    questions = [_question(item, f"{name}-q{at}", known) for at, item in enumerate(row.get("qa").items(), 1)]
    return Case(id=name, turns=turns, questions=[*questions, *_events(row, name)])


def _turns(talk: Node, number: int) -> Iterator[CaseTurn]:
    """Yield the turns of a session. Raises: InvalidInput."""
    began = talk.get(f"session_{number}_date_time").time(*_TIMES)
    first = talk.get("speaker_a").text
    for at, item in enumerate(talk.get(f"session_{number}").items()):
        speaker, text, caption = item.get("speaker").text, item.get("text").text, item.find("blip_caption")
        if caption is not None:
            text = f"{text} [shares an image: {caption.text}]".strip()
        if text:
            yield CaseTurn(
                id=item.get("dia_id").text,
                session=str(number),
                role="user" if speaker == first else "assistant",
                speaker=speaker,
                at=began + timedelta(seconds=at),
                text=text,
            )


def _question(item: Node, name: str, known: Mapping[str, str]) -> CaseQuestion:
    """Return a question; `known`: turn -> its session. Raises: InvalidInput."""
    category, labels = item.get("category"), item.find("evidence")
    if type(category.value) is not int or category.value not in CATEGORIES:
        raise InvalidInput(f"{category.place}: {category.value!r:.40} is no category from 1 to 5")
    kind = CATEGORIES[category.value]
    trap = item.find("adversarial_answer") if kind == ABSTENTION else None
    answer = "It was not said." if kind == ABSTENTION else item.get("answer").text
    found = (_EVIDENCE.findall(label.text) for label in (labels.items() if labels is not None else ()))
    ids = frozenset(f"D{int(session)}:{int(turn)}" for pairs in found for session, turn in pairs) & known.keys()
    return CaseQuestion(
        id=name,
        kind=kind,
        text=item.get("question").text,
        answer=answer.split(";")[0].strip() if kind == "open-domain" else answer,  # behind it stands why
        evidence=ids,
        sessions=frozenset(known[one] for one in ids),
        wrong="" if trap is None else trap.text,
        several=kind == "multi-hop",
        prompt="judge_abstention" if kind == ABSTENTION else "judge",
    )


def _events(row: Node, name: str) -> Iterator[CaseQuestion]:
    """Yield a question for the events of each speaker up to each session that the data has. Raises: InvalidInput."""
    if (summaries := row.find("event_summary")) is None:
        return
    for key, session in summaries.as_a(dict, "an object").items():
        node = Node(session, f"{summaries.place}.{key}")
        for speaker in node.as_a(dict, "an object"):
            if speaker != "date" and (events := [one.text for one in node.get(speaker).items()]):
                yield CaseQuestion(
                    id=f"{name}-{key}-{speaker}",
                    kind=EVENTS,
                    text=f"Which events in the life of {speaker} became known on {node.get('date').text}?",
                    answer=" ".join(events),
                )


DATA_SET = DataSet(
    title="LoCoMo",
    load=load,
    line="new",
    default_judge="f1",
    about="Questions about talks of two people over months, by category, and the events of their lives.",
)
