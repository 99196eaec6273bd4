"""A text is found in every form in which it is stored, and taking it out is linear."""

from __future__ import annotations

import json
import time
import unicodedata
from collections.abc import Callable
from typing import Literal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from perdure.core.forgetting.redaction import Redactor
from perdure.core.text.forms import in_usual_width, lower_in_place, match_form, name_key, same_letters

LETTERS = "aeiInoszßİıKkéñüåộốçÅКйΰΣσς한글がプ'1"
Form = Literal["NFC", "NFD"]
FORMS: tuple[Form, ...] = ("NFC", "NFD")


@given(
    st.text(LETTERS, min_size=3, max_size=12),
    st.sampled_from(FORMS),
    st.sampled_from(FORMS),
    st.sampled_from([str, str.upper, str.lower]),
    st.integers(0, 2),
)
def test_a_text_is_found_in_every_form(text: str, one: Form, other: Form, case: type[str], depth: int) -> None:
    """Composed or not, in either case, and inside JSON; the condition of the query lets it pass."""
    stored = unicodedata.normalize(other, case(f"before {text}, after"))
    plain = unicodedata.normalize("NFD", stored).encode("ascii", "ignore").decode()
    for _ in range(depth):
        stored = json.dumps([stored])
    redactor = Redactor(unicodedata.normalize(one, text))

    assert redactor.finds(stored)
    assert "after" in redactor.redact(stored).lower()
    left = plain.lower()
    for word in redactor.like.strip("%").split("%"):
        place = left.find(word)
        assert place >= 0
        left = left[place + len(word) :]


WIDTHS = {"ガ": "ｶﾞ", "パ": "ﾊﾟ", "ン": "ﾝ", "ー": "ｰ", "。": "｡", " ": "\u3000"}
"""A character -> the same in half or double width; of Latin it is computed."""


def in_another_width(char: str) -> str:
    return WIDTHS.get(char, chr(ord(char) + 0xFEE0) if "!" <= char <= "~" else char)


@given(
    st.text("aikszAIKSZ09ガパンー。é!", min_size=3, max_size=12),
    st.lists(st.booleans(), min_size=12, max_size=12),
    st.lists(st.booleans(), min_size=12, max_size=12),
    st.booleans(),
    st.integers(0, 2),
)
def test_a_text_is_found_in_letters_of_any_width(
    text: str, one: list[bool], other: list[bool], is_ascii: bool, depth: int
) -> None:
    """All of it, and nothing beside it, is taken out or masked, also where it is escaped in JSON."""

    def written(widths: list[bool]) -> str:
        return "".join(in_another_width(char) if wide else char for char, wide in zip(text, widths, strict=False))

    redactor, stored = Redactor(written(one)), f"before: {written(other)} :after"
    (masked,) = redactor.mask([stored])
    assert masked == f"before: {'█' * len(written(other))} :after"
    for _ in range(depth):
        stored = json.dumps([stored], ensure_ascii=is_ascii)

    assert redactor.finds(stored)
    redacted = redactor.redact(stored)
    for _ in range(depth):
        (redacted,) = json.loads(redacted)
    assert redacted == "before: [redacted] :after"


def test_lines_and_excerpts_keep_their_places_behind_letters_of_another_width() -> None:
    redactor, stored = Redactor("my secret"), "ＡＢＣ　ｶﾞｷﾞ\nＭＹ　ＳＥＣＲＥＴ is it\nthe rest"

    assert redactor.drop_lines(stored) == "ＡＢＣ　ｶﾞｷﾞ\nthe rest"
    assert redactor.excerpt(stored, chars=3) == "…ｷﾞ ＭＹ ＳＥＣＲＥＴ is…"
    assert redactor.redact_summary("He told me of ｍｙ　ｓｅｃ…") == "He told me of [redacted]…"


def test_a_long_row_of_backslashes_is_read_once() -> None:
    """Reading it costs what its length costs, also where it escapes nothing."""
    usual, place_of = in_usual_width("\\" * 200_000 + "uff21!")

    assert (usual, place_of(0), place_of(1), place_of(2)) == ("A!", 0, 200_005, 200_006)
    assert in_usual_width("\\" * 200_000 + "u")[0].endswith("\\u")


@pytest.mark.parametrize(
    ("text", "stored"),
    [
        ("İstanbul'da", "istanbul'da"),
        ("istanbul", "I\u0307STANBUL"),
        ("Việt", "Viê\u0323t"),  # the marks in another order
        ("straße", "STRASSE"),
        ("STRASSE", "straße"),
        ("ΟΔΟΣ", json.dumps("οδος")),  # the last letter of a word has a form of its own
        ("οδοσ", json.dumps("οδος")),
        ("Kelvin is", json.dumps("\u212aelvin i\u017f")),
    ],
)
def test_letters_of_one_kind_are_the_same(text: str, stored: str) -> None:
    assert Redactor(text).finds(stored)


