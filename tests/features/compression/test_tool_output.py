"""Compression of tool output: each kind of text loses nothing, and shows what matters when it is shortened."""

from __future__ import annotations

import json
import random
import re
from typing import Any

import pytest

from perdure.context import Compressed, compress, decode, expand
from perdure.core.errors import ToolError
from perdure.features.compression.interest import tells_error
from tests.support.real_tokens import real_tokens
from tests.support.tool_outputs import MARKS, OUTPUTS, pods, records, syslog, text_table

KINDS = {
    "records": "json", "pods": "json", "issues": "json", "json_string": "json", "ndjson": "ndjson", "csv_table": "csv",
    "text_table": "lines", "syslog": "lines", "test_report": "lines", "build_log": "lines", "search_results": "search",
    "mixed": "mixed",
}  # fmt: skip
NO_ERRORS = (
    "0 errors", "no errors found", "finished without errors", "errors=0", "failed=0 skipped=1", "test ok, 0 failures",
    "Failures: 0, Errors: 0, Skipped: 0", 'failures="0" errors="0"', "errors 0 dropped 0", '"error": null,',
    '{"error":false}', "error: none", "0 failed; 0 ignored", "without any failures", "unreachable=0    failed=0",
)  # fmt: skip
COUNTED_ERRORS = (
    "10 errors", "2 failed", "Error: 0 rows updated", "error: no route to host", "errors=10", "failed=0 errors=3",
    "Failures: 2, Errors: 0", "errors 812 dropped 0", "error 0x80004005", "no error handler found for X",
    "Error: None of the hosts answers", "0 passed, 1 failed", "errors: 0.5", 'failures="3" errors="0"',
    "0 errors, 1 fatal",
)  # fmt: skip
WORDS = ("order", "cart", "invoice", "user", "ship")


def same(text: str, decoded: object) -> bool:
    """Whether a decoded text is the text, or its JSON value."""
    return decoded == text if isinstance(decoded, str) else decoded == json.loads(text)


@pytest.mark.slow
@pytest.mark.parametrize("name", OUTPUTS)
def test_each_kind_is_restored_and_never_larger(name: str) -> None:
    """At every level, with the tokens of a real tokenizer; and compressing again changes nothing."""
    text, count = OUTPUTS[name](), real_tokens
    lossless = compress(text, level="lossless")

    assert same(text, decode(lossless.text))
    for how in ({"level": "lossless"}, {}, {"budget": 300}):
        compressed = compress(text, **how)
        assert count(compressed.text) <= count(text)
        assert compress(compressed.text, **how).text == compressed.text


@pytest.mark.parametrize("name", MARKS)
def test_what_matters_is_shown_in_the_shortest_form(name: str) -> None:
    """Errors, outliers and rare values, however deep they stand, if the budget holds the form of the kind."""
    shown = compress(OUTPUTS[name](), budget=4_000).text

    assert [mark for mark in MARKS[name] if mark not in shown] == []


@pytest.mark.parametrize(("name", "kind"), KINDS.items())
def test_the_kind_is_found_by_looking(name: str, kind: str) -> None:
    """No name of a tool is needed."""
    assert compress(OUTPUTS[name](), budget=300).kind == kind


@pytest.mark.parametrize(("name", "share"), [("records", 0.4), ("pods", 0.3), ("issues", 0.4), ("syslog", 0.55)])
def test_repetition_is_written_once(name: str, share: float) -> None:
    """Keys, constant columns and the words of log lines are most of these texts."""
    text, count = OUTPUTS[name](), real_tokens

    assert count(compress(text, level="lossless").text) < share * count(text)


def test_words_stand_as_in_the_original() -> None:
    """Nothing is cut inside a word, so a word of the original can be searched in the lossless form."""
    text = records()
    words = set(re.findall(r"[\w.@+-]{7,}", text))
    shown = compress(text, level="lossless").text

    assert {word for word in words if word not in shown} == set()


