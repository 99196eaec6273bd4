"""Data as it is published is read whole; what has another shape is refused, with file and place."""

from __future__ import annotations

import gzip
import json
import os
import subprocess
import sys
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from perdure import InvalidInput
from perdure.features.benchmarks.sets import DATA_SETS
from perdure.features.benchmarks.sets.locomo import EVENTS
from perdure.features.benchmarks.sets.reading import SAMPLES
from perdure.features.benchmarks.sets.values import ABSTENTION, Case
from perdure.features.benchmarks.setups import make_setup

FILES = {"dmr": "dmr.jsonl", "longmemeval": "longmemeval.json", "locomo": "locomo.json"}


def load(name: str, data: Path | str) -> list[Case]:
    """The cases of a file."""
    return list(DATA_SETS[name].load(make_setup(name, data=str(data)), 1))


def changed(folder: Path, name: str, change: Callable[[Any], object]) -> Path:
    """A copy of a sample, of which the first row was changed."""
    text = (SAMPLES / FILES[name]).read_text("utf-8")
    rows = [json.loads(line) for line in text.splitlines()] if name == "dmr" else json.loads(text)
    change(rows[0])
    file = folder / FILES[name]
    file.write_text("\n".join(map(json.dumps, rows)) if name == "dmr" else json.dumps(rows), "utf-8")
    return file


def test_locomo_has_sessions_with_times_captions_categories_and_events() -> None:
    [case] = load("locomo", "sample")

    first = case.turns[1]
    assert (first.speaker, first.role, first.session) == ("Felix", "assistant", "1")
    assert first.text.endswith("called Biscuit. [shares an image: a grey dog on a sofa]")
    assert case.turns[4].at == datetime(2023, 6, 25, 10, 5, tzinfo=UTC)
    kinds = [question.kind for question in case.questions]
    assert (kinds.count(EVENTS), kinds.count(ABSTENTION), kinds.count("single-hop")) == (5, 1, 3)
    assert case.questions[3].evidence == {"D1:1", "D1:3"}  # two in one label
    assert case.questions[5].answer == "8"  # a number in the data


def test_locomo_is_read_as_its_own_evaluation_reads_it(tmp_path: Path) -> None:
    """Lists have parts, reasons behind a semicolon are no part of an answer, adversarial questions name the trap."""

    def change(row: Any) -> None:
        """Give a question of each kind what the published file has."""
        trap = {"question": "What did Noor adopt?", "category": 5, "evidence": [], "adversarial_answer": "a \ud800dog"}
        why = {"question": "Would Noor move?", "category": 3, "evidence": [], "answer": "Likely no; she has a studio"}
        row["qa"] += [trap, why]
        del row["event_summary"]

    [case] = load("locomo", changed(tmp_path, "locomo", change))

    trap, why = case.questions[-2:]
    assert (trap.answer, trap.wrong, trap.prompt) == ("It was not said.", "a ?dog", "judge_abstention")
    assert why.answer == "Likely no"
    assert {one.kind for one in case.questions if one.several} == {"multi-hop"}