def test_a_letter_with_a_mark_is_another_letter() -> None:
    """However the mark is written."""
    for stored in ("café", "cafe\u0301", json.dumps("cafe\u0301")):
        assert not Redactor("cafe").finds(stored)


@pytest.mark.parametrize("depth", [10, 150, 400, 900, 20_000])
def test_brackets_nest_as_deep_as_they_like(depth: int) -> None:
    stored = "[" * depth + '"the code is 4711"' + "]" * depth
    redactor = Redactor("code is 4711")

    for redact in (redactor.redact, redactor.redact_record, redactor.redact_settings, redactor.redact_summary):
        assert redact(stored) == stored.replace("code is 4711", "[redacted]")


@given(st.text("ab \n", max_size=40))
def test_lines_are_dropped_as_one_by_one(text: str) -> None:
    """A line that holds the text, or a part of one that goes over several lines, is gone, and no other."""
    redactor = Redactor("aab ab")
    gone = set()
    for match in redactor.pattern.finditer(text):
        gone |= set(range(text.count("\n", 0, match.start()), text.count("\n", 0, match.end()) + 1))
    kept = [line for number, line in enumerate(text.split("\n")) if number not in gone]

    assert redactor.drop_lines(text) == ("\n".join(kept).rstrip("\n") if gone else text)


@pytest.mark.parametrize(
    ("word", "unit"), [("word", "word "), ("word", "word\n"), ("nope", "\\"), ("über", "\\"), ('"so"', "\\")]
)
def test_a_long_text_takes_time_by_its_length(word: str, unit: str) -> None:
    """Ten times the length takes less than forty times the time: its square would be a hundred times."""
    redactor, spent = Redactor(word), list[float]()
    for count in (3_000, 30_000):
        begin = time.process_time()
        for _ in range(5):
            redactor.drop_lines(unit * count)
        spent.append(time.process_time() - begin)

    assert spent[1] < 40 * max(spent[0], 0.001)


@given(st.text(LETTERS, max_size=12))
def test_a_text_has_one_form_for_comparing(text: str) -> None:
    """The form of a text in any form and case is the same, and so are its own; lower case keeps places."""
    forms = {match_form(unicodedata.normalize(form, text)) for form in FORMS}

    assert forms == {match_form(text)} == {match_form(match_form(text))}
    assert len(lower_in_place(text)) == len(text)
    assert name_key(f" {text}  x ") == name_key(f"{text} X")


@pytest.mark.parametrize("case", [str.upper, str.lower])
def test_a_letter_of_many_marks_is_found_in_one_form(case: Callable[[str], str]) -> None:
    """Composed or apart, in either case, also escaped in JSON."""
    for word in ("hello a", "hello A"):
        text = word + "\u0301\u0323\u0308\u0304\u0306" * 10
        stored = [unicodedata.normalize(form, case(f"so: {text}!")) for form in FORMS]

        assert all(Redactor(text).finds(one) and Redactor(text).finds(json.dumps(one)) for one in stored)


def test_many_marks_take_time_by_their_number() -> None:
    """Ten times the marks take less than forty times the time: its square would be a hundred times."""
    spent = list[float]()
    for count in (500, 5_000):
        begin = time.process_time()
        same_letters("a" + "\u0301" * count)
        spent.append(time.process_time() - begin)

    assert spent[1] < 40 * max(spent[0], 0.001)


def test_what_was_made_of_a_redacted_part_goes_with_it() -> None:
    """A signature of the old thought, the compressed form of the old result; those of other parts stay."""
    thought = {"type": "reasoning", "text": "She has gout.", "signature": "c2ln"}
    result = {"type": "tool_result", "text": "gout, tea", "shown_text": "1 line of 9 characters", "whole_tokens": 5}
    others = [thought | {"text": "She likes tea."}, result | {"text": "tea"}]
    redacted = json.loads(Redactor("gout").redact_parts(json.dumps([thought, result, *others])))

    assert redacted == [
        {"type": "reasoning", "text": "She has [redacted]."},
        {"type": "tool_result", "text": "[redacted], tea"},
        *others,
    ]


@pytest.mark.slow
def test_every_letter_is_found_by_itself_and_by_its_normal_forms() -> None:
    """Also those that no normal form makes: Hindi ढ़, Hebrew שׁ, compatibility ideographs of Japanese and Korean."""
    missed = []
    for code in (*range(0xC0, 0xD7FF), *range(0xF900, 0xFFDC), *range(0x2F800, 0x2FA1E)):
        letter = chr(code)
        if letter.isalpha() and unicodedata.normalize("NFC", letter) != letter:
            texts = [f"ab {form}c d" for form in (letter, *(unicodedata.normalize(form, letter) for form in FORMS))]
            missed += [(one, other) for one in texts for other in texts if not Redactor(one).finds(other)]
            missed += [(one, letter) for one in texts if not Redactor(one).finds(json.dumps([f"ab {letter}c d"]))]
    assert missed == []