def test_the_counts_of_what_is_left_out_add_up() -> None:
    """Rows in full and rows left out are all rows."""
    shown = compress(records(300), budget=1_000)
    counts = re.search(r"(\d+) of (\d+) rows in full", shown.text), re.search(r"left out: (\d+) rows", shown.text)

    assert counts[0] is not None and counts[1] is not None
    assert int(counts[0][1]) + int(counts[1][1]) == int(counts[0][2]) == 300
    assert shown.handle == "original" and '"original"' in shown.text


def test_each_error_line_of_a_log_is_shown() -> None:
    """With the number of its line, also if there are many."""
    lines = syslog(1_500).split("\n")
    lines[50:400:7] = [f"Nov 21 00:01:00 host3 app[411]: request {number} failed" for number in range(50)]
    shown = compress("\n".join(lines), budget=4_000)

    assert shown.form == "short"
    assert all(f"{number}| {line}" in shown.text for number, line in enumerate(lines, 1) if tells_error(line))


def test_short_texts_and_level_off_stay_as_they_are() -> None:
    """A header would cost more than it saves."""
    short = '[{"a": 1}, {"a": 1}, {"a": 1}]'

    assert compress(short) == Compressed(short, short)
    assert compress(records(), level="off").text == records()


def test_a_text_that_claims_to_be_compressed_is_left_alone() -> None:
    """A tool can't make Perdure decode what Perdure did not write."""
    text = "[perdure json lossless: x]\n" + records()

    assert compress(text).text == text
    with pytest.raises(ValueError, match="no inverse"):
        decode(compress(records(), budget=10).text)


def test_an_original_opens_by_lines_rows_path_conditions_pattern_and_words() -> None:
    """Each answer has the place of what it shows."""
    listing, table = pods(), text_table()

    assert expand(table, lines="79").startswith("79| ") and "398.7" in expand(table, lines="79")
    assert "3117" in expand(listing, where="restartCount>100")
    assert expand(listing, path="items[40].status.phase") == 'items[40].status.phase| "Pending"'
    assert "gpu-x9" in expand(listing, rows="41", max_tokens=2_000)
    assert "hotfix9" in expand(listing, grep=r"hotfix\d")
    assert "intruder" in expand(table, query="which process belongs to the intruder?").split("\n")[0]
    assert expand(records(), where="plan=legacy-77 and amount<900").startswith("row 101| ")
    assert expand(listing, grep="no such thing") == "nothing matches"


def test_answers_about_an_original_are_bounded() -> None:
    """By `max_tokens`; the answer says how much there is."""
    count = real_tokens

    questions: tuple[dict[str, Any], ...] = (
        *({"lines": "1.."}, {"rows": "1.."}, {"grep": "."}, {"path": "items"}, {"query": "web"}),
    )
    for how in questions:
        answer = expand(pods(), **how)
        assert count(answer) <= 1_000, how
    assert re.search(r"\[\d+ of 120 are shown", expand(pods(), rows="1.."))


@pytest.mark.parametrize(
    ("how", "message"),
    [
        ({"path": "items[900]"}, "there is 0..119"),
        ({"where": "status"}, "write status=Pending"),
        ({"rows": "500.."}, "there are rows 1..120"),
        ({"grep": "("}, "not a regular expression"),
    ],
)
def test_a_wrong_argument_says_what_there_is(how: dict[str, Any], message: str) -> None:
    """A model can repair its call."""
    with pytest.raises(ToolError, match=re.escape(message)):
        expand(pods(), **how)


