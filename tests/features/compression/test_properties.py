"""Promise 9 as properties: compression loses nothing, is never larger, and shows each error."""

from __future__ import annotations

import csv
import io
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from perdure.context import compress, decode
from perdure.context.sections.tokens import ScriptTokenCounter
from perdure.features.compression.interest import tells_error
from tests.support.strategies import effort

TEXTS = st.text(alphabet=st.characters(codec="utf-8"), max_size=20) | st.sampled_from(
    ["", "~", "1", "-2.5", "true", "null", "*1", "@1", '"', "a,b", "a|b\tc", "x\ny", "%1", "= a", "a:b:c", "/x/y"]
)
SCALARS = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | TEXTS
VALUES = st.recursive(
    SCALARS, lambda inner: st.lists(inner, max_size=4) | st.dictionaries(TEXTS, inner, max_size=4), max_leaves=8
)
ROWS = st.lists(
    st.dictionaries(st.sampled_from(["id", "a.b", "name", "x[0]", ""]), VALUES, min_size=1), min_size=3, max_size=8
)
LINES = st.lists(
    st.sampled_from(
        [
            "Nov 20 03:00:0{} node7 kubelet: probe of pod web-{} succeeded in {} ms",
            "lib/a{}.py:{}:        raise ValueError('a long text of an error {}')",
            "%{} = {} {}",
            "GET /items/{}/{} HTTP/1.1 200 {}",
            "   {}   |   {}   |   {}",
            "plain words without anything{}{}{}",
            "job {} failed: timeout after {} s in {}",
            "",
        ]
    ).flatmap(lambda form: st.tuples(*[st.integers(0, 99)] * 3).map(lambda numbers: form.format(*numbers))),
    max_size=60,
)


def check(text: str) -> None:
    """Check what every compression promises."""
    lossless, full = compress(text, level="lossless"), compress(text, budget=50)
    restored = decode(lossless.text)
    assert restored == text or restored == json.loads(text)
    for compressed, how in ((lossless, {"level": "lossless"}), (full, {"budget": 50})):
        assert len(compressed.text) <= len(text)
        assert compress(compressed.text, **how).text == compressed.text
    assert compress(text, budget=50) == full


@effort(few=10, many=2_000)
@given(VALUES | ROWS.map(lambda rows: rows * 9))
def test_json_is_restored(value: object) -> None:
    """Each JSON value comes back, whatever its keys and strings are."""
    check(json.dumps(value))


@pytest.mark.slow
@effort(few=10, many=2_000)
@given(ROWS.map(lambda rows: rows * 9), st.booleans())
def test_lines_of_json_are_restored(rows: list[dict[str, object]], compact: bool) -> None:
    """Lines of JSON come back byte for byte."""
    separators = (",", ":") if compact else None
    check("\n".join(json.dumps(row, separators=separators) for row in rows))


@effort(few=10, many=2_000)
@given(st.lists(st.tuples(TEXTS, TEXTS, st.integers()), min_size=4, max_size=20))
def test_csv_is_restored(rows: list[tuple[str, str, int]]) -> None:
    """CSV comes back byte for byte."""
    out = io.StringIO(newline="")
    csv.writer(out).writerows([("name", "note", "size"), *rows * 5])
    check(out.getvalue())


@effort(few=10, many=2_000)
@given(LINES, st.sampled_from(["", "\n", "\r\n"]))
def test_lines_are_restored(lines: list[str], end: str) -> None:
    """Lines of any form come back byte for byte."""
    check("\n".join(lines) + end)


@effort(few=10, many=2_000)
@given(st.text(max_size=600))
def test_any_text_is_restored(text: str) -> None:
    """Text without any form comes back."""
    check(text)


@effort(few=10, many=2_000)
@given(LINES.map(lambda lines: lines * 4))
def test_each_line_of_an_error_is_shown(lines: list[str]) -> None:
    """A shortened text has every line that tells of an error, if they fit, and counts all others."""
    errors = "\n".join(f"{number}| {line}" for number, line in enumerate(lines) if tells_error(line))
    short = compress("\n".join(lines), budget=300 + 2 * ScriptTokenCounter().count(errors))
    if short.form != "short":
        return
    body = short.text.split("\n")[1:]
    shown = [line for line in body if not line.startswith("[… ")]
    left = sum(int(line[3:].split(" ")[0]) for line in body if line.startswith("[… "))

    assert len(shown) + left == len(lines)
    assert {line for line in lines if tells_error(line)} <= {line.partition("| ")[2] for line in shown}


@effort(few=8, many=2_000)
@given(
    st.integers(40, 150),
    st.permutations(range(2, 38)),
    st.lists(st.sampled_from(["items", "data", "result", "pages"]), max_size=4),
    st.integers(1, 2_000),
)
def test_what_stands_out_is_shown_at_any_depth(size: int, order: list[int], path: list[str], budget: int) -> None:
    """The first and last record, and those with an error, an outlier or a rare value, however small the budget is."""
    rows = [
        {"id": f"id-{n:04}", "state": "ready", "note": f"as planned {n % 3}", "size": 1_000 + (n + 3) * 7_919 % 997}
        for n in range(size)
    ]
    failed, large, rare = order[:3]
    rows[failed]["note"] = "failed: connection refused"
    rows[large]["size"] = 987_654
    rows[rare]["state"] = "quarantined"
    value: object = rows
    for key in path:
        value = {key: value, "version": 3}
    text = compress(json.dumps(value), budget=budget).text

    assert all(shown in text for shown in ("connection refused", "987654", "quarantined"))
    assert all(f"id-{n:04}" in text for n in (0, failed, large, rare, size - 1))
    assert all(str(rows[n]["size"]) in text for n in (0, size - 1))
