"""Objects in answers of models are read as far as they go, and nothing that is not there is read."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from perdure.core.text.loose_json import read_objects

WORDS = st.text(st.sampled_from("ab Zé围棋'’,.:{}[]#/-\\\n"), max_size=12)
FACTS = st.fixed_dictionaries(
    {
        "subject": WORDS,
        "text": WORDS,
        "turns": st.lists(st.integers(1, 99), max_size=3),
        "known": st.none() | st.integers(0, 9),
        "rating": st.floats(0, 1),
        "is": st.booleans(),
    }
)
ANSWERS = st.fixed_dictionaries({"entities": st.lists(FACTS, max_size=2), "facts": st.lists(FACTS, max_size=4)})


def as_python(value: Any) -> str:
    """The value as a Python program shows it: single quotes, None, True."""
    return repr(value)


def indented(value: Any) -> str:
    return json.dumps(value, indent=2, ensure_ascii=False)


def with_bare_names(value: Any) -> str:
    """The value with names that stand in no quotes, as in JavaScript."""
    if isinstance(value, dict):
        return "{" + ", ".join(f"{name}: {with_bare_names(part)}" for name, part in value.items()) + "}"
    if isinstance(value, list):
        return "[" + ", ".join(map(with_bare_names, value)) + "]"
    return json.dumps(value)


def with_commas(value: Any) -> str:
    """The value with a comma behind each last item, and comments."""
    if isinstance(value, dict):
        return (
            "{ // one\n" + "".join(f"{json.dumps(name)}: {with_commas(part)}, " for name, part in value.items()) + "}"
        )
    if isinstance(value, list):
        return "[" + "".join(f"{with_commas(part)},\n# next\n" for part in value) + "/* end */]"
    return json.dumps(value)


FORMS = [json.dumps, indented, as_python, with_bare_names, with_commas]
AROUND: list[Callable[[str], str]] = [
    lambda text: text,
    lambda text: f"```json\n{text}\n```",
    lambda text: f"Here {{as you asked}} it is:\n{text}\nThat is {{all}}.",
    lambda text: f'<think>Maybe {{"facts": [{{"subject": "nobody"}}]}}?</think>\n{text}',
    lambda text: f'Let me see: {{"facts": [{{"subject": "nobody"}}]}}\n</think>\n{text}',
    lambda text: f"{text}\n{text}",
    lambda text: f"{{{text}}}",
]


@pytest.mark.slow
@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("around", AROUND)
@given(answer=ANSWERS)
def test_an_answer_in_another_form_is_read_whole(
    answer: dict[str, Any], form: Callable[[Any], str], around: Callable[[str], str]
) -> None:
    found, is_whole = read_objects(around(form(answer)))

    assert is_whole
    assert found[-1] == answer


@pytest.mark.parametrize("form", FORMS)
@given(answer=ANSWERS, cut=st.floats(0, 1))
def test_of_a_cut_off_answer_stay_the_first_items(
    answer: dict[str, Any], form: Callable[[Any], str], cut: float
) -> None:
    text = form(answer)
    found, is_whole = read_objects(text[: int(len(text) * cut)])

    assert is_whole is (not found) or found == [answer]
    for one in found:
        for name, items in one.items():
            assert items == answer[name][: len(items)]


@given(
    answer=ANSWERS, changes=st.lists(st.tuples(st.integers(0, 2_000), st.sampled_from(",\"'{}[]:\\ /<x")), max_size=6)
)
def test_a_mangled_answer_raises_nothing_and_no_word_is_made_up(
    answer: dict[str, Any], changes: list[tuple[int, str]]
) -> None:
    text = json.dumps(answer, ensure_ascii=False)
    for place, char in changes:
        text = text[: place % len(text)] + char + text[place % len(text) + 1 :]

    found, _ = read_objects(text)

    assert all(one in json.dumps(json.dumps(text)) or one in text for one in words_in(found) if one.isalnum())


def words_in(value: Any) -> list[str]:
    """Every text in a value."""
    if isinstance(value, dict):
        return [word for name, part in value.items() for word in (name, *words_in(part))]
    if isinstance(value, list):
        return [word for part in value for word in words_in(part)]
    return [value] if isinstance(value, str) else []


@pytest.mark.parametrize(
    ("text", "objects"),
    [
        ("I can't help with that.", []),
        ("<think>{'a': 1}", []),
        ('{"text": "She said "hi", and left."}', [{"text": 'She said "hi", and left.'}]),
        ("{'text': 'Ada's cat', 'turns': [1]}", [{"text": "Ada's cat", "turns": [1]}]),
        ('{"a": 1} <think>{"a": 2}</think>', [{"a": 1}]),
        ('{"a": 1}</think>{"a": 2}', [{"a": 2}]),
        ('{"turns": [1', []),
        ('{"a": [1, 12', [{"a": [1]}]),
        ("{“a”: “b”}", [{"a": "b"}]),
        ('[{"a": 1}, {"a": 2}]', [{"a": 1}, {"a": 2}]),
        ('{"a": "\\ud83d\\ude00", }', [{"a": "😀"}]),
        ('{"a": 1e5, "b": -0.5, }', [{"a": 1e5, "b": -0.5}]),
    ],
)
def test_an_object_is_read_as_far_as_it_goes(text: str, objects: list[dict[str, Any]]) -> None:
    assert [one for one in read_objects(text)[0] if any(one.values())] == objects