@pytest.mark.slow
def test_questions_have_one_order_in_every_process() -> None:
    """So that `--most` and a run that goes on mean the same ones."""
    program = (
        "from perdure.features.benchmarks.sets import DATA_SETS;"
        "from perdure.features.benchmarks.setups import make_setup;"
        "print([q.id for c in DATA_SETS['locomo'].load(make_setup('locomo', data='sample'), 1) for q in c.questions])"
    )

    found = {
        subprocess.run(
            [sys.executable, "-c", program],
            env={**os.environ, "PYTHONPATH": str(SAMPLES.parents[4]), "PYTHONHASHSEED": seed},
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for seed in ("1", "2", "3")
    }

    assert len(found) == 1


def test_longmemevals_questions_have_the_prompts_of_their_types(tmp_path: Path) -> None:
    """A preference is judged by what the answer makes of it."""
    file = changed(tmp_path, "longmemeval", lambda row: row.update(question_type="single-session-preference"))

    prompts = {case.id: case.questions[0].prompt for case in load("longmemeval", file)}

    assert prompts["sample_tea"] == "judge_preference" and prompts["sample_boat_abs"] == "judge_abstention"
    assert {*prompts.values()} >= {"judge", "judge_temporal", "judge_update"}


def test_longmemeval_has_abilities_dates_and_abstention_apart() -> None:
    cases = {case.id: case for case in load("longmemeval", "sample")}

    (question,) = cases["sample_boat_abs"].questions
    assert question.kind == ABSTENTION and question.asked_on == "2023/05/30 (Tue) 10:00"
    assert cases["sample_tea"].questions[0].evidence == {"0:1"}
    assert [turn.session for turn in cases["sample_when"].turns[::2]] == ["s_rent", "s_book", "s_book2"]  # by time
    kinds = {case.questions[0].kind for case in cases.values()}
    assert kinds == {
        "information extraction",
        "multi-session reasoning",
        "temporal reasoning",
        "knowledge updates",
        ABSTENTION,
    }


def test_dmr_has_the_earlier_chats_and_the_last_one() -> None:
    case = load("dmr", "sample")[0]

    assert {turn.session for turn in case.turns} == {"1", "2", "3"}
    assert [turn.role for turn in case.turns[:3]] == ["user", "assistant", "user"]
    assert case.questions[0].answer == "Second Hand"


def test_a_haystack_has_its_length_and_the_needle_at_its_depth(tmp_path: Path) -> None:
    """Of words that are made, and of a text of one's own; the same seed has the same."""
    text = tmp_path / "hay.txt"
    text.write_text("The sea is wide. The hills are old.\n\nNobody came today.", "utf-8")
    for data in (None, str(text)):
        setup = make_setup("niah", data=data, lengths="2000", depths="0,50,100")
        cases = DATA_SETS["niah"].load(setup, 1)

        for case in cases:
            whole = " ".join(turn.text for turn in case.turns if turn.role == "user")
            (question,) = case.questions
            assert case.place is not None
            assert 8_000 <= len(whole) <= 8_300 and f"{question.answer}." in whole
            share = whole.index(question.answer) / len(whole)
            assert abs(share - case.place[1] / 100) < 0.05
        assert cases == DATA_SETS["niah"].load(setup, 1) != DATA_SETS["niah"].load(setup, 2)


def test_a_packed_file_is_read(tmp_path: Path) -> None:
    (tmp_path / "locomo.json.gz").write_bytes(gzip.compress((SAMPLES / "locomo.json").read_bytes()))

    assert load("locomo", tmp_path / "locomo.json.gz") == load("locomo", "sample")


@pytest.mark.parametrize(
    ("name", "change", "place"),
    [
        ("dmr", lambda row: row.pop("self_instruct"), "dmr.jsonl line 1: the field 'self_instruct' is missing"),
        ("dmr", lambda row: row["self_instruct"].pop("B"), "line 1.self_instruct: the field 'B'"),
        ("dmr", lambda row: row.update(previous_dialogs={}), "line 1.previous_dialogs: it is {}, and has to be a list"),
        ("dmr", lambda row: row["dialog"].append("hi"), r'line 1.dialog\[2\]: it is "hi", and has to be an object'),
        ("longmemeval", lambda row: row.pop("question_date"), r"longmemeval.json\[0\]: the field 'question_date'"),
        ("longmemeval", lambda row: row.update(question_type="hard"), r"\[0\].question_type: 'hard' is none of"),
        ("longmemeval", lambda row: row["haystack_dates"].pop(), r"\[0\]: haystack has 3 ids, 2 dates and 3 sessions"),
        ("longmemeval", lambda row: row.update(haystack_dates=["x"] * 3), r"haystack_dates\[0\]: 'x' is no time such"),
        (
            "longmemeval",
            lambda row: row["haystack_sessions"][1][0].update(role="bot"),
            r"haystack_sessions\[1\]\[0\].role: 'bot' is neither user nor assistant",
        ),
        ("locomo", lambda row: row.pop("conversation"), r"locomo.json\[0\]: the field 'conversation' is missing"),
        ("locomo", lambda row: row["qa"][2].update(category=9), r"\[0\].qa\[2\].category: 9 is no category"),
        ("locomo", lambda row: row["qa"][2].update(category=[1]), r"\[0\].qa\[2\].category: \[1\] is no category"),
        ("locomo", lambda row: row["qa"][2].update(category=True), r"qa\[2\].category: True is no category"),
        (
            "locomo",
            lambda row: row["qa"][0].update(question=None),
            r"qa\[0\].question: it is null, and has to be a text",
        ),
        (
            "locomo",
            lambda row: row["conversation"].pop("session_2_date_time"),
            r"conversation: the field 'session_2_date_time' is missing",
        ),
    ],
)
def test_another_shape_is_refused_with_its_place(
    tmp_path: Path, name: str, change: Callable[[Any], object], place: str
) -> None:
    file = changed(tmp_path, name, change)

    with pytest.raises(InvalidInput, match=place):
        load(name, file)


@pytest.mark.parametrize("name", FILES)
def test_a_file_that_is_cut_off_or_no_json_is_refused(tmp_path: Path, name: str) -> None:
    file = tmp_path / FILES[name]
    content = (SAMPLES / FILES[name]).read_bytes()
    file.write_bytes(content[: len(content) // 2])
    with pytest.raises(InvalidInput, match=rf"{FILES[name]}.*no whole JSON.*line \d+, column \d+"):
        load(name, file)

    file.write_bytes(b"\xff\xfe{}")
    with pytest.raises(InvalidInput, match="byte 1 is not UTF-8"):
        load(name, file)
    file.write_text('{"a": 1}', "utf-8")
    with pytest.raises(InvalidInput, match=FILES[name]):
        load(name, file)
    with pytest.raises(InvalidInput, match=r"missing\.json can't be read: No such file"):
        load(name, tmp_path / "missing.json")
    with pytest.raises(InvalidInput, match="--data is missing"):
        DATA_SETS[name].load(make_setup(name, data=None), 1)
    packed = gzip.compress(content)
    (tmp_path / "x.gz").write_bytes(packed[:-20])
    with pytest.raises(InvalidInput, match=r"x\.gz can't be read"):
        load(name, tmp_path / "x.gz")
    (tmp_path / "y.gz").write_bytes(packed[:40] + b"x" * 40 + packed[80:])
    with pytest.raises(InvalidInput, match=r"y\.gz can't be read"):
        load(name, tmp_path / "y.gz")