@pytest.mark.parametrize(
    "value",
    [
        '{"id": 1, "id": 2, "note": "a note"}',
        '{"id": 0.12345678901234567890123, "note": "a note"}',
        '{"id": 12345678901234567890.5, "note": "a note"}',
        '{"id": 1e400, "note": "a note"}',
        '{"id": 1e-400, "note": "a note"}',
        '{"id": [{"a": 1, "a": 1}], "note": "a note"}',
    ],
)
@pytest.mark.parametrize("join", ["[{}]", "rows"])
def test_doubled_keys_and_long_decimals_lose_nothing(value: str, join: str) -> None:
    """What a value of Python can't hold is no table: the digits and keys stand as they stood, in a short form too."""
    rows = [value.replace("a note", f"a note {number}") for number in range(300)]
    text = "[" + ", ".join(rows) + "]" if join == "[{}]" else "\n".join(rows)

    assert decode(compress(text, level="lossless").text) == text
    assert value.partition(", ")[0] in compress(text, budget=800).text


@pytest.mark.parametrize("value", ["1.50", "0.000001", "1E5", "-0.0", "9007199254740993", "0.1", "1e22"])
def test_other_numbers_are_tables(value: str) -> None:
    """Another way of writing the same number is no loss."""
    text = "[" + ", ".join(f'{{"id": {value}, "note": "a note {number}"}}' for number in range(300)) + "]"
    short = compress(text, level="lossless")

    assert short.kind == "json" and decode(short.text) == json.loads(text)


@pytest.mark.parametrize(
    ("where", "ids"),
    [
        ("id=9007199254740993", ["9007199254740993"]),
        ("id!=9007199254740993", ["9007199254740992", '"007"', '"7"', '"1e3"', '"1000"', "2.50", '"nan"', '"1_0"']),
        ("id=007", ['"007"']),
        ("id=7", ['"7"']),
        ("id=1000", ['"1000"']),
        ("id=1e3", ['"1e3"']),
        ("id=2.5", ["2.50"]),
        ("id=2.50", ["2.50"]),
        ("id=10", []),
        ("id=nan", ['"nan"']),
        ("id>9007199254740992", ["9007199254740993"]),
        ("id<=7 and id~7", ['"007"', '"7"']),
    ],
)
def test_conditions_compare_ids_exactly(where: str, ids: list[str]) -> None:
    """An id is a text; a number has all its digits."""
    values = ["9007199254740992", "9007199254740993", '"007"', '"7"', '"1e3"', '"1000"', "2.50", '"nan"', '"1_0"']
    text = "[" + ",".join(f'{{"row":"r{number}","id":{value}}}' for number, value in enumerate(values)) + "]"
    answer = expand(text, where=where)
    found = [values[int(number)] for number in re.findall(r'"row":"r(\d)"', answer)]

    assert [one for one in found if not (where[2] in "<>" and not one.strip('"')[0].isdigit())] == ids


ORDERS = [
    {"Id": 0, "note": "salt and pepper", "paid": True, "sum": None},
    {"Id": 1, "note": "c", "paid": None, "sum": 0},
    {"Id": 2, "note": "x = y", "paid": False, "sum": "1,048.00"},
    {"Id": 3, "note": "d", "paid": False, "sum": "40,50"},
]


@pytest.mark.parametrize(
    ("where", "ids"),
    [
        ("Id=0 or Id=3", [0, 3]),
        ("Id=0 and paid=true or Id=1 || Id=2", [0, 1, 2]),
        ("Id=3, paid=false", [3]),
        ("id=1", [1]),
        ("Id<>0", [1, 2, 3]),
        ("Id≥2 && Id ≠ 3", [2]),
        ("paid=True", [0]),
        ("paid=None", [1]),
        ("sum>=0", [1, 2, 3]),
        ("sum>40,4", [2, 3]),
        ("sum>1,000", [2]),
        ('note="salt and pepper" and Id<2', [0]),
        ("note~salt and pepper", [0]),
        ("note='x = y'", [2]),
    ],
)
def test_conditions_are_read_as_people_write_them(where: str, ids: list[int]) -> None:
    answer = expand(json.dumps(ORDERS, ensure_ascii=False), where=where)

    assert [int(number) for number in re.findall(r'"Id":(\d)', answer)] == ids


