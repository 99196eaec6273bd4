"""LongMemEval: one question about many sessions of a user with an assistant, for five abilities.

The file is a list of objects as they are published, such as `longmemeval_s.json`. A question whose id ends in `_abs`
can't be answered from the sessions; these are counted apart.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime, timedelta

from perdure.core.errors import InvalidInput
from perdure.features.benchmarks.sets.reading import Node, read_json
from perdure.features.benchmarks.sets.values import ABSTENTION, Case, CaseQuestion, CaseTurn, DataSet, Setup

ABILITIES: Mapping[str, str] = {
    "single-session-user": "information extraction",
    "single-session-assistant": "information extraction",
    "single-session-preference": "information extraction",
    "multi-session": "multi-session reasoning",
    "temporal-reasoning": "temporal reasoning",
    "knowledge-update": "knowledge updates",
}
"""`question_type` of the data -> ability."""
_PROMPTS: Mapping[str, str] = {
    "single-session-preference": "judge_preference",
    "temporal-reasoning": "judge_temporal",
    "knowledge-update": "judge_update",
}
"""`question_type` -> prompt of the judge, where it is not the usual one: as in the data's own evaluation."""
_TIMES = ("%Y/%m/%d (%a) %H:%M", "%Y/%m/%d %H:%M", "%Y/%m/%d (%a)", "%Y/%m/%d")


def load(setup: Setup, seed: int) -> Sequence[Case]:
    """Return a case for each question. Raises: InvalidInput."""
    if setup.data is None:
        raise InvalidInput("--data is missing: give longmemeval_s.json, another file of LongMemEval, or `sample`")
    return [_case(row) for row in read_json(setup.data).items()]


def _case(row: Node) -> Case:
    """Return the case of a question. Raises: InvalidInput."""
    ids = [one.text for one in row.get("haystack_session_ids").items()]
    dates = [one.time(*_TIMES) for one in row.get("haystack_dates").items()]
    sessions = row.get("haystack_sessions").items()
    if not len(ids) == len(dates) == len(sessions):
        counts = f"{len(ids)} ids, {len(dates)} dates and {len(sessions)} sessions"
        raise InvalidInput(f"{row.place}: haystack has {counts}, which have to be as many of each")
    kind = row.get("question_type")
    if kind.text not in ABILITIES:
        raise InvalidInput(f"{kind.place}: {kind.text!r:.60} is none of {', '.join(ABILITIES)}")
    # Some ids stand twice in a haystack, so turns are numbered by the place of their session.
    parts = sorted(enumerate(zip(ids, dates, sessions, strict=True)), key=lambda part: part[1][1])
    turns: list[CaseTurn] = []
    evidence: set[str] = set()
    for number, (id_, date, session) in parts:
        for turn, answers in _turns(id_, number, date, session):
            turns.append(turn)
            if answers:
                evidence.add(turn.id)
    name = row.get("question_id").text
    is_open = name.endswith("_abs")
    question = CaseQuestion(
        id=name,
        kind=ABSTENTION if is_open else ABILITIES[kind.text],
        text=row.get("question").text,
        answer=row.get("answer").text,
        evidence=frozenset(evidence),
        sessions=frozenset(one.text for one in row.get("answer_session_ids").items()),
        asked_on=row.get("question_date").text,
        prompt="judge_abstention" if is_open else _PROMPTS.get(kind.text, "judge"),
    )
    return Case(id=name, turns=turns, questions=[question], asked_at=row.get("question_date").time(*_TIMES))


def _turns(id_: str, number: int, date: datetime, session: Node) -> Iterator[tuple[CaseTurn, bool]]:
    """Yield the turns of a session, each with whether it answers the question. Raises: InvalidInput."""
    for at, item in enumerate(session.items()):
        role, text, mark = item.get("role"), item.get("content").text, item.find("has_answer")
        if role.text not in ("user", "assistant"):
            raise InvalidInput(f"{role.place}: {role.text!r:.60} is neither user nor assistant")
        if text:
            is_user = role.text == "user"
            yield (
                CaseTurn(
                    id=f"{number}:{at + 1}",
                    session=id_,
                    role="user" if is_user else "assistant",
                    speaker="User" if is_user else "Assistant",
                    at=date + timedelta(seconds=at),
                    text=text,
                ),
                mark is not None and mark.value is True,
            )


DATA_SET = DataSet(
    title="LongMemEval",
    load=load,
    line="new",
    default_judge="f1",
    about="Questions about the sessions of a user with an assistant, for five abilities.",
)