def test_a_column_that_is_not_there_is_told() -> None:
    with pytest.raises(ToolError, match="there is no 'amount'; there is Id, note, paid, sum"):
        expand(json.dumps(ORDERS), where="amount>3")


@pytest.mark.parametrize("line", NO_ERRORS)
def test_a_line_that_says_there_is_no_error_is_none(line: str) -> None:
    assert not tells_error(line)


@pytest.mark.parametrize("line", COUNTED_ERRORS)
def test_a_line_that_counts_errors_is_one(line: str) -> None:
    assert tells_error(line)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("form", "old", "new"),
    [
        ("[INFO] Tests run: {n}, Failures: 0, Errors: 0, Skipped: 0 - in com.{word}{n}", "Failures: 0", "Failures: 2"),
        ("job {n} of {word}: finished without errors", "without errors", "with 2 declined orders"),
        ("eth{n}: packets {n}{n} errors 0 dropped 0", "errors 0", "errors 812"),
    ],
)  # fmt: skip
@pytest.mark.parametrize("budget", [600, 2_000, None])
def test_among_lines_that_count_no_errors_the_other_is_shown(form: str, old: str, new: str, budget: int | None) -> None:
    lines = [form.format(n=n, word=WORDS[n % len(WORDS)]) for n in range(2_000)]
    lines[1_234] = lines[1_234].replace(old, new)

    assert new in compress("\n".join(lines), budget=budget).text


@pytest.mark.parametrize(
    ("row", "odd", "largest"),
    [
        ("{n};cart;{n},5", "7;cart;99123,50", "99123,50"),
        ('{n},cart,"1,{n:03}.00"', '7,cart,"912,381,111.00"', "912,381,111.00"),
    ],
)
def test_an_amount_in_any_writing_is_a_number(row: str, odd: str, largest: str) -> None:
    """The largest is shown, though commas are in it."""
    rows = [row.format(n=n) for n in range(900)]
    rows[450] = odd

    assert largest in compress("\n".join(rows), budget=800).text


@pytest.mark.slow
@pytest.mark.parametrize("odd", ["nan", "inf", "1.2e9", "45s", "n/a"])
@pytest.mark.parametrize(
    "form",
    ["step {n} value {value} lr 0.001", "{n}\t{value}\tx", '{{"n": {n}, "value": "{value}"}}'],
    ids=["log", "table", "json"],
)
def test_what_is_odd_in_a_column_of_numbers_is_shown(form: str, odd: str) -> None:
    """No number, another unit, or a number of another size."""
    values = [f"{n * 7_919 % 997}ms" for n in range(2_000)]
    values[1_234] = odd
    text = "\n".join(form.format(n=n, value=value) for n, value in enumerate(values))

    assert odd in compress(text, budget=800).text.partition("\n")[2]


def test_numbers_of_any_length_are_shortened() -> None:
    """The square of one has more digits than a float holds."""
    lines = [f"{n},{random.Random(n).getrandbits(700)}" for n in range(900)]

    assert compress("id,key\n" + "\n".join(lines), budget=800).form == "short"


def test_long_decimals_are_found_and_shown_with_all_digits() -> None:
    """Also in a document that is no table."""
    text = json.dumps([{"id": number} for number in range(5)]).replace("3", "0.12345678901234567890123")

    assert expand(text, where="id=0.12345678901234567890123") == 'row 4| {"id":"0.12345678901234567890123"}'


def test_a_cut_row_is_marked() -> None:
    """With how much of it is shown."""
    for word in ("long ", "很长的 "):
        text = json.dumps([{"id": 1, "note": word * 2_000}], ensure_ascii=False)
        answer = expand(text, where="id=1", max_tokens=200)

        assert re.search(r"… \[cut: \d+ of \d+,\d+ characters\]$", answer)
        assert real_tokens(answer) <= 200
